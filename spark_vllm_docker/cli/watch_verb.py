"""`spark-recipe watch`."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.media_inputs import is_url, server_options
from spark_vllm_docker.cli.options import engine_option, json_option

if TYPE_CHECKING:
    from spark_vllm_docker.launcher.part_answers import Watching
    from spark_vllm_docker.launcher.server_view import ServerView
    from spark_vllm_docker.launcher.watching import Watched
    from spark_vllm_docker.media.chat import ChatServer
    from spark_vllm_docker.media.content import Media
    from spark_vllm_docker.media.notes import Mode

AUTO = "auto"


@click.command("watch")
@click.argument("video", metavar="VIDEO|URL")
@click.option("--recipe", "name", metavar="NAME", help="A deployment; else the only one that runs.")
@server_options
@click.option("--notes", "mode", flag_value="notes", default=True, help="Chapters and key points.")
@click.option("--transcript", "mode", flag_value="transcript", help="What is said, as subtitles.")
@click.option(
    "--prompt",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Ask this of every part.",
)
@click.option("--segment", default=AUTO, show_default=True, metavar="auto|600s", help="A part.")
@click.option("--language", default="", help="Of the notes, such as French.")
@click.option("--summarizer", metavar="NAME|URL", help="Another model joins the notes.")
@click.option("--out", type=click.Path(dir_okay=False), help="Without it, beside the video.")
@click.option("--html", type=click.Path(dir_okay=False), help="A page with pictures too.")
@click.option("--max-tokens", type=click.IntRange(min=16), default=2048, show_default=True)
@click.option("--no-sound", is_flag=True, help="Leave the sound out.")
@click.option("--force", is_flag=True, help="Overwrite an output that is there already.")
@engine_option
@json_option
def command(
    video: str,
    name: str | None,
    url: str | None,
    api_key: str | None,
    model: str | None,
    mode: Mode,
    prompt: str | None,
    segment: str,
    language: str,
    summarizer: str | None,
    out: str | None,
    html: str | None,
    max_tokens: int,
    no_sound: bool,
    force: bool,
    engine: str | None,
    as_json: bool,
) -> int:
    """Notes, a transcript or an answer from a video of any length.

    It is cut into parts that fit, in silences; each part is asked about on its own, and the answers
    are joined, with times of the whole video. A run that breaks goes on where it stopped when it is
    started again. Exit code 1 when a part failed.
    """
    from spark_vllm_docker.cli.media_inputs import open_server, require_media

    require_media()
    from spark_vllm_docker.errors import UsageError
    from spark_vllm_docker.launcher.part_answers import Answers, Watching
    from spark_vllm_docker.launcher.watching import collect, watch

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left in /tmp
    if prompt and mode == "transcript":
        raise UsageError("--prompt and --transcript are two questions; give one")
    text = Path(prompt).read_text(encoding="utf-8", errors="replace") if prompt else ""
    mode = "prompt" if prompt else mode
    say = Say()
    with tempfile.TemporaryDirectory(prefix="spark-recipe-watch-") as folder:
        media = _get(video, Path(folder))
        target = Path(out) if out else _name_output(video, mode)
        for path in (target, *([Path(html)] if html else [])):
            if path.resolve() == media.path.resolve():
                raise UsageError(f"{path} is the video itself")
        parts = target.with_name(f"{target.name}.parts")
        _require_writable("--out", target, force=force or parts.is_dir())
        if html:
            _require_writable("--html", Path(html), force=force or parts.is_dir())
        server, view = open_server(name, url, api_key, model, engine)
        watching = Watching(
            media,
            mode,
            text,
            language,
            _part_length(segment, view, media, max_tokens, not no_sound),
            segment,
            max_tokens,
            use_sound=not no_sound,
        )
        joining = _open_summarizer(summarizer) or (server, view)
        answers = Answers(parts, watching, view.model)
        try:
            watched = watch(server, view, watching, answers, say)
        except BaseException:
            if any(answers.find(part) for part in answers.parts):
                done = collect(watching, answers, {})
                _write(target, watching, done, "")
                say(f"what is done is in {target}; the same command goes on with the rest")
            raise
        summary = ""
        if mode != "transcript" and not watched.failed:
            summary = _summarise(joining, watched, watching, say)
        _write(target, watching, watched, summary)
        if html:
            _write_page(Path(html), watching, watched, summary, Path(folder))
        server.close()
    is_joined = bool(summary) or mode == "transcript" or len(watched.chapters) < 2
    if not watched.failed and is_joined:
        answers.remove()
    _warn(watched, say)
    if as_json:
        _write_json(watched, target, summary)
    else:
        click.echo(str(target))
    return int(bool(watched.failed))


def _warn(watched: Watched, say: Say) -> None:
    if watched.failed:
        say(f"{len(watched.failed)} parts failed; the same command asks for them again")
    if watched.cut:
        say(f"warning: the answers to {watched.cut} parts are cut off: a larger --max-tokens")
    if watched.unheard:
        say(f"warning: the sound of {watched.unheard} parts did not enter the prompt")


def _write_json(watched: Watched, target: Path, summary: str) -> None:
    from spark_vllm_docker.cli.screens import write_json

    parts = [
        {"start_s": c.part.start, "end_s": c.part.end, "title": c.title, "text": c.text}
        | ({"failed": c.failed} if c.failed else {})
        for c in watched.chapters
    ]
    found = {"out": str(target), "summary": summary, "cut": watched.cut, "parts": parts}
    write_json("watch", ok=not watched.failed, **found)


def _get(video: str, folder: Path) -> Media:
    from spark_vllm_docker.cli.media_inputs import look_at
    from spark_vllm_docker.errors import BadMedia

    media = look_at(video, folder / "video")
    if media.kind != "video":
        hint = f'spark-recipe ask --audio {video} "…"' if media.kind == "audio" else ""
        raise BadMedia(f"{video} is no video", hint=hint)
    if media.duration_s <= 0:
        raise BadMedia(f"{video} has no length")
    return media


_NAMES = {"notes": ".notes.md", "prompt": ".answer.md", "transcript": ".srt"}


def _name_output(video: str, mode: str) -> Path:
    from urllib.parse import urlsplit

    if is_url(video):
        return Path(f"{Path(urlsplit(video).path).stem or 'video'}{_NAMES[mode]}")
    path = Path(video)
    return path.with_name(f"{path.stem}{_NAMES[mode]}")


def _require_writable(option: str, target: Path, *, force: bool) -> None:
    """Before an hour's work, not after it."""
    import os

    from spark_vllm_docker.errors import Refused

    if not target.parent.is_dir() or not os.access(target.parent, os.W_OK):
        hint = f"{option} FILE"
        raise Refused(f"{target.parent} is no folder that can be written to", hint=hint)
    if target.is_dir() or (target.exists() and not force):
        raise Refused(f"{target} is there already", hint=f"{option} FILE, or --force overwrites it")


