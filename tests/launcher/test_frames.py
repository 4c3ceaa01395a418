"""How many frames are asked for: by the formula before, by the refusal after."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.launcher.frames import FramePlan, plan_frames, shrink_frames
from spark_vllm_docker.launcher.server_view import ServerView
from spark_vllm_docker.media.content import Media
from spark_vllm_docker.plan.video import Video, VideoSettings, count_video

NEMOTRON = ServerView("n", 131_072, VideoSettings(2.0, 512), counts_video=True)
OTHER = ServerView("o", 8192)


def video(seconds: float) -> Media:
    return Media(Path("v.mp4"), "video", "video/mp4", 1, seconds, 1920, 1080, has_sound=True)


def test_what_fits_is_left_to_the_server() -> None:
    plan = plan_frames(NEMOTRON, (video(180),), True, 20, 2048)
    assert (plan.frames, plan.cut_s) == (None, 0.0)
    assert plan.tokens == count_video(Video(180.0), NEMOTRON.video).prompt
    assert abs(plan.tokens / 53_842 - 1) < 0.01  # measured


def test_what_does_not_gets_fewer_frames_and_that_is_said() -> None:
    small = ServerView("n", 32_768, VideoSettings(2.0, 512), counts_video=True)
    plan = plan_frames(small, (video(180),), True, 20, 2048)
    assert plan.frames is not None
    fps, frames = plan.frames
    assert count_video(Video(180.0), VideoSettings(fps, frames)).prompt <= 32_768 - 2048 - 20
    assert "sound is not" in plan.note


def test_what_is_longer_than_ten_minutes_is_cut() -> None:
    assert plan_frames(NEMOTRON, (video(3600),), True, 20, 2048).cut_s == 600
    assert plan_frames(OTHER, (video(3600),), True, 20, 2048).cut_s == 600


def test_what_would_need_too_few_frames_is_cut() -> None:
    tiny = ServerView("n", 6000, VideoSettings(2.0, 512), counts_video=True)
    plan = plan_frames(tiny, (video(300),), True, 20, 2048)
    assert plan.frames is None
    assert 1 <= plan.cut_s < 60


@given(
    st.floats(1, 600),
    st.integers(2, 200_000),
    st.integers(1, 100_000),
    st.integers(1, 512) | st.none(),
)
def test_a_refusal_always_leads_to_less(
    seconds: float, there: int, allowed: int, frames: int | None
) -> None:
    words = f"Input length ({there}) exceeds model's maximum context length ({allowed})."
    before = FramePlan((1.0, frames) if frames else None)
    plan = shrink_frames(OTHER, before, (video(seconds),), words)
    if plan.frames is None:
        assert 0 < plan.cut_s <= max(1.0, 0.9 * seconds)
    else:
        assert plan.frames[1] < (frames or max(33, int(2 * seconds) + 1))
        assert plan.frames[0] > 0


def test_two_refusals_tell_what_sound_and_text_take() -> None:
    """10,000 tokens of sound never fit: the video is cut at the third refusal, not asked for ever."""
    plan, tries = FramePlan(), 0
    while not plan.cut_s:
        frames = plan.frames[1] if plan.frames else 800
        words = (
            f"Input length ({10_000 + 70 * frames}) exceeds model's maximum context length (8192)."
        )
        plan = shrink_frames(OTHER, plan, (video(400.0),), words)
        tries += 1
    assert tries <= 3
    plan, tries = FramePlan(), 0
    while True:
        frames = plan.frames[1] if plan.frames else 120
        tokens = 4_000 + 70 * frames
        if tokens <= 8192:
            break
        words = f"Input length ({tokens}) exceeds model's maximum context length (8192)."
        plan = shrink_frames(OTHER, plan, (replace(video(60.0), has_sound=False),), words)
        tries += 1
    assert tries <= 3
    assert tokens > 0.85 * 8192
