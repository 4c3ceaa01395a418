"""Times of parts become times of the whole video; answers become documents."""

from __future__ import annotations

import pytest

from spark_vllm_docker.media.cutting import Part
from spark_vllm_docker.media.notes import (
    Chapter,
    Cue,
    move_times,
    read_chapter,
    read_cues,
    say_time,
    write_markdown,
    write_subtitles,
)

PART = Part(2, start=600.0, end=1200.0, from_s=598.0)


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("[0:02] a", "[10:00] a"),
        ("- [1:05] a [9:59]", "- [11:03] a [19:57]"),
        ("[00:00:05] a", "[10:03] a"),
        ("[11:00] counts from the start", "[11:00] counts from the start"),
        ("[59:00] nonsense", "[20:00] nonsense"),
        ("no time [x:yy] [1:99]", "no time [x:yy] [1:99]"),
        ("(0:05) a", "[10:03] a"),
        ("[0:07-0:09] a", "[10:05-10:07] a"),
        ("- 0:06 a\n0:08: b", "- [10:04] a\n[10:06]: b"),
        ("at 0:06 in the text", "at 0:06 in the text"),
        ("[12s] a [75.5 s]", "[10:10] a [11:13]"),
        ("- [3s-5s] b [65 seconds]", "- [10:01-10:03] b [11:03]"),
        ("(12s) a (5s)", "[10:10] a (5s)"),
        ("[4000s] nonsense, lasting (5s)", "[20:00] nonsense, lasting (5s)"),
    ],
)
def test_times_are_moved(text: str, moved: str) -> None:
    assert move_times(text, PART) == moved


def test_a_chapter_has_the_title_that_the_model_gave() -> None:
    chapter = read_chapter(PART, "Sure!\n# The second act #\n[0:10] Somebody sings.\n")
    assert (chapter.title, chapter.text) == ("The second act", "Sure!\n[10:08] Somebody sings.")
    assert read_chapter(PART, "").text == ""


def test_a_transcript_becomes_cues() -> None:
    cues = read_cues(PART, "# Title\n[0:01] overlap\n[0:10] Hello there.\nIt goes on.\n[0:12] End.")
    assert cues == [
        Cue(608.0, 610.0, "Hello there. It goes on."),
        Cue(610.0, 611.0, "End."),
    ]


def test_subtitles_of_both_kinds() -> None:
    cues = [Cue(3661.5, 3662.25, "b --> c"), Cue(0, 1, "a")]
    assert write_subtitles(cues, vtt=False) == (
        "1\n00:00:00,000 --> 00:00:01,000\na\n\n2\n01:01:01,500 --> 01:01:02,250\nb → c\n"
    )
    assert write_subtitles(cues, vtt=True).startswith(
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na\n"
    )


def test_the_document_tells_of_parts_that_failed() -> None:
    chapters = [
        Chapter(Part(1, 0, 600, 0), "One", "- [0:01] x"),
        Chapter(PART, "", "", "no answer"),
    ]
    text = write_markdown("talk", 1200, "All of it.", chapters)
    assert text.startswith("# talk\n\nLength 20:00, in 2 parts.\n\n## Summary\n\nAll of it.\n")
    assert "## 0:00-10:00 One\n\n- [0:01] x\n" in text
    assert "## 10:00-20:00\n\n*This part failed: no answer*" in text


@pytest.mark.parametrize(("seconds", "said"), [(0, "0:00"), (75.9, "1:15"), (3675, "1:01:15")])
def test_times_are_said(seconds: float, said: str) -> None:
    assert say_time(seconds) == said