def _part_length(
    segment: str, view: ServerView, video: Media, max_tokens: int, sound: bool
) -> float:
    from spark_vllm_docker.errors import UsageError
    from spark_vllm_docker.plan.video import PART_S, BadVideo, Video, longest_video, parse_video

    if segment != AUTO:
        try:
            return parse_video(segment).duration_s
        except BadVideo as error:
            raise UsageError(f"--segment {segment}: auto, or a time such as 600s or 5m") from error
    if not view.counts_video or not view.max_model_len:
        return PART_S
    kind = Video(video.duration_s, video.aspect, sound and video.has_sound)
    room = view.max_model_len - max_tokens - 200
    return max(10.0, min(float(PART_S), longest_video(kind, view.video, room)))


def _open_summarizer(summarizer: str | None) -> tuple[ChatServer, ServerView] | None:
    """Before the work, so that a wrong name is told before it."""
    from spark_vllm_docker.cli.media_inputs import open_server

    if summarizer is None:
        return None
    name, url = (None, summarizer) if is_url(summarizer) else (summarizer, None)
    return open_server(name, url, None, None, None)


def _summarise(
    joining: tuple[ChatServer, ServerView], watched: Watched, watching: Watching, say: Say
) -> str:
    """The joined notes; without them the parts' own notes are all there is, and that is said."""
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.launcher.watching import join

    server, view = joining
    asked = (watching.language, watching.max_tokens)
    try:
        return join(server, view, watched, *asked, say, question=watching.prompt)
    except SparkRecipeError as error:
        say(f"warning: the notes are not joined: {error.message}")
        return ""


def _write(target: Path, watching: Watching, watched: Watched, summary: str) -> None:
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.media.notes import write_markdown, write_subtitles

    if watching.mode == "transcript" and target.suffix in (".srt", ".vtt"):
        text = write_subtitles(watched.cues, vtt=target.suffix == ".vtt")
    else:
        duration = watching.video.duration_s
        text = write_markdown(target.name.partition(".")[0], duration, summary, watched.chapters)
    write_new_file(target, text, force=True)


def _write_page(
    target: Path, watching: Watching, watched: Watched, summary: str, folder: Path
) -> None:
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.media.page import write_page

    name = watching.video.path.stem
    text = write_page(watching.video, name, summary, watched.chapters, folder)
    write_new_file(target, text, force=True)


class Say:
    """Writes one line at a time to stderr, from any thread."""

    def __init__(self) -> None:
        import threading

        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            click.echo(text, err=True)
