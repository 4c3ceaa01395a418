"""One `up` of a name at a time: two of them would each remove what the other is making."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from spark_vllm_docker.events import Emit, Note


@contextmanager
def start_lock(name: str, environ: Mapping[str, str], emit: Emit) -> Iterator[None]:
    """Held from the look for a running deployment to its start. The kernel gives it back when the
    process ends, however it ends. Where no file can be locked, there is no lock.
    """
    folder = Path(environ.get("XDG_RUNTIME_DIR") or "/tmp") / f"spark-recipe-{os.getuid()}"  # noqa: S108
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        file = (folder / f"{name}.lock").open("w", encoding="ascii")
    except OSError:
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            emit(Note(f"another up of {name} is starting it; waiting for that"))
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield
            return
        try:
            yield
        finally:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
