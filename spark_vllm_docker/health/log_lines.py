"""Bytes of a log → lines → their parts. Bounded: a log without line ends costs no memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LINE_BYTES = 16 << 10

# "(APIServer pid=12) " is put before every line by vLLM (system_utils.py), also before tqdm's and
# uvicorn's; the header follows only on lines of vLLM's own logger.
_PREFIX = re.compile(r"\((?P<process>[\w.:\[\]-]+) pid=\d+\) ?")
_HEADER = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+:\d+\] ?"
)
_UVICORN = re.compile(r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):\s+")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line in its parts. `process` is such as `EngineCore`, `level` such as `ERROR`; both may be
    empty.
    """

    process: str
    level: str
    message: str


class LineSplitter:
    """Cuts a byte stream into lines at line feeds and carriage returns (progress bars).

    A line longer than `MAX_LINE_BYTES` is given once, cut, with the number of bytes that it really
    had; what follows up to its end is dropped.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._dropped = 0

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that the chunk completes; empty ones are left out."""
        pieces = chunk.replace(b"\r", b"\n").split(b"\n")
        lines = []
        for piece in pieces[:-1]:
            lines += self._finish(piece)
        self._keep(pieces[-1])
        return lines

    def end(self) -> list[str]:
        """The last line, when the log does not end with a line end."""
        return self._finish(b"")

    def _keep(self, piece: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._rest)
        self._rest += piece[:room]
        self._dropped += max(0, len(piece) - room)

    def _finish(self, piece: bytes) -> list[str]:
        self._keep(piece)
        line, dropped = self._rest, self._dropped
        self._rest, self._dropped = b"", 0
        if not line:
            return []
        text = clean_text(line.decode("utf-8", "replace"))
        return [f"{text} … [{dropped} bytes more]" if dropped else text]


def clean_text(text: str) -> str:
    """Without terminal escapes and control characters: a log must not steer the user's terminal."""
    return _ESCAPES.sub("", text)


def parse_line(line: str) -> LogLine:
    """Take vLLM's and uvicorn's decoration off a line."""
    process = level = ""
    at = 0
    if found := _PREFIX.match(line):
        process, at = found["process"], found.end()
    if found := _HEADER.match(line, at) or _UVICORN.match(line, at):
        level, at = found["level"], found.end()
    return LogLine(process, level, line[at:])
