"""The log and the end of a process deployment, as streams that another thread may close."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from spark_vllm_docker.engine.protocol import Deployed, Exit
from spark_vllm_docker.errors import NotDeployed

_POLL_S = 0.05


class LogFile:
    """Follows a file until the deployment has ended and everything is read."""

    def __init__(
        self,
        inspect: Callable[[str], Deployed],
        name: str,
        path: Path,
        tail: int | None,
        follow: bool,
    ) -> None:
        self._inspect, self._name, self._path = inspect, name, path
        self._tail, self._follow = tail, follow
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            if self._tail is not None:
                file.seek(_tail_offset(self._path, self._tail))
            while not self._closed.is_set():
                ended = not self._follow or self._has_ended()
                while (chunk := file.read(1 << 16)) and not self._closed.is_set():
                    yield chunk
                if ended:
                    return
                self._closed.wait(_POLL_S)

    def _has_ended(self) -> bool:
        try:
            return self._inspect(self._name).state == "exited"
        except NotDeployed:
            return True

    def close(self) -> None:
        self._closed.set()


class ExitFile:
    """Waits for the exit of a deployment."""

    def __init__(self, read_exit: Callable[[str], Exit | None], name: str) -> None:
        self._read_exit, self._name = read_exit, name
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[Exit]:
        while not self._closed.is_set():
            try:
                ended = self._read_exit(self._name)
            except NotDeployed:
                return
            if ended is not None:
                yield ended
                return
            self._closed.wait(_POLL_S)

    def close(self) -> None:
        self._closed.set()


def _tail_offset(path: Path, lines: int) -> int:
    """The offset of the last `lines` lines, read backwards in blocks."""
    block = 1 << 16
    with path.open("rb") as file:
        size = at = file.seek(0, os.SEEK_END)
        if lines <= 0:
            return size
        missing = lines + 1
        while at > 0:
            start = max(0, at - block)
            file.seek(start)
            data = file.read(at - start)
            if at == size and not data.endswith(b"\n"):
                missing -= 1
            for index in range(len(data) - 1, -1, -1):
                if data[index] == 0x0A:
                    missing -= 1
                    if missing == 0:
                        return start + index + 1
            at = start
    return 0
