"""What `watch` writes: its name, whether it may be written, and its form."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from spark_vllm_docker.cli.media_inputs import is_url

if TYPE_CHECKING:
    from spark_vllm_docker.launcher.part_answers import Watching
    from spark_vllm_docker.launcher.watching import Watched

_LONGEST_STEM = 60
"""Characters, at most four bytes each, of a name that is made: no file system takes over 255."""
TRANSCRIPTS = (".srt", ".vtt", ".txt", ".md")
_NAMES = {"notes": ".notes.md", "prompt": ".answer.md", "transcript": ".srt"}


def choose_target(out: str | None, video: str, mode: str) -> Path:
    """The file of `--out`, else one beside the video, or here for a URL.

    Raises:
        UsageError: a transcript of no known form.
    """
    from urllib.parse import urlsplit

    from spark_vllm_docker.errors import UsageError

    if out is not None and not Path(out).name:
        raise UsageError(f"--out {out!r} is no name of a file")
    if out is None:
        path = Path(Path(urlsplit(video).path).name or "video") if is_url(video) else Path(video)
        return path.with_name(f"{path.stem[:_LONGEST_STEM]}{_NAMES[mode]}")
    if mode == "transcript" and Path(out).suffix not in TRANSCRIPTS:
        told = f"--out {out}: a transcript is one of {', '.join(TRANSCRIPTS)}"
        raise UsageError(f"{told}, by the end of the name")
    return Path(out)


def is_folder(path: Path) -> bool:
    """Whether it is there; one whose name no file system takes is not."""
    try:
        return path.is_dir()
    except OSError:
        return False


def require_writable(option: str, target: Path, video: str, *, force: bool) -> None:
    """Before an hour's work, not after it.

    Raises:
        UsageError, Refused: it is the video, is there already, or cannot be written.
    """
    from spark_vllm_docker.errors import Refused, UsageError, say_reason

    if not target.name:
        raise UsageError(f"{option} '{target}' is no name of a file")
    try:
        # The longest name that is made of it, for what is written at first.
        target.with_name(f"{target.name}.parts").exists()
        if not is_url(video) and target.resolve() == Path(video).resolve():
            raise UsageError(f"{option} {target} is the video itself")
        if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
            hint = f"{option} FILE"
            raise Refused(f"{target.parent} is no folder that can be written to", hint=hint)
        if target.is_dir() or (target.exists() and not force):
            hint = f"{option} FILE, or --force overwrites it"
            raise Refused(f"{target} is there already", hint=hint)
    except (OSError, ValueError) as error:
        reason = say_reason(error) if isinstance(error, OSError) else str(error)
        raise Refused(f"{option} {target}: {reason}", hint=f"{option} FILE") from error


def write_out(target: Path, watching: Watching, watched: Watched, summary: str) -> None:
    """Notes or answers as Markdown; a transcript as the name says."""
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.media.notes import write_lines, write_markdown, write_subtitles

    if watching.mode == "transcript" and target.suffix in (".srt", ".vtt"):
        text = write_subtitles(watched.cues, vtt=target.suffix == ".vtt")
    elif watching.mode == "transcript":
        text = write_lines(watched.cues)
    else:
        duration = watching.video.duration_s
        text = write_markdown(target.name.partition(".")[0], duration, summary, watched.chapters)
    write_new_file(target, text, force=True)


def write_html(
    target: Path, watching: Watching, watched: Watched, summary: str, folder: Path
) -> None:
    """A page of its own, with pictures."""
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.media.page import write_page

    name = watching.video.path.stem
    text = write_page(watching.video, name, summary, watched.chapters, folder)
    write_new_file(target, text, force=True)
