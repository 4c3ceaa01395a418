"""`spark-recipe ask`."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spark_vllm_docker.cli.options import engine_option, json_option
from spark_vllm_docker.cli.which_server import server_options

if TYPE_CHECKING:
    from spark_vllm_docker.launcher.asking import Asked, Asking
    from spark_vllm_docker.launcher.server_view import ServerView
    from spark_vllm_docker.media.chat import ChatServer, Hear

FORMS = ("json", "python", "curl")


def _files(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, multiple=True, metavar="FILE|URL", help=text)


@click.command("ask")
@click.argument("words", nargs=-1, metavar="[NAME] QUESTION")
@server_options
@_files("--image", "A picture; may be given more than once.")
@_files("--audio", "Sound, or a video whose sound alone is meant.")
@_files("--video", "A video; its sound is sent too.")
@_files("--file", "Any of these, a PDF (its pages as pictures), or a text.")
@click.option("--system", default="", help="The system message.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=2048, show_default=True)
@click.option("--no-reasoning", is_flag=True, help="Ask for none, and show none.")
@click.option("--no-sound", is_flag=True, help="Leave the sound of videos out.")
@click.option(
    "--strict",
    is_flag=True,
    help="Exit code 1 where it is not proved that all sound was heard.",
)
@click.option("--show-request", type=click.Choice(FORMS), help="Print the request; send nothing.")
@engine_option
@json_option
def command(
    words: tuple[str, ...],
    url: str | None,
    api_key: str | None,
    model: str | None,
    image: tuple[str, ...],
    audio: tuple[str, ...],
    video: tuple[str, ...],
    file: tuple[str, ...],
    system: str,
    max_tokens: int,
    no_reasoning: bool,
    no_sound: bool,
    strict: bool,
    show_request: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Ask a model about text, pictures, sound and video.

    NAME is a deployment; without it, the only one that runs. `-` as QUESTION reads it from the
    standard input. The answer is streamed to stdout; what it took is told on stderr.
    """
    from spark_vllm_docker.cli.media_inputs import gather, require_media
    from spark_vllm_docker.cli.which_server import open_server
    from spark_vllm_docker.launcher.asking import Asking

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left in /tmp
    name, text = _split(words, url)
    named = {"image": image, "audio": audio, "video": video, "file": file}
    if any(named.values()):
        require_media()
    with tempfile.TemporaryDirectory(prefix="spark-recipe-ask-") as folder:
        media, texts = gather(named, Path(folder)) if any(named.values()) else ((), "")
        asking = Asking(
            f"{texts}\n\n{text}" if texts else text,
            media,
            system,
            max_tokens,
            use_sound=not no_sound,
            reasoning=not no_reasoning,
            strict=strict,
        )
        with open_server(name, url, api_key, model, engine, words=words) as meant:
            if show_request:
                click.echo(_show(meant.chat, meant.view, asking, show_request), nl=False)
                return 0
            return _ask(meant.chat, meant.view, asking, strict=strict, as_json=as_json)


def _split(words: tuple[str, ...], url: str | None) -> tuple[str | None, str]:
    from spark_vllm_docker.errors import UsageError

    if not words or len(words) > 2 or (url and len(words) > 1):
        raise UsageError('ask takes a name, if more than one runs, and a "question" in quotes')
    text = words[-1]
    if text == "-":
        text = sys.stdin.read()
    if not text.strip():
        raise UsageError("the question is empty")
    return (words[0] if len(words) == 2 else None), text


def _show(server: ChatServer, view: ServerView, asking: Asking, form: str) -> str:
    import json

    from spark_vllm_docker.launcher.asking import build_question, must_be_beside, plan_question
    from spark_vllm_docker.media.request import Body
    from spark_vllm_docker.media.snippets import write_curl, write_python

    plan, beside = plan_question(view, asking), must_be_beside(view, asking)
    if plan.cut_s:
        _say("the video does not fit in one request: ask itself cuts it")
    elif asking.videos and not view.counts_video:
        _say("where the server says that it is too long, ask itself sends fewer frames")
    body = Body(build_question(view, asking, plan, beside=beside))
    if form == "python":
        return write_python(body.show_with_names(), server.address)
    if form == "curl":
        return write_curl(body.show_with_names(), server.address)
    return json.dumps(body.show(), indent=2, ensure_ascii=False) + "\n"


