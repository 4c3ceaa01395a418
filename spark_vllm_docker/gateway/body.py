"""The body of a request as it comes in: kept on disk when it is large, and read without its media.

A body with a video is gigabytes of base64 in one JSON string. A copy in which long strings are cut
short is parsed instead; where they stand in the body is remembered.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST_STRING = 16 << 10
IN_MEMORY_BYTES = 256 << 10
MOST_STRUCTURE_BYTES = 4 << 20
_SHORT_BYTES = 64 << 10
_MARK = "\x1a"
HEAD_BYTES = 512
_CUT_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]{0,3})?$")
_EDGE = re.compile(rb'[\\"]')
_CHUNK = 1 << 18


class BadBody(ValueError):
    """It is no JSON object that could be a request."""


@dataclass(frozen=True, slots=True)
class LongString:
    """Bytes of the body that are the inside of a string."""

    start: int
    end: int


class RequestBody:
    """Feed it the chunks, then `parse`. `length` is that of the body in bytes."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115
        self._short = bytearray()
        self._long: list[LongString] = []
        self._string: list[bytes] = []
        self._in_string = self._escaped = False
        self._string_start = self._string_bytes = 0
        self._digest = hashlib.sha256()
        self.length = 0

    def close(self) -> None:
        """Give the disk back."""
        self._file.close()

    def feed(self, chunk: bytes) -> None:
        """Take a piece.

        Raises:
            BadBody: there is too much of it that is no long string.
        """
        self._file.write(chunk)
        at = 0
        while at < len(chunk):
            at = self._feed_string(chunk, at) if self._in_string else self._feed_rest(chunk, at)
        self.length += len(chunk)
        if len(self._short) > MOST_STRUCTURE_BYTES:
            raise BadBody("the request is too large, apart from its media")

    @property
    def is_short(self) -> bool:
        """Whether it is parsed in no time."""
        return len(self._short) <= _SHORT_BYTES

    def parse(self) -> dict[str, Any]:
        """The request, its long strings cut short.

        Raises:
            BadBody: it is no JSON object.
        """
        try:
            data = json.loads(self._short.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise BadBody("the body is no JSON") from error
        finally:
            self._short = bytearray()
        if not isinstance(data, dict):
            raise BadBody("the body is no JSON object")
        return data

    @property
    def digest(self) -> str:
        """Of the content of all strings longer than `LONGEST_STRING`: media, or a long text."""
        return self._digest.hexdigest()

    def read(self, added: dict[str, Any] | None = None) -> Iterator[bytes]:
        """The body; `added` are keys at its top level, which replace its own (of a key that is
        there twice the last one counts).
        """
        end = self._find_end() if added else self.length
        self._file.seek(0)
        left = end
        while left > 0:
            chunk = self._file.read(min(_CHUNK, left))
            if not chunk:
                break
            left -= len(chunk)
            yield chunk
        if added:
            inside = json.dumps(added)[1:]
            yield f", {inside}".encode()

    def read_async(self, added: dict[str, Any] | None = None) -> AsyncIterator[bytes]:
        """The same, for an asynchronous client."""

        async def pieces() -> AsyncIterator[bytes]:
            for piece in self.read(added):
                yield piece

        return pieces()

    def length_with(self, added: dict[str, Any] | None) -> int:
        """Bytes of `read(added)`."""
        if not added:
            return self.length
        return self._find_end() + len(f", {json.dumps(added)[1:]}".encode())

    def save_media(self, url: str, target: Path) -> bool:
        """Write the bytes of a data URL of the parsed request; False when they are none."""
        head, comma, rest = url.partition("base64,")
        if not comma or not head.startswith("data:"):
            return False
        try:
            if _MARK not in rest:
                target.write_bytes(b64decode(rest, validate=False))
                return True
            place = self._long[int(url.rpartition(_MARK)[2])]
            self._file.seek(place.start)
            # Found again in the body: a `\/` of the head is one letter there and two here.
            begin = self._file.read(HEAD_BYTES).index(b"base64,") + len(b"base64,")
            self._file.seek(place.start + begin)
            left = place.end - place.start - begin
            rest_of_four = b""
            with target.open("wb") as file:
                while left > 0 and (piece := self._file.read(min(_CHUNK, left))):
                    left -= len(piece)
                    letters = rest_of_four + piece.replace(b"\\", b"")  # `\/` is a slash
                    whole = len(letters) // 4 * 4
                    rest_of_four = letters[whole:]
                    file.write(b64decode(letters[:whole]))
        except (ValueError, LookupError):
            return False
        return True

    def _feed_rest(self, chunk: bytes, at: int) -> int:
        found = chunk.find(b'"', at)
        end = len(chunk) if found < 0 else found + 1
        self._keep(chunk[at:end])
        if found >= 0:
            self._in_string, self._string_start, self._string_bytes = True, self.length + end, 0
        return end

    def _feed_string(self, chunk: bytes, at: int) -> int:
        if self._escaped:
            self._escaped = False
            self._keep_string(b"\\" + chunk[at : at + 1])
            return at + 1
        found = _EDGE.search(chunk, at)
        if found is None:
            self._keep_string(chunk[at:])
            return len(chunk)
        self._keep_string(chunk[at : found.start()])
        if found[0] == b"\\":
            self._escaped = True
        else:
            self._end_string(self.length + found.start())
        return found.end()

    def _keep_string(self, piece: bytes) -> None:
        """The first `LONGEST_STRING` bytes."""
        room = LONGEST_STRING - self._string_bytes
        self._string_bytes += len(piece)
        if room > 0:
            self._string.append(piece[:room])
            if self._string_bytes > LONGEST_STRING:
                self._digest.update(b"".join(self._string))
        if self._string_bytes > LONGEST_STRING:
            self._digest.update(piece[max(0, room) :])

    def _end_string(self, end: int) -> None:
        text, self._string = b"".join(self._string), []
        if self._string_bytes <= LONGEST_STRING:
            self._keep(text)
        else:
            head = _CUT_ESCAPE.sub(b"", text[:HEAD_BYTES])
            self._keep(head + f"\\u001a{len(self._long)}".encode())
            self._long.append(LongString(self._string_start, end))
        self._keep(b'"')
        self._in_string = False

    def _keep(self, piece: bytes) -> None:
        self._short += piece

    def _find_end(self) -> int:
        """Where the object's last brace stands."""
        end = self.length
        while end > 0:
            begin = max(0, end - _CHUNK)
            self._file.seek(begin)
            found = self._file.read(end - begin).rstrip()
            if found:
                return begin + len(found) - 1
            end = begin
        return 0
