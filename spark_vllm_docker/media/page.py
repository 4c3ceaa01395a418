"""The notes of a video as one page that needs nothing else: pictures are inside it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from spark_vllm_docker.errors import BadMedia
from spark_vllm_docker.media.content import Media
from spark_vllm_docker.media.ffmpeg import as_address, run_ffmpeg
from spark_vllm_docker.media.notes import Chapter, say_span, say_time

_FOLDER = Path(__file__).parent / "data"
_WIDTH = 320


@dataclass(frozen=True, slots=True)
class _Shown:
    span: str
    title: str
    lines: list[str]
    failed: str
    picture: str


def write_page(
    video: Media, name: str, summary: str, chapters: Sequence[Chapter], folder: Path
) -> str:
    """HTML with a picture for each chapter; `folder` is for the pictures on their way."""
    environment = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True)
    shown = [
        _Shown(
            say_span(chapter.part),
            chapter.title,
            [re.sub(r"^[-*] ", "", line) for line in chapter.text.splitlines() if line.strip()],
            chapter.failed,
            _picture(video, chapter, folder),
        )
        for chapter in chapters
    ]
    return environment.get_template("notes.html.j2").render(
        name=name, length=say_time(video.duration_s), summary=summary.strip(), chapters=shown
    )


def _picture(video: Media, chapter: Chapter, folder: Path) -> str:
    """A data URL of a picture a little behind the chapter's start; empty where there is none."""
    target = folder / f"chapter-{chapter.part.number}.jpg"
    at = chapter.part.start + min(2.0, (chapter.part.end - chapter.part.start) / 2)
    try:
        run_ffmpeg(
            *("-ss", f"{at:.2f}", "-i", as_address(video.path), "-frames:v", "1", "-q:v", "5"),
            *("-vf", f"scale={_WIDTH}:-2", as_address(target)),
        )
        return f"data:image/jpeg;base64,{b64encode(target.read_bytes()).decode()}"
    except (BadMedia, OSError):
        return ""
