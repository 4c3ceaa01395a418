"""Which screen a command gets, and what never reaches it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_vllm_docker.errors import SparkRecipeError
from spark_vllm_docker.events import Emit, Event, LogLines, Note, Progress, ServerReady, Tick

if TYPE_CHECKING:
    from spark_vllm_docker.ui.screen import Screen


def open_screen(verb: str, *, as_json: bool, show_log: bool) -> Screen:
    """JSON lines on stdout, or a live view on stderr when it is a terminal, or plain lines."""
    if as_json:
        from spark_vllm_docker.ui.json_lines import JsonScreen

        return JsonScreen(sys.stdout, verb, show_log=show_log)
    if sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        from rich.console import Console

        from spark_vllm_docker.ui.terminal import TerminalScreen

        return TerminalScreen(Console(stderr=True, highlight=False), show_log=show_log)
    from spark_vllm_docker.ui.plain import PlainScreen

    return PlainScreen(sys.stderr, show_log=show_log)


def masked(emit: Emit, secrets: Iterable[str]) -> Emit:
    """An `Emit` that replaces secrets in whatever came from outside."""
    from spark_vllm_docker.render.masking import mask

    hidden = tuple(secrets)
    if not hidden:
        return emit

    def emit_masked(event: Event) -> None:
        match event:
            case LogLines(lines):
                event = LogLines(tuple(mask(line, hidden) for line in lines))
            case Tick():
                event = replace(event, last_line=mask(event.last_line, hidden))
            case Progress():
                event = replace(event, detail=mask(event.detail, hidden))
            case Note(text):
                event = Note(mask(text, hidden))
            case ServerReady():
                event = replace(event, proof=mask(event.proof, hidden))
        emit(event)

    return emit_masked


@contextmanager
def masked_errors(secrets: Iterable[str]) -> Iterator[None]:
    """Errors of the block without secrets: the last line of a dead server may hold one."""
    from spark_vllm_docker.health.log_lines import clean_text
    from spark_vllm_docker.render.masking import mask

    hidden = tuple(secrets)
    try:
        yield
    except SparkRecipeError as error:
        error.message = clean_text(mask(error.message, hidden))
        error.cause = clean_text(mask(error.cause, hidden))
        error.hint = mask(error.hint, hidden)
        raise


def write_json(verb: str, **fields: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps({"schema": f"spark-recipe/{verb}@1", **fields}) + "\n")
    sys.stdout.flush()
