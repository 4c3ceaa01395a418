"""What is asked about each part of a long video, and how the answers are put together again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from spark_vllm_docker.media.cutting import Part

Mode = Literal["notes", "transcript", "prompt"]
_CLOCK = r"(?:(\d{1,2}):)?(\d{1,3}):([0-5]\d)(?:[.,]\d+)?"
_TIME = re.compile(rf"[\[(]{_CLOCK}(?:\s*(?:-|\u2013|\u2014|to)\s*{_CLOCK})?[\])]")
"""`[m:ss]`, which is asked for, and what models write instead: `(m:ss)`, `[m:ss-m:ss]`."""
_SECOND = r"(\d{1,5})(?:\.\d+)?\s?s(?:ec|econds?)?"
_SECONDS = re.compile(rf"\[{_SECOND}(?:\s*(?:-|\u2013|\u2014|to)\s*{_SECOND})?\]")
_SECONDS_FIRST = re.compile(rf"^([\s*-]*)\({_SECOND}(?:\s*(?:-|\u2013|\u2014|to)\s*{_SECOND})?\)")
_BARE = re.compile(rf"^([\s*-]*){_CLOCK}(?=[\s:,-])")
_LINE = re.compile(rf"^\W*{_TIME.pattern}\W*(.+)$")
_HEADING = re.compile(r"^#+\s*(.+?)\s*#*$")
SLACK_S = 5.0
"""A time that a model writes may lie so far behind the end of its part."""
WORDS_PER_S = 2.5
"""Of speech: how long a line of a transcript stands that has no other end."""


@dataclass(frozen=True, slots=True)
class Cue:
    """Something said or seen, at seconds of the whole video."""

    start: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """The answer to one part, its times those of the whole video. `failed` says why there is
    none.
    """

    part: Part
    title: str
    text: str
    failed: str = ""


def ask_for(mode: Mode, part: Part, total_s: float, prompt: str, language: str) -> str:
    """The question about one part."""
    where = f"This is part of a video of {say_time(total_s)}, from {say_time(part.start)} on."
    tongue = f" Write in {language}." if language else ""
    times = "with its time in this part as [m:ss]"
    if mode == "prompt":
        return f"{where} Write times in your answer as [m:ss] of this part.\n{prompt}{tongue}"
    if mode == "transcript":
        return (
            f"{where} Write down word for word what is said in it, one sentence on a line, each "
            f"line beginning {times}. Write nothing else.{tongue}"
        )
    return (
        f"{where} Take notes of what is shown and said. First one line '# ' with a short title of "
        "this part, then the key points in order, one on a line, each beginning "
        f"{times}.{tongue}"
    )


def ask_to_join(chapters: Sequence[Chapter], language: str, question: str = "") -> str:
    """The question that makes one summary of the notes of all parts, or one answer of theirs."""
    notes = "\n\n".join(
        f"## {say_time(c.part.start)} {c.title}\n{c.text}" for c in chapters if not c.failed
    )
    tongue = f" Write in {language}." if language else ""
    if question:
        return (
            "These are answers to one question about consecutive parts of one video, with times of "
            f"the whole. Answer the question for the whole video: {question}{tongue}\n\n{notes}"
        )
    return (
        "These are notes of consecutive parts of one video, with times of the whole video. Write a "
        "summary of the video in at most ten sentences. Neighbouring parts overlap by seconds: say "
        f"nothing twice, and write no times that are not in the notes.{tongue}\n\n{notes}"
    )


def read_chapter(part: Part, answer: str) -> Chapter:
    """An answer with its times moved to those of the whole video, and its title."""
    lines = [line.rstrip() for line in answer.strip().splitlines()]
    title = ""
    for number, line in enumerate(lines[:4]):
        if found := _HEADING.match(line.strip()):
            title = found[1]
            del lines[number]
            break
    text = "\n".join(lines).strip()
    return Chapter(part, title, move_times(text, part))


def move_times(text: str, part: Part) -> str:
    """`[m:ss]` of a part → of the whole video; a time behind the part's end becomes its end."""

    def move(found: re.Match[str]) -> str:
        first = say_time(_place(found.groups()[:3], part))
        if found[5] is None:
            return f"[{first}]"
        return f"[{first}-{say_time(_place(found.groups()[3:6], part))}]"

    return "\n".join(_TIME.sub(move, _in_brackets(line)) for line in text.split("\n"))


