"""How many frames of a video fit in a prompt, before it is sent and after a server refused it.

Fewer frames cost gestures and slides, never sound: of the sound every second is in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor

from spark_vllm_docker.launcher.server_view import ServerView
from spark_vllm_docker.media.content import Media
from spark_vllm_docker.media.refusals import read_limits
from spark_vllm_docker.plan.video import (
    PART_S,
    Video,
    VideoSettings,
    count_frames,
    count_video,
    longest_video,
    settings_for,
)

SECONDS_PER_FRAME = 10.0
"""With fewer frames than one in so many seconds a video is cut instead."""
FRAMES_PER_S = 2.0
_MANY = 1 << 30
SPARE = 0.94
"""Of what a refusal says would fit: labels and sound do not shrink with the frames."""
PART_SLACK = 1.05


@dataclass(frozen=True, slots=True)
class FramePlan:
    """What is asked of the server: `frames` as (fps, number), None for its own. `cut_s` is the
    longest part that fits where the video must be cut, else 0. `tokens` are those of the prompt, 0
    where they cannot be computed. `tried` are frames and prompts that were too long.
    """

    frames: tuple[float, int] | None = None
    cut_s: float = 0.0
    tokens: int = 0
    note: str = ""
    tried: tuple[tuple[int, int], ...] = ()


def plan_frames(
    view: ServerView, videos: Sequence[Media], sound: bool, text_tokens: int, max_tokens: int
) -> FramePlan:
    """Before anything is sent; without a formula for the model only the length is looked at."""
    longest = max((video.duration_s for video in videos), default=0.0)
    if not view.counts_video or not view.max_model_len:
        return FramePlan(cut_s=PART_S if longest > PART_S * PART_SLACK else 0.0)
    room = max(0, view.max_model_len - max_tokens - text_tokens)
    kinds = [Video(v.duration_s, v.aspect, sound and v.has_sound) for v in videos]
    tokens = sum(count_video(kind, view.video).prompt for kind in kinds)
    if longest > PART_S * PART_SLACK:
        return FramePlan(cut_s=min(PART_S, _longest(view, kinds[0], room)), tokens=tokens)
    if tokens <= room or not videos:
        return FramePlan(tokens=tokens)
    share = room // len(kinds)
    found = [settings_for(kind, view.video.pruning, share) for kind in kinds]
    fewest = min((one.num_frames if one else 0) for one in found)
    if view.takes_kwargs is False or fewest < max(1.0, longest / SECONDS_PER_FRAME):
        return FramePlan(cut_s=_longest(view, kinds[0], room), tokens=tokens)
    fps = min(one.fps for one in found if one)
    settings = VideoSettings(fps, fewest, view.video.pruning)
    after = sum(count_video(kind, settings).prompt for kind in kinds)
    note = _say(fewest, longest, f"{tokens:,} tokens do not fit in {room:,}, {after:,} do")
    return FramePlan((fps, fewest), 0.0, after, note)


def shrink_frames(
    view: ServerView, before: FramePlan, videos: Sequence[Media], words: str
) -> FramePlan:
    """After a refusal that tells how long the prompt was and how long it may be."""
    longest = max((video.duration_s for video in videos), default=0.0)
    limits = read_limits(words)
    # How many frames a server takes by itself is not known: 32, or two in a second (from 0.32).
    # Too many is mended by the next refusal, too few is not; but with sound each refusal may leave
    # that in a cache of vLLM 0.32.0 as sent, and what is asked then fails (seen on a real server).
    by_itself = count_frames(longest, view.video)
    if not view.counts_video and not any(one.has_sound for one in videos):
        by_itself = max(by_itself, floor(longest * FRAMES_PER_S))
    used = before.frames[1] if before.frames else by_itself
    there, allowed = limits or (2, 1)
    share = min(0.9, SPARE * allowed / max(1, there))
    tried = (*before.tried, (used, there)) if before.frames and limits else before.tried
    fewer = min(floor(used * share), _solve(tried, SPARE * allowed))
    if view.takes_kwargs is False or fewer < max(1.0, longest / SECONDS_PER_FRAME):
        return FramePlan(cut_s=max(1.0, longest * share))
    fps = max(0.01, round(min(2.0, 1.01 * fewer / longest), 3)) if longest else 1.0
    told = f"{there:,} tokens do not fit in {allowed:,}" if limits else "the prompt is too long"
    return FramePlan((fps, fewer), note=_say(fewer, longest, told), tried=tried)


def _solve(tried: Sequence[tuple[int, int]], allowed: float) -> int:
    """The frames with which a prompt is as long as it may be, from two that were too long: sound
    and text take the same in both.
    """
    if len(tried) < 2 or tried[-1][0] == tried[-2][0]:
        return _MANY
    (more, longer), (fewer, shorter) = tried[-2:]
    each = (longer - shorter) / (more - fewer)
    return floor((allowed - (shorter - each * fewer)) / each) if each > 0 else 0


def _longest(view: ServerView, video: Video, room: int) -> float:
    return max(1.0, min(float(PART_S), longest_video(video, view.video, room)))


def _say(frames: int, duration_s: float, why: str) -> str:
    each = duration_s / frames
    return (
        f"{frames} frames, one in {each:.1f} s: {why}. Gestures and slides may be missed, "
        "sound is not"
    )
