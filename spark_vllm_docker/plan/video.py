"""What a video costs in prompt tokens (Nemotron Nano Omni), and what a server's settings allow.

Source: vLLM 0.20.0 `transformers_utils/processors/nano_nemotron_vl.py` (151-186, 932-965,
1149-1207), `multimodal/evs.py` (16-35), `models/parakeet.py` (253-269),
`multimodal/media/video.py` (42-67). Two measured prompts, of 180 s and of 19 s, are within 0.6 %.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import ceil, floor, sqrt

FRAMES_PER_TUBELET = 2
TARGET_PATCHES = 1024
LABEL_TOKENS = 24
CLIP_S = 30
TEMPLATE_TOKENS = 40
"""A chat template and a question; 82 and 31 in the two measured prompts."""
SOURCE_FPS = 30.0
PART_S = 600
"""Longer videos are cut into parts and the parts' notes are joined."""
_NAMED = {
    "480p": 16 / 9,
    "720p": 16 / 9,
    "1080p": 16 / 9,
    "1440p": 16 / 9,
    "2160p": 16 / 9,
    "4k": 16 / 9,
}
_DURATION = re.compile(
    r"(?:(?P<h>\d{1,9})h)?(?:(?P<m>\d{1,9})m(?:in)?)?(?:(?P<s>\d{1,9}(?:\.\d{1,9})?)s?)?"
)


class BadVideo(ValueError):
    """A duration or a size that no video has."""


@dataclass(frozen=True, slots=True)
class Video:
    """A video: seconds, width by height, whether it has sound, and the frames in a second."""

    duration_s: float
    aspect: float = 16 / 9
    sound: bool = True
    source_fps: float = SOURCE_FPS


@dataclass(frozen=True, slots=True)
class VideoSettings:
    """What a server does to videos: `fps` is a ceiling and `num_frames` a cap (-1: none),
    `pruning` the share of video tokens that is dropped.
    """

    fps: float = -1.0
    num_frames: int = 32
    pruning: float = 0.0


@dataclass(frozen=True, slots=True)
class VideoCost:
    """Prompt tokens of one video, and where they go."""

    frames: int
    tubelets: int
    video: int
    labels: int
    audio: int

    @property
    def prompt(self) -> int:
        """All of them, with a chat template and a question."""
        return self.video + self.labels + self.audio + TEMPLATE_TOKENS


def parse_video(text: str) -> Video:
    """`600s`, `10m`, `1h5m`, then `@1080p`, `@1920x1080` or `@9:16`, then `silent` if it is.

    Raises:
        BadVideo: it says nothing of the kind.
    """
    words = text.strip().lower().removesuffix(" silent")
    length, _, size = words.partition("@")
    found = _DURATION.fullmatch(length)
    if found is None or not length or words.endswith("@"):
        raise BadVideo(f"'{text}' is no video: such as 600s@1080p, 10m, 1h5m@9:16")
    seconds = 3600 * int(found["h"] or 0) + 60 * int(found["m"] or 0) + float(found["s"] or 0)
    if not 0 < seconds <= 86_400 * 7:
        raise BadVideo(f"'{text}': a video lasts more than 0 seconds, and less than a week")
    return Video(seconds, _parse_aspect(size, text), not text.lower().endswith(" silent"))


def count_video(video: Video, settings: VideoSettings) -> VideoCost:
    """The prompt tokens of a video under a server's settings."""
    frames = count_frames(video.duration_s, settings, video.source_fps)
    tubelets = ceil(frames / FRAMES_PER_TUBELET)
    each = tubelet_tokens(video.aspect)
    tokens = tubelets * each
    if settings.pruning > 0:
        tokens = max(each, int(tokens * (1 - settings.pruning)))
    labels = _count_labels(frames, tubelets, video.duration_s)
    return VideoCost(frames, tubelets, tokens, labels, _count_audio(video))


def tubelet_tokens(aspect: float) -> int:
    """Tokens of two frames: the tile keeps the aspect, whatever the resolution of the source is."""
    high, wide = sqrt(TARGET_PATCHES / aspect), sqrt(TARGET_PATCHES * aspect)
    rows, columns = max(2, round(high)), max(2, round(wide))
    rows, columns = _make_even(rows, columns)
    return (rows // 2) * (columns // 2)


def longest_video(video: Video, settings: VideoSettings, prompt_tokens: int) -> float:
    """Seconds of such a video that fit in a prompt; 0 when not even one second does."""
    low, high = 0, 86_400
    while low < high:
        middle = (low + high + 1) // 2
        fits = count_video(replace(video, duration_s=middle), settings).prompt <= prompt_tokens
        low, high = (middle, high) if fits else (low, middle - 1)
    return float(low)


def settings_for(video: Video, pruning: float, prompt_tokens: int) -> VideoSettings | None:
    """The most frames that fit for a video, at most two in a second; None when sound alone is too
    much.

    Fewer frames cost gestures and slides, never sound.
    """
    best = None
    low, high = 1, max(1, floor(2 * video.duration_s))
    while low <= high:
        frames = (low + high) // 2
        fps = min(2.0, max(0.01, ceil(100 * frames / video.duration_s) / 100))
        settings = VideoSettings(fps, frames, pruning)
        if count_video(video, settings).prompt <= prompt_tokens:
            best, low = settings, frames + 1
        else:
            high = frames - 1
    return best


def _parse_aspect(size: str, text: str) -> float:
    if not size:
        return 16 / 9
    if size in _NAMED:
        return _NAMED[size]
    found = re.fullmatch(r"(\d{1,5})[x:](\d{1,5})", size)
    if found is None or not int(found[1]) or not int(found[2]):
        raise BadVideo(f"'{text}': '{size}' is no size: such as 1080p, 1920x1080, 9:16")
    aspect = int(found[1]) / int(found[2])
    if not 1 / 64 <= aspect <= 64:
        raise BadVideo(f"'{text}': no video is {size}")
    return aspect


def count_frames(duration_s: float, settings: VideoSettings, source_fps: float = SOURCE_FPS) -> int:
    """`min(total, cap, duration x fps)`, at least 1, evenly spaced over the whole video."""
    frames = max(1, floor(duration_s * source_fps))
    if settings.num_frames > 0:
        frames = min(frames, settings.num_frames)
    if settings.fps > 0:
        frames = min(frames, floor(duration_s * settings.fps))
    return max(1, frames)


def _make_even(rows: int, columns: int) -> tuple[int, int]:
    """Each side even: up while the tile stays within the target, else down."""
    for side in (0, 1):
        sides = [rows, columns]
        if sides[side] % 2:
            up = list(sides)
            up[side] += 1
            fits = up[0] * up[1] <= TARGET_PATCHES
            sides[side] += 1 if fits else -1
        rows, columns = sides
    return max(2, rows), max(2, columns)


def _count_labels(frames: int, tubelets: int, duration_s: float) -> int:
    """Tokens of `Frame i sampled at s.ss seconds and frame i+1 …`: 24, and one for each digit."""
    step = duration_s / frames
    digits = sum(len(str(number)) for number in range(1, frames + 1))
    digits += sum(len(str(int(number * step))) for number in range(frames))
    return LABEL_TOKENS * tubelets + digits - 1


def _count_audio(video: Video) -> int:
    """12.5 tokens in a second, by clips of 30 s, and two marks around them."""
    if not video.sound:
        return 0
    clips, rest = divmod(video.duration_s, CLIP_S)
    return int(clips) * ceil(CLIP_S * 100 / 8) + ceil(rest * 100 / 8) + 2
