"""Prompt tokens of videos are those that were measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.plan.video import (
    BadVideo,
    Video,
    VideoSettings,
    count_video,
    longest_video,
    parse_video,
    settings_for,
    tubelet_tokens,
)

ARTICLE = VideoSettings(2.0, 512)


@pytest.mark.parametrize(
    ("seconds", "frames", "video", "labels", "audio", "measured"),
    [(180, 360, 45_360, 6_148, 2_252, 53_842), (19, 38, 4_788, 578, 240, 5_637)],
)
def test_the_two_measured_prompts(
    seconds: int, frames: int, video: int, labels: int, audio: int, measured: int
) -> None:
    cost = count_video(Video(seconds), ARTICLE)
    assert (cost.frames, cost.video, cost.audio) == (frames, video, audio)
    assert cost.labels == pytest.approx(labels, abs=4)
    assert cost.prompt == pytest.approx(measured, rel=0.006)


@pytest.mark.parametrize(
    ("aspect", "tokens"), [(16 / 9, 252), (9 / 16, 252), (4 / 3, 252), (1.0, 256)]
)
def test_tokens_of_a_tubelet(aspect: float, tokens: int) -> None:
    assert tubelet_tokens(aspect) == tokens


def test_beyond_the_cap_only_sound_and_digits_grow() -> None:
    ten = count_video(Video(600), ARTICLE)
    assert ten.frames == 512
    assert ten.prompt == pytest.approx(81_200, rel=0.01)
    assert count_video(Video(180), VideoSettings(2.0, 512, 0.5)).prompt == pytest.approx(
        31_100, rel=0.01
    )


def test_defaults_of_the_server_are_32_frames() -> None:
    assert count_video(Video(60), VideoSettings()).frames == 32


@pytest.mark.parametrize(
    ("text", "seconds", "aspect"),
    [
        ("600s@1080p", 600, 16 / 9),
        ("10m", 600, 16 / 9),
        ("90", 90, 16 / 9),
        ("1h5m@9:16", 3900, 9 / 16),
        ("2.5s@640x480", 2.5, 4 / 3),
        ("10min@1:1", 600, 1),
    ],
)
def test_videos_are_written_shortly(text: str, seconds: float, aspect: float) -> None:
    video = parse_video(text)
    assert video.duration_s == seconds
    assert video.aspect == pytest.approx(aspect)
    assert video.sound
    assert not parse_video(f"{text} silent").sound


@pytest.mark.parametrize(
    "text", ["", "@1080p", "0s", "-5s", "nan", "10x", "5s@0x0", "5s@x", "5s@1:9999", "9" * 30]
)
def test_what_is_no_video(text: str) -> None:
    with pytest.raises(BadVideo):
        parse_video(text)


@given(seconds=st.integers(1, 7200), fps=st.sampled_from([0.5, 1.0, 2.0]), cap=st.integers(1, 2048))
def test_a_longer_video_never_costs_less(seconds: int, fps: float, cap: int) -> None:
    settings = VideoSettings(fps, cap)
    shorter = count_video(Video(seconds), settings).prompt
    assert count_video(Video(seconds + 1), settings).prompt >= shorter - 1


@given(seconds=st.integers(2, 3600), budget=st.integers(500, 200_000))
def test_settings_for_a_video_fit_and_one_frame_more_does_not(seconds: int, budget: int) -> None:
    video = Video(seconds)
    found = settings_for(video, 0.0, budget)
    if found is None:
        assert count_video(video, VideoSettings(2.0, 1)).prompt > budget
        return
    assert count_video(video, found).prompt <= budget
    assert found.fps <= 2.0


def test_the_longest_video_of_a_server() -> None:
    seconds = longest_video(Video(1), ARTICLE, 65_536 - 1024)
    cost = count_video(Video(seconds), ARTICLE)
    assert cost.prompt <= 65_536 - 1024 < count_video(Video(seconds + 1), ARTICLE).prompt
