"""Files that a verb writes for the user."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from spark_vllm_docker.errors import Refused, say_reason


def write_new_file(path: Path, text: str, *, force: bool) -> None:
    """Write a file; one that is there is overwritten only with `force`.

    Raises:
        Refused: it is there, or it cannot be written.
    """
    try:
        if force and path.is_file():
            _replace(path, text)
        else:
            with path.open(
                "w" if force else "x", encoding="utf-8", errors="replace", newline=""
            ) as file:
                file.write(text)
    except FileExistsError as error:
        raise Refused(f"{path} is there already", hint="--force overwrites it") from error
    except OSError as error:
        reason = say_reason(error)
        raise Refused(f"{path}: cannot be written: {reason}") from error


def _replace(path: Path, text: str) -> None:
    """All of the new text or all of the old: a full disk must not empty the user's file."""
    real = path.resolve()
    with real.open("rb+"):  # a file that may not be written is not replaced either
        pass
    beside = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        with beside.open("x", encoding="utf-8", errors="replace", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.chmod(real.stat().st_mode & 0o7777)
        beside.replace(real)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
