"""What is in a chat request, and what a client forgot: `use_audio_in_video` at the top level."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_vllm_docker.errors import BadMedia
from spark_vllm_docker.gateway.body import RequestBody
from spark_vllm_docker.media.probing import probe

_FLAG = "use_audio_in_video"
MIXED = (
    "a picture and a video with sound in one request end the engine of some models "
    "(Qwen2.5-Omni); ask about them one after the other"
)


@dataclass(frozen=True, slots=True)
class Contents:
    """The kinds of a request's parts. `flagged` says whether the client set the flag."""

    videos: tuple[str, ...] = ()
    sounds: int = 0
    images: int = 0
    flagged: bool = False

    @property
    def is_media(self) -> bool:
        """Whether it goes into the lane of long prompts."""
        return bool(self.videos or self.sounds)


@dataclass(frozen=True, slots=True)
class Addition:
    """Keys that are added to a request. `sound` says what became of the sound of its videos."""

    keys: dict[str, Any] = field(default_factory=dict)
    sound: str = ""


def read_contents(data: dict[str, Any]) -> Contents:
    """What is in a parsed request."""
    videos: list[str] = []
    sounds = images = 0
    for part in _parts(data):
        # vLLM takes a part by its type, or, without one, by the key that is there.
        kinds = {str(part.get("type", "")), *part}
        if "video_url" in kinds:
            inner = part.get("video_url")
            videos.append(str(inner.get("url", "")) if isinstance(inner, dict) else str(inner))
        sounds += bool(kinds & {"audio_url", "input_audio"})
        images += bool(kinds & {"image_url", "image_pil", "image_embeds"})
    kwargs = data.get("mm_processor_kwargs")
    flagged = isinstance(kwargs, dict) and bool(kwargs.get(_FLAG))
    return Contents(tuple(videos), sounds, images, flagged)


def complete(
    data: dict[str, Any], contents: Contents, body: RequestBody, takes_kwargs: bool | None
) -> Addition:
    """What to add so that the sound of videos is heard. Reads the files; not for an event loop.

    Left alone: a client that set the flag to anything, a picture beside the video, a server that
    does not take the flag, a silent video (it would be refused).
    """
    if not contents.videos:
        return Addition()
    salt = {} if data.get("cache_salt") else {"cache_salt": _find_salt(data, body)}
    kwargs = data.get("mm_processor_kwargs")
    if isinstance(kwargs, dict) and _FLAG in kwargs:
        return Addition(salt if contents.flagged else {}, "as asked")
    if contents.images:
        return Addition(sound="left out: there is a picture beside the video")
    if contents.sounds:
        return Addition(sound="left out: there is a sound beside the video")
    if takes_kwargs is False:
        return Addition(sound="left out: the server takes no mm_processor_kwargs")
    found = [_has_sound(url, body) for url in contents.videos]
    if not all(one is not False for one in found):
        return Addition(sound="none" if not any(found) else "left out: one video has none")
    own = kwargs if isinstance(kwargs, dict) else {}
    keys = {"mm_processor_kwargs": {**own, _FLAG: True}, **salt}
    return Addition(keys, "added")


def _find_salt(data: dict[str, Any], body: RequestBody) -> str:
    """From the content of all media: long ones by the digest of the body, others by themselves."""
    parts = [part for part in _parts(data) if part.get("type") != "text"]
    whole = json.dumps([body.digest, parts], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()[:32]


def _has_sound(url: str, body: RequestBody) -> bool | None:
    """None where only the server can tell."""
    if not url.startswith("data:"):
        return None
    with tempfile.TemporaryDirectory(prefix="spark-recipe-gateway-") as folder:
        target = Path(folder) / "video"
        if not body.save_media(url, target):
            return False
        try:
            return probe(target).has_sound
        except BadMedia:
            return False  # the server says what is wrong with it


def _parts(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    messages = data.get("messages")
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict):
                yield part
