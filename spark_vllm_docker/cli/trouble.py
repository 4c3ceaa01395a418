"""Errors → stderr and exit code. With `--json` also as a document on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

import click

from spark_vllm_docker.cli.group import VERBS
from spark_vllm_docker.errors import InvalidRecipe, ServerFailed, SparkRecipeError
from spark_vllm_docker.ui.words import say_finding

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
_WITH_VLLM_FLAGS = ("up", "render", "show")


def show_trouble(error: SparkRecipeError, arguments: list[str]) -> int:
    """Findings or the message, then the cause, then the fix: the fix stands last."""
    findings = error.findings if isinstance(error, InvalidRecipe) else ()
    for finding in findings:
        sys.stderr.write(say_finding(finding) + "\n")
    if not findings:
        sys.stderr.write(f"error: {error.message}\n")
    if error.cause:
        sys.stderr.write(f"cause: {error.cause}\n")
    if error.hint:
        sys.stderr.write(f"fix: {error.hint}\n")
    remedy = error.remedy if isinstance(error, ServerFailed) else None
    if _wants_json(arguments):
        _write_json(
            arguments,
            {
                "kind": type(error).__name__,
                "message": error.message,
                "cause": error.cause or None,
                "fix": error.hint or None,
                "rule": remedy.rule if remedy else None,
                "findings": [finding.to_json() for finding in findings],
            },
            error.exit_code,
        )
    return error.exit_code


def show_usage(error: click.ClickException, arguments: list[str]) -> int:
    """A fault of the command line."""
    sys.stderr.write(f"error: {error.format_message()}\n")
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and arguments[0] in _WITH_VLLM_FLAGS:
        sys.stderr.write(f"fix: vLLM's own flags go after --, as in: -- {error.option_name} …\n")
    elif context is not None:
        sys.stderr.write(f"fix: {context.command_path} --help\n")
    if _wants_json(arguments):
        data = {"kind": "UsageError", "message": error.format_message()}
        _write_json(arguments, data, EXIT_USAGE)
    return EXIT_USAGE


def show_interrupt(arguments: list[str]) -> int:
    """Ctrl-C, or a signal that counts as one."""
    sys.stderr.write("interrupted\n")
    if _wants_json(arguments):
        _write_json(arguments, {"kind": "Interrupted", "message": "interrupted"}, EXIT_INTERRUPTED)
    return EXIT_INTERRUPTED


def _wants_json(arguments: list[str]) -> bool:
    ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in ours


def _write_json(arguments: list[str], error: Mapping[str, object], exit_code: int) -> None:
    verb = next((word for word in arguments if word in VERBS), "spark-recipe")
    document = {
        "schema": f"spark-recipe/{verb}@1",
        "event": "result",
        "ok": False,
        "exit_code": exit_code,
        "error": error,
    }
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
