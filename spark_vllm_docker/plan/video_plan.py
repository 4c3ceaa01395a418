"""A recipe's videos: what one costs under its settings, what would fit, and how to cut the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from spark_vllm_docker.plan.engine_settings import read_json_flag
from spark_vllm_docker.plan.report import PlanReport
from spark_vllm_docker.plan.video import (
    PART_S,
    Video,
    VideoCost,
    VideoSettings,
    count_video,
    longest_video,
    settings_for,
)
from spark_vllm_docker.recipe.arguments import Arguments

ANSWER_TOKENS = 2048
"""Left for reasoning and answer in every prompt that is planned."""
SWEEP_S = (60, 120, 180, 300, 600, 900, 1200, 1800, 3600)


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """One video: its cost as the server is set, the settings with which it fits, or parts.

    `longest_s` is the longest such video that the server's settings allow. `better` is None where
    nothing has to change or nothing helps; `parts` is 1 where it fits in one request.
    """

    video: Video
    settings: VideoSettings
    cost: VideoCost
    prompt_limit: int
    longest_s: float
    better: VideoSettings | None
    parts: int

    @property
    def fits(self) -> bool:
        """In one request, with the server's own settings."""
        return self.cost.prompt <= self.prompt_limit


def read_video_settings(report: PlanReport) -> VideoSettings | None:
    """The settings of a recipe's server; None where the model's video tokens are not known."""
    shape = report.surroundings.shape
    if shape is None or not shape.video:
        return None
    return read_video_flags(report.arguments)


def read_video_flags(arguments: Arguments) -> VideoSettings:
    """What the flags of `vllm serve` do to videos; vLLM's defaults where they say nothing."""
    video = read_json_flag(arguments, "--media-io-kwargs").get("video")
    given = video if isinstance(video, dict) else {}
    pruning = arguments.find("--video-pruning-rate")
    rate = _number(pruning.values[0].value if pruning and pruning.values else 0.0, 0.0)
    return VideoSettings(
        fps=_number(given.get("fps", -1), -1.0),
        num_frames=int(_number(given.get("num_frames", 32), 32)),
        pruning=rate if 0 <= rate < 1 else 0.0,
    )


def plan_video(report: PlanReport, video: Video, settings: VideoSettings) -> VideoPlan:
    """What becomes of a video on this server."""
    length = report.settings.max_model_len if report.settings else 0
    shape = report.surroundings.shape
    length = length if length > 0 else (shape.max_position if shape else 0)
    limit = max(0, length - ANSWER_TOKENS)
    cost = count_video(video, settings)
    longest = longest_video(video, settings, limit)
    fits = cost.prompt <= limit and video.duration_s <= PART_S
    better = None if cost.prompt <= limit else settings_for(video, settings.pruning, limit)
    part = min(longest, PART_S)
    parts = 1 if fits or not part else ceil(video.duration_s / part)
    return VideoPlan(video, settings, cost, limit, longest, better, parts)


def sweep_videos(
    report: PlanReport, settings: VideoSettings, durations: Sequence[int] = SWEEP_S
) -> list[VideoPlan]:
    """The table of a recipe: one plan for each duration."""
    return [plan_video(report, Video(float(seconds)), settings) for seconds in durations]


def without_sound(plan: VideoPlan) -> VideoCost:
    """The cost of the same video when its sound is not sent."""
    return count_video(replace(plan.video, sound=False), plan.settings)


def say_duration(seconds: float) -> str:
    """`90` → `1:30`, `3600` → `1:00:00`."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def say_video(plan: VideoPlan) -> list[tuple[str, str]]:
    """The plan of one video as rows of text."""
    cost, settings = plan.cost, plan.settings
    pruned = f", {settings.pruning:g} of them dropped" if settings.pruning else ""
    rows = [
        (
            "video",
            (
                f"{say_duration(plan.video.duration_s)}: {cost.frames} frames, {cost.tubelets} "
                f"tubelets{pruned}"
            ),
        ),
        (
            "tokens",
            (
                f"video {cost.video:,} + labels {cost.labels:,} + sound {cost.audio:,} = "
                f"{cost.prompt:,} in the prompt, of {plan.prompt_limit:,}"
            ),
        ),
        ("longest", f"{say_duration(plan.longest_s)} with the server's settings"),
    ]
    if plan.better is not None:
        better = count_video(plan.video, plan.better)
        kwargs = f'{{"video":{{"fps":{plan.better.fps:g},"num_frames":{plan.better.num_frames}}}}}'
        rows.append(
            (
                "fits with",
                (
                    f"media_io_kwargs {kwargs}: {better.frames} frames, {better.prompt:,} "
                    "tokens; fewer frames cost gestures and slides, never sound"
                ),
            )
        )
    if plan.parts > 1:
        each = plan.video.duration_s / plan.parts
        rows.append(("or cut", f"into {plan.parts} parts of {say_duration(each)}, notes joined"))
    elif not plan.fits and plan.better is None:
        rows.append(("too long", "not even its sound fits: raise max-model-len"))
    return rows


def video_document(plan: VideoPlan) -> dict[str, object]:
    """The plan of one video as data."""
    cost = plan.cost
    return {
        "duration_s": plan.video.duration_s,
        "frames": cost.frames,
        "tubelets": cost.tubelets,
        "video_tokens": cost.video,
        "label_tokens": cost.labels,
        "audio_tokens": cost.audio,
        "prompt_tokens": cost.prompt,
        "prompt_limit": plan.prompt_limit,
        "fits": plan.fits,
        "longest_s": plan.longest_s,
        "parts": plan.parts,
        "media_io_kwargs": (
            {"video": {"fps": plan.better.fps, "num_frames": plan.better.num_frames}}
            if plan.better
            else None
        ),
    }


def _number(value: object, default: float) -> float:
    try:
        number = float(str(value))
    except ValueError:
        return default
    return number if -1 <= number < 1 << 31 else default
