"""What a file is, by its first bytes. Names and servers' content types are not believed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["image", "audio", "video", "pdf", "text"]
HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Content:
    """The kind of a file and its MIME type. A container of video may hold sound alone: `probing`
    looks inside.
    """

    kind: Kind
    mime: str


@dataclass(frozen=True, slots=True)
class Media:
    """A file to send. Duration in seconds and size in bytes; `width` and `height` as it is shown
    (a turned video is turned), 0 where there is no picture.
    """

    path: Path
    kind: Kind
    mime: str
    size: int
    duration_s: float = 0.0
    width: int = 0
    height: int = 0
    has_sound: bool = False
    codec: str = ""

    @property
    def aspect(self) -> float:
        """Width by height; that of most videos where it is not known."""
        return self.width / self.height if self.width and self.height else 16 / 9


_STARTS: tuple[tuple[bytes, Content], ...] = (
    (b"\x89PNG\r\n\x1a\n", Content("image", "image/png")),
    (b"\xff\xd8\xff", Content("image", "image/jpeg")),
    (b"GIF8", Content("image", "image/gif")),
    (b"BM", Content("image", "image/bmp")),
    (b"II*\x00", Content("image", "image/tiff")),
    (b"MM\x00*", Content("image", "image/tiff")),
    (b"%PDF-", Content("pdf", "application/pdf")),
    (b"fLaC", Content("audio", "audio/flac")),
    (b"OggS", Content("audio", "audio/ogg")),
    (b"ID3", Content("audio", "audio/mpeg")),
    (b"\x1a\x45\xdf\xa3", Content("video", "video/x-matroska")),
    (b"FLV\x01", Content("video", "video/x-flv")),
    (b"\x00\x00\x01\xba", Content("video", "video/mpeg")),
    (b"\x00\x00\x01\xb3", Content("video", "video/mpeg")),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", Content("video", "video/x-ms-wmv")),
)
_RIFF = {
    b"WAVE": Content("audio", "audio/wav"),
    b"AVI ": Content("video", "video/x-msvideo"),
    b"WEBP": Content("image", "image/webp"),
}
_STILL_BRANDS = (b"heic", b"heix", b"mif1", b"avif")
_BITMAP_HEADERS = [size.to_bytes(4, "little") for size in (12, 40, 52, 56, 64, 108, 124)]
_TS_PACKET = 188


def sniff(head: bytes) -> Content | None:
    """The content by the first `HEAD_BYTES` of a file; None when they are of nothing known."""
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    if head[4:8] == b"ftyp":
        return _read_brand(head[8:12])
    if head[:1] < b"\x20" and head[4:8] in (b"moov", b"mdat", b"wide", b"free", b"skip"):
        return Content("video", "video/quicktime")
    for start, content in _STARTS:
        if head.startswith(start) and not _is_word(start, head):
            return _narrow(content, head)
    if head[:1] == b"\x47" and head[_TS_PACKET : _TS_PACKET + 1] == b"\x47":
        return Content("video", "video/mp2t")
    if re.match(rb"\xff[\xe0-\xff][^\xff]", head) and (head[1] >> 1) & 3:
        return Content("audio", "audio/mpeg")
    return Content("text", "text/plain") if _is_text(head) else None


def _is_word(start: bytes, head: bytes) -> bool:
    """Whether a mark of letters begins a text."""
    if start == b"BM":
        return head[14:18] not in _BITMAP_HEADERS
    return start == b"ID3" and not head[3:4] < b"\x05"


def _read_brand(brand: bytes) -> Content:
    if brand[:4] in _STILL_BRANDS:
        return Content("image", "image/avif" if brand == b"avif" else "image/heic")
    if brand in (b"M4A ", b"M4B "):
        return Content("audio", "audio/mp4")
    return Content("video", "video/quicktime" if brand == b"qt  " else "video/mp4")


def _narrow(content: Content, head: bytes) -> Content:
    webm = content.mime == "video/x-matroska" and b"webm" in head[:64]
    return Content("video", "video/webm") if webm else content


def _is_text(head: bytes) -> bool:
    if not head or any(byte < 7 or 13 < byte < 27 or byte == 127 for byte in head):
        return False
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 4  # a character that the head cuts in two
    return True
