"""One question about some files, asked in the way that the server understands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from spark_vllm_docker.errors import BadMedia, RequestRefused
from spark_vllm_docker.launcher.frames import FramePlan, plan_frames, shrink_frames
from spark_vllm_docker.launcher.server_view import ServerView
from spark_vllm_docker.media.chat import ChatServer, Hear, Reply
from spark_vllm_docker.media.content import Media
from spark_vllm_docker.media.refusals import NO_KWARGS, OUT_OF_CACHE, TOO_LONG
from spark_vllm_docker.media.request import Attachment, Body, Question, find_salt
from spark_vllm_docker.plan.video import Video, VideoSettings, count_video

Say = Callable[[str], None]
MOST_TRIES = 6
_PARTS = {"image": "image_url", "audio": "audio_url", "video": "video_url"}
HEARD, DROPPED, UNKNOWN, SILENT = "heard", "dropped", "unknown", "no sound"


class TooLong(BadMedia):
    """A video that must be cut; `part_s` is the longest part that fits."""

    def __init__(self, message: str, part_s: float) -> None:
        super().__init__(message, hint="spark-recipe watch cuts it and joins the notes")
        self.part_s = part_s


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked. `strict` spends a second request on whether a sound was taken in, where
    nothing cheaper tells.
    """

    text: str
    media: tuple[Media, ...] = ()
    system: str = ""
    max_tokens: int = 2048
    use_sound: bool = True
    reasoning: bool = True
    strict: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def videos(self) -> tuple[Media, ...]:
        """The videos among the files."""
        return tuple(one for one in self.media if one.kind == "video")

    @property
    def text_tokens(self) -> int:
        """About how many tokens the text takes."""
        return len(self.text) // 3

    @property
    def has_sound(self) -> bool:
        """Whether the sound of a video is to be sent."""
        return self.use_sound and any(video.has_sound for video in self.videos)

    @property
    def sounds(self) -> int:
        """How many sounds the prompt must hold: files of sound, and the videos' own."""
        own = sum(one.kind == "audio" for one in self.media)
        return own + self.use_sound * sum(video.has_sound for video in self.videos)


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer. `sound` is one of heard, dropped, unknown, no sound; `expected_tokens` those of
    the formula, or 0.
    """

    reply: Reply
    sound: str
    expected_tokens: int
    notes: tuple[str, ...]


def ask(server: ChatServer, view: ServerView, asking: Asking, hear: Hear, say: Say) -> Asked:
    """Ask, with fewer frames or with the sound beside the video where the server wants it so.

    Raises:
        TooLong: the video must be cut.
        RequestRefused: the server refuses it for good.
    """
    notes: list[str] = []

    def tell(note: str) -> None:
        if note and note not in notes:
            notes.append(note)
            say(note)

    plan = plan_question(view, asking)
    beside = must_be_beside(view, asking)
    for _ in range(MOST_TRIES):
        if plan.cut_s:
            raise TooLong("the video does not fit in one request", plan.cut_s)
        tell(plan.note)
        question = build_question(view, asking, plan, beside=beside)
        try:
            heard = _look(server, view, asking, question)
            reply = server.stream(Body(question), hear)
        except RequestRefused as refused:
            if refused.kind == TOO_LONG and asking.videos:
                plan = shrink_frames(view, plan, asking.videos, refused.words)
                continue
            if refused.kind == OUT_OF_CACHE and asking.has_sound and not beside:
                # The sound is in the processor's cache, with other frames (recorded, 0.20.0).
                beside = True
                continue
            if refused.kind == NO_KWARGS and (not beside or plan.frames):
                view = replace(view, takes_kwargs=False)
                beside, plan = True, replace(plan, frames=None, note="")
                tell(f"{refused.message}: the sound is sent beside the video")
                continue
            raise
        if asking.sounds and heard == UNKNOWN:
            heard = _judge(server, view, asking, question, reply)
        return Asked(reply, heard if asking.sounds else SILENT, plan.tokens, tuple(notes))
    longest = max((video.duration_s for video in asking.videos), default=2.0)
    raise TooLong("the video does not fit in one request", max(1.0, longest / 2))


def plan_question(view: ServerView, asking: Asking) -> FramePlan:
    """How many frames are asked for, before anything is sent."""
    sizes = (asking.text_tokens, asking.max_tokens)
    return plan_frames(view, asking.videos, asking.has_sound, *sizes)


def build_question(view: ServerView, asking: Asking, plan: FramePlan, *, beside: bool) -> Question:
    """The request. With `beside` the sound of a video is sent as a file of its own: always right,
    but for the size of the request.
    """
    attachments: list[Attachment] = []
    for one in asking.media:
        if one.kind not in _PARTS:
            continue
        url = view.find_local_url(one.path)
        attachments.append(Attachment(_PARTS[one.kind], one.mime, one.path, one.size, url))
        if one.kind == "video" and beside and asking.has_sound and one.has_sound:
            mime = one.mime.replace("video/", "audio/")
            attachments.append(Attachment("audio_url", mime, one.path, one.size, url))
    extra = dict(asking.extra)
    if not asking.reasoning:
        extra.setdefault("chat_template_kwargs", {"enable_thinking": False})
    return Question(
        model=view.model,
        text=asking.text,
        attachments=tuple(attachments),
        system=asking.system,
        max_tokens=asking.max_tokens,
        with_sound_flag=asking.has_sound and not beside,
        frames=plan.frames,
        cache_salt=find_salt(attachments) if asking.has_sound else "",
        extra=extra,
    )


def must_be_beside(view: ServerView, asking: Asking) -> bool:
    """The flag is for all videos of a request: a silent one among them is refused, and so is a
    sound beside them; a picture has killed the engine (Qwen2.5-Omni on vLLM 0.20.0, recorded);
    and from 0.32 a server may not take it at all.
    """
    if not asking.has_sound:
        return False
    mixed = any(not video.has_sound for video in asking.videos)
    others = any(one.kind in ("image", "audio") for one in asking.media)
    return mixed or others or view.takes_kwargs is False


def _look(server: ChatServer, view: ServerView, asking: Asking, question: Question) -> str:
    """Whether sound is in the prompt, as the server renders it; nothing is generated."""
    if not asking.sounds or view.renders is False:
        return UNKNOWN
    places = server.render(Body(question, stream=False))
    if places is None:
        return UNKNOWN
    return HEARD if len(places.get("audio", ())) >= asking.sounds else DROPPED


def _judge(
    server: ChatServer, view: ServerView, asking: Asking, question: Question, reply: Reply
) -> str:
    """By the length of the prompt: against the formula, or against the same request without."""
    if not reply.prompt_tokens:
        return UNKNOWN
    if view.counts_video and len(asking.videos) == len(asking.media):
        settings = view.video
        if question.frames:
            settings = VideoSettings(*question.frames, view.video.pruning)
        kinds = [Video(v.duration_s, v.aspect, v.has_sound) for v in asking.videos]
        silent = [replace(kind, sound=False) for kind in kinds]
        loud, quiet = (_total(some, settings) + asking.text_tokens for some in (kinds, silent))
        return HEARD if reply.prompt_tokens > (loud + quiet) / 2 else DROPPED
    if not asking.strict:
        return UNKNOWN
    without = replace(
        question,
        with_sound_flag=False,
        attachments=tuple(a for a in question.attachments if a.part != "audio_url"),
        max_tokens=1,
        cache_salt="",
    )
    plain = server.stream(Body(without), hear_nothing)
    if not plain.prompt_tokens:
        return UNKNOWN
    return HEARD if reply.prompt_tokens > plain.prompt_tokens else DROPPED


def hear_nothing(kind: str, text: str) -> None:
    """The answer is of no interest."""


def _total(videos: Sequence[Video], settings: VideoSettings) -> int:
    return sum(count_video(video, settings).prompt for video in videos)
