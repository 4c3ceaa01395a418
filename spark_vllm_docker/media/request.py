"""A question with its files → the body of a chat request, read from disk while it is sent.

`mm_processor_kwargs: {"use_audio_in_video": true}` stands at the top level of the body: in any
other place vLLM answers 200 and drops the sound in silence (recorded for nine places, 0.20.0).
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_vllm_docker.errors import BadMedia, say_reason

_CHUNK = 3 * (1 << 16)
"""A multiple of three: base64 of the pieces is the base64 of the whole."""
_SHOWN = 24
SOUND_FLAG = {"use_audio_in_video": True}


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a message: `part` is the kind of its content part, such as `video_url`; `url` is
    where the server finds it by itself, empty when its bytes are sent.
    """

    part: str
    mime: str
    path: Path
    size: int
    url: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """All that is asked in one request. `frames` are fps and num_frames: always both, since giving
    one drops the server's other one (vLLM 0.20.0 multimodal/media/video.py:32-39).
    """

    model: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    system: str = ""
    max_tokens: int = 2048
    with_sound_flag: bool = False
    frames: tuple[float, int] | None = None
    cache_salt: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


class Body:
    """The bytes of a request, made while they are read; `length` is known before."""

    def __init__(self, question: Question, *, stream: bool = True) -> None:
        self._data, self._files = _build(question, stream=stream)
        pieces = json.dumps(self._data, ensure_ascii=False)
        self._texts: list[bytes] = []
        for mark, _ in self._files:
            head, _, pieces = pieces.partition(mark)
            self._texts.append(head.encode("utf-8", "replace"))
        self._texts.append(pieces.encode("utf-8", "replace"))
        self.length = sum(map(len, self._texts)) + sum(
            len(_prefix(file)) + 4 * ((file.size + 2) // 3) for _, file in self._files
        )

    def __iter__(self) -> Iterator[bytes]:
        """The whole body, in pieces of a few hundred kB.

        Raises:
            BadMedia: a file is not what it was a moment ago.
        """
        for text, (_, file) in zip(self._texts, self._files, strict=False):
            yield text
            yield _prefix(file).encode()
            yield from _encode(file)
        yield self._texts[-1]

    def show(self) -> dict[str, Any]:
        """The body as data, with what files hold cut short."""

        def shorten(file: Attachment) -> str:
            with file.path.open("rb") as source:
                head = b64encode(source.read(_SHOWN)).decode()
            return f"{head}… ({file.size:,} bytes)"

        return self._show(shorten)

    def show_with_names(self) -> dict[str, Any]:
        """The body as data, with `data:MIME;base64,@FILE` for what files hold."""
        return self._show(lambda file: f"@{file.path}")

    def _show(self, stand_for: Callable[[Attachment], str]) -> dict[str, Any]:
        text = json.dumps(self._data, ensure_ascii=False)
        for mark, file in self._files:
            text = text.replace(mark, json.dumps(f"{_prefix(file)}{stand_for(file)}")[1:-1])
        shown: dict[str, Any] = json.loads(text)
        return shown


def find_salt(attachments: Sequence[Attachment]) -> str:
    """A `cache_salt` from the content of the files: without one the prefix cache may answer a video
    with the state of another sound track over the same frames (recorded, 0.20.0).

    Raises:
        BadMedia: a file cannot be read.
    """
    digest = hashlib.sha256()
    for file in attachments:
        digest.update(f"{file.part}\0{file.url}\0{file.size}\0".encode())
        if file.url.startswith(("http:", "https:")):
            continue
        try:
            with file.path.open("rb") as source:
                digest.update(hashlib.file_digest(source, "sha256").digest())
        except OSError as error:
            raise BadMedia(f"{file.path}: {say_reason(error)}") from error
    return digest.hexdigest()[:32]


def _build(
    question: Question, *, stream: bool
) -> tuple[dict[str, Any], list[tuple[str, Attachment]]]:
    parts: list[dict[str, Any]] = []
    files: list[tuple[str, Attachment]] = []
    for number, file in enumerate(question.attachments):
        url = file.url
        if not url:
            url = f"\x1amedia-{number}\x1a"  # no text of a user holds this control character
            files.append((json.dumps(url)[1:-1], file))
        parts.append({"type": file.part, file.part: {"url": url}})
    text = question.text.replace("\x1a", "")
    content: object = [*parts, {"type": "text", "text": text}] if parts else text
    messages = [{"role": "user", "content": content}]
    if question.system:
        messages.insert(0, {"role": "system", "content": question.system.replace("\x1a", "")})
    data: dict[str, Any] = {
        "model": question.model,
        "messages": messages,
        "max_tokens": question.max_tokens,
    }
    if question.with_sound_flag:
        data["mm_processor_kwargs"] = dict(SOUND_FLAG)
    if question.frames is not None:
        fps, count = question.frames
        data["media_io_kwargs"] = {"video": {"fps": fps, "num_frames": count}}
    if question.cache_salt:
        data["cache_salt"] = question.cache_salt
    if stream:
        data |= {"stream": True, "stream_options": {"include_usage": True}}
    return {**data, **question.extra}, files


def _prefix(file: Attachment) -> str:
    return f"data:{file.mime};base64,"


def _encode(file: Attachment) -> Iterator[bytes]:
    left = file.size
    try:
        with file.path.open("rb") as source:
            while left > 0:
                wanted = min(_CHUNK, left)
                chunk = source.read(wanted)  # buffered: shorter only at the end of the file
                if len(chunk) < wanted:
                    raise BadMedia(f"{file.path} became shorter while it was sent")
                left -= wanted
                yield b64encode(chunk)
    except OSError as error:
        raise BadMedia(f"{file.path}: {say_reason(error)}") from error
