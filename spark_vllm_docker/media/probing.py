"""Files of pictures, sound and video → what must be known before they are sent.

PyAV reads the same libraries that the server's own loaders do, so what it cannot open they cannot
either.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import av
import av.error
from av.container import InputContainer

from spark_vllm_docker.errors import BadMedia, say_reason
from spark_vllm_docker.media.content import HEAD_BYTES, Media, sniff

_QUARTER_TURNS = (90, 270)


def probe(path: Path) -> Media:
    """Look into a file.

    Raises:
        BadMedia: it cannot be read, is empty or cut off, or is of no kind that a model takes.
    """
    try:
        if not path.is_file():
            reason = "is a folder" if path.is_dir() else "there is no such file"
            raise BadMedia(f"{path}: {reason}")
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        raise BadMedia(f"{path}: {say_reason(error)}") from error
    if not size:
        raise BadMedia(f"{path} is empty")
    content = sniff(head)
    if content is None:
        raise BadMedia(f"{path} is no picture, no sound, no video, no PDF and no text")
    if content.kind in ("pdf", "text", "image"):
        return Media(path, content.kind, content.mime, size)
    return _probe_streams(path, content.mime, size)


class _Nameless:
    """A file whose name libav does not see: it would choose by it, and `%d` would be a pattern."""

    def __init__(self, file: BinaryIO) -> None:
        self.read, self.seek, self.tell = file.read, file.seek, file.tell


def open_media(file: BinaryIO) -> InputContainer:
    """By its bytes alone: a name such as concat:x must not open another file."""
    return av.open(_Nameless(file), "r", metadata_errors="ignore")


def _probe_streams(path: Path, mime: str, size: int) -> Media:
    try:
        with path.open("rb") as file, open_media(file) as container:
            pictures = [s for s in container.streams.video if not _is_cover(s)]
            sounds = list(container.streams.audio)
            if not pictures and not sounds:
                raise BadMedia(f"{path} has neither picture nor sound in it")
            duration = _find_duration(container, pictures or sounds)
            if not pictures:
                mime = {"video/mp4": "audio/mp4", "video/webm": "audio/webm"}.get(mime, mime)
                return Media(path, "audio", mime, size, duration, 0, 0, has_sound=True)
            stream = pictures[0]
            frame = next(container.decode(stream), None)
            if frame is None:
                raise BadMedia(f"{path}: not one picture of it can be decoded")
            width, height = _shown_size(stream, frame)
            return Media(
                path,
                "video",
                mime,
                size,
                duration,
                width,
                height,
                has_sound=bool(sounds),
                codec=stream.codec_context.name or "",
            )
    except av.error.FFmpegError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise BadMedia(
            f"{path} cannot be read ({reason}): it is cut off or damaged",
            hint="ffmpeg -i FILE -c copy repaired.mp4 may save what is there",
        ) from error


def _is_cover(stream: Any) -> bool:
    """Whether a stream is the picture on a song's sleeve."""
    with suppress(AttributeError):
        return bool(stream.disposition & av.stream.Disposition.attached_pic)
    return False


def _find_duration(container: Any, streams: list[Any]) -> float:
    """Of the container, else of its stream, else by reading all packets; 0 where none tells."""
    if container.duration:
        return float(container.duration) / av.time_base
    for stream in streams:
        if stream.duration and stream.time_base:
            return float(stream.duration * stream.time_base)
    last = 0.0
    for packet in container.demux(streams[0]):
        if packet.pts is not None and packet.time_base:
            last = max(last, float((packet.pts + (packet.duration or 0)) * packet.time_base))
    container.seek(0)
    return last


def _shown_size(stream: Any, frame: Any) -> tuple[int, int]:
    width, height = int(frame.width), int(frame.height)
    pixel = stream.codec_context.sample_aspect_ratio
    if pixel:
        width = max(1, round(width * float(pixel)))
    turned = abs(int(getattr(frame, "rotation", 0) or 0)) % 360 in _QUARTER_TURNS
    return (height, width) if turned else (width, height)