def _in_brackets(line: str) -> str:
    """A line that begins with a bare time, with that in brackets; `[75s]` as `[1:15]`."""
    line = _SECONDS.sub(_as_clock, line)
    line = _SECONDS_FIRST.sub(lambda found: found[1] + _as_clock(found), line)
    return _BARE.sub(lambda found: f"{found[1]}[{found[0][len(found[1]) :]}]", line)


def _as_clock(found: re.Match[str]) -> str:
    first, last = (say_time(float(group)) if group else "" for group in found.groups()[-2:])
    return f"[{first}-{last}]" if last else f"[{first}]"


def read_cues(part: Part, answer: str) -> list[Cue]:
    """The lines of a transcript with the times of the whole video; a line without a time belongs
    to the one before it.
    """
    starts: list[tuple[float, str]] = []
    for raw in answer.strip().splitlines():
        line = _in_brackets(raw.strip())
        found = _LINE.match(line)
        if found:
            starts.append((_place(found.groups()[:3], part), found[7].strip()))
        elif line and starts:
            starts[-1] = (starts[-1][0], f"{starts[-1][1]} {line}")
        elif line and not _HEADING.match(line):
            starts.append((part.start, line))
    cues = []
    for number, (start, text) in enumerate(starts):
        spoken = max(1.0, len(text.split()) / WORDS_PER_S)
        following = starts[number + 1][0] if number + 1 < len(starts) else part.end
        end = min(start + spoken, following) if following > start else start + spoken
        if start >= part.start - 0.5 or part.number == 1:  # the overlap belongs to the part before
            cues.append(Cue(start, max(end, start + 0.2), text))
    return cues


def write_subtitles(cues: Sequence[Cue], *, vtt: bool) -> str:
    """SRT, or WebVTT."""
    point = "." if vtt else ","
    rows = ["WEBVTT\n"] if vtt else []
    for number, cue in enumerate(sorted(cues, key=lambda cue: cue.start), start=1):
        times = f"{_stamp(cue.start, point)} --> {_stamp(cue.end, point)}"
        text = cue.text.replace("-->", "→")
        rows.append(f"{times}\n{text}\n" if vtt else f"{number}\n{times}\n{text}\n")
    return "\n".join(rows)


def write_lines(cues: Sequence[Cue]) -> str:
    """`[m:ss] words`, a line and an empty one for each: good to read as text and as Markdown."""
    ordered = sorted(cues, key=lambda cue: cue.start)
    return "\n".join(f"[{say_time(cue.start)}] {cue.text}\n" for cue in ordered)


def write_markdown(name: str, duration_s: float, summary: str, chapters: Sequence[Chapter]) -> str:
    """The document: a summary and a chapter for each part."""
    rows = [f"# {name}", "", f"Length {say_time(duration_s)}, in {len(chapters)} parts.", ""]
    if summary:
        rows += ["## Summary", "", summary.strip(), ""]
    for chapter in chapters:
        rows += [f"## {say_span(chapter.part)} {chapter.title}".rstrip(), ""]
        rows += [f"*This part failed: {chapter.failed}*" if chapter.failed else chapter.text, ""]
    return "\n".join(rows)


def say_span(part: Part) -> str:
    """`0:00-10:00`."""
    return f"{say_time(part.start)}-{say_time(part.end)}"


def say_time(seconds: float) -> str:
    """`75` → `1:15`, `3675` → `1:01:15`."""
    whole = max(0, int(seconds))
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _place(clock: Sequence[str | None], part: Part) -> float:
    hours, minutes, whole = (int(text or 0) for text in clock)
    seconds = 3600 * hours + 60 * minutes + whole
    if seconds > part.length + SLACK_S:
        # Some models count from the start of the video after all.
        return float(seconds) if part.start <= seconds <= part.end + SLACK_S else part.end
    return part.from_s + seconds


def _stamp(seconds: float, point: str) -> str:
    thousandths = round(seconds * 1000)
    hours, rest = divmod(thousandths, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    whole, part = divmod(rest, 1000)
    return f"{hours:02}:{minutes:02}:{whole:02}{point}{part:03}"
