"""A build's context on its way to the engine, and the engine's words on their way back."""

from __future__ import annotations

import os
import tarfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from spark_vllm_docker.errors import DISK_HINT, BuildFailed, NoSpace


class packed:  # noqa: N801 - reads as a function in a with statement
    """A build context as a tar stream that is packed while it is sent, never written to disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> IO[bytes]:
        reading, writing = os.pipe()
        self._reader = os.fdopen(reading, "rb")
        self._thread = threading.Thread(target=self._pack, args=(writing,), daemon=True)
        self._thread.start()
        return self._reader

    def _pack(self, writing: int) -> None:
        with (
            suppress(BrokenPipeError),  # the engine broke off; its error says why
            os.fdopen(writing, "wb") as pipe,
            tarfile.open(mode="w|", fileobj=pipe, dereference=True) as archive,
        ):
            archive.add(self._folder, arcname=".")

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._thread.join(timeout=10)


def read_build(tag: str, messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The lines of a build's output.

    Raises:
        NoSpace, BuildFailed: what the stream said.
    """
    lines: list[str] = []
    for message in messages:
        if "error" in message:
            text = " ".join(str(message["error"]).split())
            if "no space left on device" in text:
                raise NoSpace(f"{tag}: the disk of the engine is full: {text}", hint=DISK_HINT)
            context = f" after: {lines[-1]}" if lines else ""
            raise BuildFailed(f"{tag} cannot be built: {text}{context}")
        for line in str(message.get("stream", "")).splitlines():
            if line.strip():
                lines = [line.strip()]
                yield line.rstrip()