def _ask(
    server: ChatServer, view: ServerView, asking: Asking, *, strict: bool, as_json: bool
) -> int:
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.launcher.asking import DROPPED, HEARD, TooLong, ask

    hear = _listen(silent=as_json, reasoning=asking.reasoning)
    try:
        asked = ask(server, view, asking, hear, _say)
    except TooLong as error:
        if len(asking.media) != 1:
            raise
        return _ask_in_parts(server, view, asking, error.part_s, as_json=as_json)
    unheard = asked.sound == DROPPED or (strict and asking.sounds and asked.sound != HEARD)
    failed = strict and unheard
    if as_json:
        write_json("ask", ok=not failed, **_to_json(asked, view))
        return int(failed)
    click.echo()
    click.echo(_say_cost(asked), err=True)
    if asked.sound == DROPPED:
        click.echo("warning: the sound did not enter the prompt, or not all of it", err=True)
    elif unheard:
        click.echo("warning: nothing proves that the sound entered the prompt", err=True)
    return int(failed)


def _say(note: str) -> None:
    click.echo(f"note: {note}", err=True)


def _ask_in_parts(
    server: ChatServer, view: ServerView, asking: Asking, part_s: float, *, as_json: bool
) -> int:
    """The question about each part of a video, and one answer made of theirs."""
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.health.log_lines import clean_text
    from spark_vllm_docker.launcher.part_answers import Answers, Watching
    from spark_vllm_docker.launcher.watching import AUTO, join, watch
    from spark_vllm_docker.media.notes import say_span, say_time

    _say("the video does not fit in one request: it is cut, and each part is asked")
    (video,) = asking.media
    text = asking.text
    watching = Watching(
        *(video, "prompt", text, "", part_s, AUTO, asking.max_tokens),
        use_sound=asking.use_sound,
        strict=asking.strict,
    )
    with tempfile.TemporaryDirectory(prefix="spark-recipe-ask-") as folder:
        watched = watch(server, view, watching, Answers(Path(folder), watching, view.model), _say)
    whole = join(server, view, watched, "", asking.max_tokens, _say, question=text)
    failed = bool(watched.failed) or (asking.strict and watched.unheard > 0)
    if watched.unheard:
        what = "is not proved" if asking.strict else "did not enter the prompt"
        _say(f"warning: the sound of {watched.unheard} parts {what}")
    if as_json:
        parts = [
            {"start_s": c.part.start, "end_s": c.part.end, "answer": c.text or None}
            for c in watched.chapters
        ]
        write_json("ask", ok=not failed, model=view.model, answer=whole, parts=parts)
        return int(failed)
    for chapter in watched.chapters:
        click.echo(f"[{say_span(chapter.part)}] {clean_text(chapter.text or chapter.failed)}\n")
    if whole:
        click.echo(f"[0:00-{say_time(video.duration_s)}] {clean_text(whole)}")
    return int(failed)


def _listen(*, silent: bool, reasoning: bool) -> Hear:
    """Writes content to stdout, and reasoning, dimmed, where stdout is a terminal."""
    from spark_vllm_docker.health.log_lines import clean_text

    shows_reasoning = reasoning and sys.stdout.isatty()
    last = ""

    def hear(kind: str, text: str) -> None:
        nonlocal last
        if silent or (kind == "reasoning" and not shows_reasoning):
            return
        if last == "reasoning" and kind == "content":
            click.echo("\n")
        last = kind
        shown = clean_text(text)
        click.echo(click.style(shown, dim=True) if kind == "reasoning" else shown, nl=False)

    return hear


def _say_cost(asked: Asked) -> str:
    reply = asked.reply
    parts = [f"{reply.wall_s:.1f} s"]
    if reply.prompt_tokens:
        parts.append(f"prompt {reply.prompt_tokens:,} tokens")
        parts.append(f"answer {reply.answer_tokens:,} tokens")
    if reply.tokens_per_s:
        parts.append(f"{reply.tokens_per_s:.1f} tokens/s")
    parts.append(f"first token after {reply.first_s:.2f} s")
    if asked.sound == "heard":
        parts.append("sound in the prompt")
    if reply.finish == "length":
        parts.append("cut off: a larger --max-tokens gives the rest")
    return " · ".join(parts)


def _to_json(asked: Asked, view: ServerView) -> dict[str, object]:
    reply = asked.reply
    return {
        "model": view.model,
        "answer": reply.content,
        "reasoning": reply.reasoning or None,
        "finish_reason": reply.finish,
        "sound": asked.sound,
        "prompt_tokens": reply.prompt_tokens,
        "expected_prompt_tokens": asked.expected_tokens or None,
        "answer_tokens": reply.answer_tokens,
        "tokens_per_s": round(reply.tokens_per_s, 2) or None,
        "first_token_s": round(reply.first_s, 3),
        "wall_s": round(reply.wall_s, 3),
        "notes": list(asked.notes),
    }
