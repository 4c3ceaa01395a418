"""Bytes of a log → lines → their parts. Bounded: a log without line ends costs no memory."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_LINE_BYTES = 16 << 10

# "(APIServer pid=12) " is put before every line by vLLM (system_utils.py), also before tqdm's and
# uvicorn's; the header follows only on lines of vLLM's own logger.
_LEVEL = "DEBUG|INFO|WARNING|ERROR|CRITICAL"
_DECORATION = re.compile(
    r"(?:\((?P<process>[\w.:\[\]-]+)(?: rank=\d+)? pid=\d+(?:, ip=[^)]{1,64})?\) ?)?"
    rf"(?:(?P<level>{_LEVEL}) (?:\d{{4}}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? \[?[^\]\s]+:\d+\] ?"
    rf"|(?P<uvicorn>{_LEVEL}):\s+)?"
)
# Terminal escapes, control characters, and marks that turn the direction of text around.
_ESCAPES = re.compile(
    r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
    r"\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)

_CONTROL = bytes(code for code in range(32) if chr(code) not in "\t\n\r") + b"\x7f"
_LEADS = re.compile(rb"\xc2|\xe2\x80[\x8e\x8f\xaa-\xae]|\xe2\x81[\xa6-\xa9]")
"""Begin the control characters from U+0080 to U+009F, and the marks of direction, in UTF-8."""


class LogLine(NamedTuple):
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
        head, end, tail = chunk.replace(b"\r", b"\n").rpartition(b"\n")
        if not end:
            self._keep(tail)
            return []
        pieces = head.split(b"\n")
        first = self._finish(pieces[0])
        self._keep(tail)
        if max(map(len, pieces)) <= MAX_LINE_BYTES:
            # All at once: what is done for each line alone takes ten times as long.
            block = b"\n".join(pieces[1:])
            text = block.decode("utf-8", "replace")
            text = text if _is_clean(block) else clean_text(text)
            return first + [line for line in text.split("\n") if line]
        rest, dropped = self._rest, self._dropped
        self._rest, self._dropped = b"", 0
        lines = first + [line for piece in pieces[1:] for line in self._finish(piece)]
        self._rest, self._dropped = rest, dropped
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


def _is_clean(block: bytes) -> bool:
    """Whether `clean_text` would take nothing away: quick, and sure where it says yes."""
    return len(block.translate(None, _CONTROL)) == len(block) and not _LEADS.search(block)


def clean_text(text: str) -> str:
    """Without terminal escapes and control characters: a log must not steer the user's terminal."""
    return _ESCAPES.sub("", text)


def parse_line(line: str) -> LogLine:
    """Take vLLM's and uvicorn's decoration off a line."""
    found = _DECORATION.match(line)
    assert found is not None  # noqa: S101 - every part of it is optional
    process, level, uvicorn = found.groups("")
    return LogLine(process, level or uvicorn, line[found.end() :])
