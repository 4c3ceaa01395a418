"""`spark-recipe watch`."""

from __future__ import annotations

import signal
import tempfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.media_inputs import is_url
from spark_vllm_docker.cli.options import engine_option, json_option
from spark_vllm_docker.cli.which_server import server_options

if TYPE_CHECKING:
    from spark_vllm_docker.cli.which_server import MeantServer
    from spark_vllm_docker.launcher.part_answers import Watching
    from spark_vllm_docker.launcher.server_view import ServerView
    from spark_vllm_docker.launcher.watching import Watched
    from spark_vllm_docker.media.content import Media
    from spark_vllm_docker.media.notes import Mode

AUTO = "auto"
LEAST_SEGMENT_S = 5


@click.command("watch")
@click.argument("video", metavar="VIDEO|URL")
@click.option("--recipe", "name", metavar="NAME", help="A deployment; else the only one that runs.")
@server_options
@click.option("--notes", is_flag=True, help="Chapters and key points; this is the default.")
@click.option("--transcript", is_flag=True, help="What is said: .srt, .vtt, .txt or .md.")
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
    notes: bool,
    transcript: bool,
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
    started again. Exit code 1 when a part failed, or the notes could not be joined.
    """
    from spark_vllm_docker.cli.media_inputs import require_media
    from spark_vllm_docker.cli.watch_output import (
        choose_target,
        is_folder,
        require_writable,
        write_html,
        write_out,
    )
    from spark_vllm_docker.cli.which_server import open_server

    require_media()
    from spark_vllm_docker.launcher.part_answers import Answers, Watching
    from spark_vllm_docker.launcher.watching import collect, watch

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left in /tmp
    mode = _choose_mode(notes, transcript, prompt)
    text = Path(prompt).read_text(encoding="utf-8", errors="replace") if prompt else ""
    target = choose_target(out, video, mode)
    parts = target.with_name(f"{target.name}.parts")
    goes_on = force or is_folder(parts)
    require_writable("--out", target, video, force=goes_on)
    if html is not None:
        require_writable("--html", Path(html), video, force=goes_on)
    say = Say()
    with tempfile.TemporaryDirectory(prefix="spark-recipe-watch-") as folder:
        media = _get(video, Path(folder))
        if mode == "transcript" and not (media.has_sound and not no_sound):
            say("note: without sound the transcript is of what is shown")
        with (
            _open_summarizer(summarizer) as joining,
            open_server(name, url, api_key, model, engine) as meant,
        ):
            watching = Watching(
                media,
                mode,
                text,
                language,
                _part_length(segment, meant.view, media, max_tokens, not no_sound),
                segment,
                max_tokens,
                use_sound=not no_sound,
            )
            answers = Answers(parts, watching, meant.view.model, anew=force)
            try:
                watched = watch(meant.chat, meant.view, watching, answers, say)
            except BaseException:
                if any(answers.find(part) for part in answers.parts):
                    done = collect(watching, answers, {})
                    write_out(target, watching, done, "")
                    say(f"what is done is in {target}; the same command goes on with the rest")
                raise
            summary = ""
            if mode != "transcript" and not watched.failed:
                summary = _summarise(joining or meant, watched, watching, say)
            write_out(target, watching, watched, summary)
            if html:
                write_html(Path(html), watching, watched, summary, Path(folder))
    is_joined = bool(summary) or mode == "transcript" or len(watched.chapters) < 2
    ok = is_joined and not watched.failed
    if ok:
        answers.remove()
    _warn(watched, say)
    if watched.failed:
        meant.require_running()
    if as_json:
        _write_json(watched, target, summary, ok=ok)
    else:
        click.echo(str(target))
    return int(not ok)


def _choose_mode(notes: bool, transcript: bool, prompt: str | None) -> Mode:
    from spark_vllm_docker.errors import UsageError

    given = {"--notes": notes, "--transcript": transcript, "--prompt": prompt is not None}
    named = [option for option, is_given in given.items() if is_given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are {len(named)} questions; give one")
    if prompt is not None:
        return "prompt"
    return "transcript" if transcript else "notes"


def _warn(watched: Watched, say: Say) -> None:
    if watched.failed:
        say(f"{len(watched.failed)} parts failed; the same command asks for them again")
    if watched.cut:
        say(f"warning: {watched.cut} answers are cut off: a larger --max-tokens")
    if watched.unheard:
        say(f"warning: the sound of {watched.unheard} parts did not enter the prompt")


def _write_json(watched: Watched, target: Path, summary: str, *, ok: bool) -> None:
    from spark_vllm_docker.cli.screens import write_json

    parts = [
        {"start_s": c.part.start, "end_s": c.part.end, "title": c.title, "text": c.text}
        | ({"failed": c.failed} if c.failed else {})
        for c in watched.chapters
    ]
    found = {"out": str(target), "summary": summary, "cut": watched.cut, "parts": parts}
    write_json("watch", ok=ok, **found)


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


def _part_length(
    segment: str, view: ServerView, video: Media, max_tokens: int, sound: bool
) -> float:
    from spark_vllm_docker.errors import UsageError
    from spark_vllm_docker.plan.video import PART_S, BadVideo, Video, longest_video, parse_video

    if segment != AUTO:
        try:
            asked = parse_video(segment).duration_s
        except BadVideo as error:
            raise UsageError(f"--segment {segment}: auto, or a time such as 600s or 5m") from error
        if asked < LEAST_SEGMENT_S:
            raise UsageError(f"--segment {segment}: a part has {LEAST_SEGMENT_S} s at least")
        return asked
    if not view.counts_video or not view.max_model_len:
        return PART_S
    kind = Video(video.duration_s, video.aspect, sound and video.has_sound)
    room = view.max_model_len - max_tokens - 200
    return max(10.0, min(float(PART_S), longest_video(kind, view.video, room)))


def _open_summarizer(
    summarizer: str | None,
) -> AbstractContextManager[MeantServer | None]:
    """Before the work, so that a wrong name is told before it."""
    from contextlib import nullcontext

    from spark_vllm_docker.cli.which_server import open_server

    if summarizer is None:
        return nullcontext()
    name, url = (None, summarizer) if is_url(summarizer) else (summarizer, None)
    return open_server(name, url, None, None, None)


def _summarise(joining: MeantServer, watched: Watched, watching: Watching, say: Say) -> str:
    """The joined notes; without them the parts' own notes are all there is, and that is said."""
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.launcher.watching import join

    asked = (watching.language, watching.max_tokens)
    try:
        return join(joining.chat, joining.view, watched, *asked, say, question=watching.prompt)
    except SparkRecipeError as error:
        say(f"warning: the notes are not joined: {error.message}")
        return ""


class Say:
    """Writes one line at a time to stderr, from any thread."""

    def __init__(self) -> None:
        import threading

        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        with self._lock:
            click.echo(text, err=True)
