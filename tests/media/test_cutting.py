"""Where a video is cut, and what the parts are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.errors import BadMedia
from spark_vllm_docker.media.cutting import (
    OVERLAP_S,
    Part,
    Silence,
    choose_cuts,
    cut_part,
    find_key_frames,
    find_silences,
    plan_parts,
)
from spark_vllm_docker.media.probing import probe


def test_a_cut_is_in_the_longest_silence_near_the_even_place() -> None:
    silences = [Silence(50, 50.4), Silence(57, 58.5), Silence(90, 99)]
    assert choose_cuts(120, 65, silences, []) == [57.75]


def test_without_silences_it_is_at_the_nearest_change_of_scene() -> None:
    assert choose_cuts(120, 65, [], [3, 56, 61, 100]) == [61]
    assert choose_cuts(120, 65, [], []) == [60]


@given(
    st.floats(1, 20_000),
    st.floats(10, 700),
    st.lists(st.tuples(st.floats(0, 20_000), st.floats(0.3, 5)), max_size=60),
)
def test_no_part_is_too_long_and_none_is_empty(
    duration: float, longest: float, pauses: list[tuple[float, float]]
) -> None:
    silences = [Silence(start, start + length) for start, length in pauses]
    cuts = [0.0, *choose_cuts(duration, longest, silences, []), duration]
    lengths = [after - before for before, after in pairwise(cuts)]
    assert all(0 < length <= longest + 1e-6 for length in lengths)


def test_parts_begin_at_key_frames_overlap_and_hold_picture_and_sound(
    clips: Path, tmp_path: Path
) -> None:
    video = probe(clips / "long.mp4")
    keys = find_key_frames(video.path)
    assert len(keys) == 30
    parts = plan_parts(video, 25)
    assert len(parts) >= 3
    pauses = find_silences(video.path)
    for before, part in pairwise(parts):
        assert part.start == before.end
        assert any(pause.start <= part.start <= pause.end for pause in pauses)
        assert part.start - OVERLAP_S - 2.1 <= part.from_s <= part.start - OVERLAP_S
        assert part.from_s in keys
    for part in parts:
        assert part.length <= 25
        target = tmp_path / f"{part.number}.mp4"
        cut_part(video, part, target)
        found = probe(target)
        assert found.has_sound
        assert found.duration_s == pytest.approx(part.length, abs=0.3)


def test_a_video_that_fits_is_one_part(clips: Path) -> None:
    video = probe(clips / "long.mp4")
    assert plan_parts(video, 600) == [Part(1, 0.0, video.duration_s, 0.0)]


def test_a_silent_video_is_cut_too(clips: Path) -> None:
    parts = plan_parts(probe(clips / "silent.mp4"), 3)
    assert parts[-1].end == pytest.approx(4, abs=0.1)


def test_a_folder_that_is_not_there_is_said(clips: Path, tmp_path: Path) -> None:
    video = probe(clips / "loud.mp4")
    with pytest.raises(BadMedia, match="ffmpeg failed"):
        cut_part(video, Part(1, 0, 2, 0), tmp_path / "nowhere/x.mp4")
