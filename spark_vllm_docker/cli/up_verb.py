"""`spark-recipe up`."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import (
    PassThrough,
    RecipeChoice,
    engine_option,
    json_option,
    recipe_options,
)
from spark_vllm_docker.errors import EngineError
from spark_vllm_docker.events import Found, Note
from spark_vllm_docker.findings import Severity

if TYPE_CHECKING:
    from spark_vllm_docker.engine.protocol import Engine
    from spark_vllm_docker.findings import Finding
    from spark_vllm_docker.launcher.start import UpRequest
    from spark_vllm_docker.render.deployment import Deployment


@click.command("up", cls=PassThrough)
@recipe_options
@engine_option
@click.option("-d", "--detach", is_flag=True, help="Return when the server is ready.")
@click.option("--no-wait", is_flag=True, help="Return when the container has started.")
@click.option("--replace", is_flag=True, help="Stop what runs under the name with another spec.")
@click.option("--keep", is_flag=True, help="Leave the container when interrupted while it loads.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1),
    help="Give up after so many seconds; a pull or build is not cut off.",
)
@click.option("--force", is_flag=True, help="Start although the plan says that it will not work.")
@click.option("--fix", is_flag=True, help="Apply the plan's flags that mend what can be mended.")
@click.option("--logs", "show_log", is_flag=True, help="Show the server's log while it loads.")
@click.option("--dry-run", is_flag=True, help="Print what would run, and run nothing.")
@json_option
def command(
    choice: RecipeChoice,
    engine: str | None,
    detach: bool,
    no_wait: bool,
    replace: bool,
    keep: bool,
    timeout_s: float | None,
    force: bool,
    fix: bool,
    show_log: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start a recipe, watch it to ready, prove it.

    Ready means: /health is 200, the model is listed, and it has answered. Then the log follows;
    Ctrl-C leaves the server running. Ctrl-C before ready removes the container.
    """
    began = time.monotonic()
    # A closed terminal or a service manager's stop is an interrupt too: nothing may be left behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    in_container = engine != "process"
    options = {"wait": not no_wait, "detach": detach, "replace": replace, "keep": keep}
    if dry_run:
        read = _read_recipe(choice, in_container=in_container, force=force, fix=fix)
        _refuse_errors(read, force=force)
        _write_findings(read)
        from spark_vllm_docker.render.secrets import mask_deployment

        request = _build_request(read, options | {"wait": False}, timeout_s)
        masked = mask_deployment(read.deployment, read.secrets)
        _show_dry_run(dataclasses.replace(request, deployment=masked), as_json=as_json)
        return

    from spark_vllm_docker.cli.engines import open_engine
    from spark_vllm_docker.cli.two_processes import make_while

    opened = []

    def load_engine() -> None:
        # All that is needed between here and the start: this process has the time now.
        from spark_vllm_docker.cli import screens  # noqa: F401

        # Nor may an interrupt meet an import later: inside one it would be no interrupt any more.
        from spark_vllm_docker.launcher import start, targets, up, watched  # noqa: F401
        from spark_vllm_docker.ui import plain  # noqa: F401

        opened.append(open_engine(engine))
        opened[0].check()

    def read_recipe() -> _Read:
        return _read_recipe(choice, in_container=in_container, force=force, fix=fix)

    try:
        read = make_while(read_recipe, load_engine)
    except EngineError:
        _refuse_errors(read_recipe(), force=force)  # a fault of the recipe is told first
        raise
    from spark_vllm_docker.launcher.neighbours import judge_free_memory

    judged = judge_free_memory(read.findings, opened[0], read.deployment.spec.name)
    read = dataclasses.replace(read, findings=judged)
    _refuse_errors(read, force=force)
    _run(
        _build_request(read, options, timeout_s),
        opened[0],
        began,
        read,
        as_json=as_json,
        show_log=show_log,
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """What is needed of a recipe to start it."""

    deployment: Deployment
    build: Path | None
    ready_timeout_s: float | None
    secrets: frozenset[str]
    findings: tuple[Finding, ...]
    fixed: tuple[tuple[str, str], ...]
    hint: str = ""


def _read_recipe(choice: RecipeChoice, *, in_container: bool, force: bool, fix: bool) -> _Read:
    """Read, render and plan.

    Raises:
        InvalidRecipe: the plan has errors that no look at the engine can mend.
    """
    from spark_vllm_docker.cli.planning import find_all, make_plan
    from spark_vllm_docker.errors import InvalidRecipe

    try:
        chosen = choice.load(os.environ)
    except InvalidRecipe as error:
        from spark_vllm_docker.cli.checking import find_the_rest
        from spark_vllm_docker.recipe.lookup import find_recipe

        file = find_recipe(choice.recipe)
        raise InvalidRecipe(find_the_rest(file, error.findings, choice.hardware or "")) from None
    recipe = chosen.recipe
    build = recipe.folder_of(("build",)) / recipe.keys.build if recipe.keys.build else None
    deployment = chosen.build(os.environ, in_container=in_container)
    plan = make_plan(chosen, deployment.command, os.environ)
    fixed = plan.fixes if fix else ()
    if fixed:
        words = tuple(word for flag in fixed for word in flag)
        chosen = dataclasses.replace(
            chosen, choice=dataclasses.replace(choice, extra=(*choice.extra, *words))
        )
        deployment = chosen.build(os.environ, in_container=in_container)
        plan = make_plan(chosen, deployment.command, os.environ)
    findings = tuple(find_all(chosen, plan))
    secrets = chosen.find_secrets(deployment, os.environ)
    hint = "up --fix applies the flags that mend it" if plan.fixes else ""
    timeout = recipe.keys.ready_timeout_s
    read = _Read(deployment, build, timeout, secrets, findings, fixed, hint)
    from spark_vllm_docker.launcher.neighbours import NOT_FREE

    if any(f.severity is Severity.ERROR and f.code != NOT_FREE for f in findings):
        _refuse_errors(read, force=force)
    return read


def _refuse_errors(read: _Read, *, force: bool) -> None:
    """Raise `InvalidRecipe` where the findings have an error that is not overridden."""
    if not force and any(finding.severity is Severity.ERROR for finding in read.findings):
        from spark_vllm_docker.errors import InvalidRecipe

        raise InvalidRecipe(read.findings, hint=read.hint)


def _worth_saying(read: _Read) -> list[Finding]:
    return [finding for finding in read.findings if finding.severity is not Severity.NOTE]


def _write_findings(read: _Read) -> None:
    from spark_vllm_docker.ui.words import say_finding

    for finding in _worth_saying(read):
        click.echo(say_finding(finding), err=True)
    for flag, value in read.fixed:
        click.echo(f"fixed: {flag} {value}", err=True)


def _build_request(read: _Read, options: dict[str, bool], timeout_s: float | None) -> UpRequest:
    from spark_vllm_docker.launcher.images import find_image_source
    from spark_vllm_docker.launcher.start import UpRequest
    from spark_vllm_docker.recipe.serve import parse_serve
    from spark_vllm_docker.render.spec import API_KEY_VARIABLE

    deployment = read.deployment
    environ: Mapping[str, str] = os.environ
    new_key = ""
    serve = parse_serve(deployment.command)
    if API_KEY_VARIABLE in deployment.spec.env_from_host and not (serve and serve.api_key):
        import secrets

        new_key = "" if environ.get(API_KEY_VARIABLE) else f"sk-{secrets.token_urlsafe(24)}"
        environ = {**environ, API_KEY_VARIABLE: new_key} if new_key else environ
    return UpRequest(
        deployment=deployment,
        image=find_image_source(deployment.spec.image, read.build),
        environ=environ,
        total_s=timeout_s or read.ready_timeout_s,
        new_api_key=new_key,
        **options,
    )


def _run(
    request: UpRequest,
    engine: Engine,
    began: float,
    read: _Read,
    *,
    as_json: bool,
    show_log: bool,
) -> None:
    from spark_vllm_docker.cli.screens import masked, masked_errors, open_screen, write_json
    from spark_vllm_docker.health.phases import PhaseClock
    from spark_vllm_docker.launcher.cleaning import Cleaning
    from spark_vllm_docker.launcher.start import Launch, find_new_key, start_deployment
    from spark_vllm_docker.launcher.targets import describe_result

    hidden = read.secrets | ({request.new_api_key} if request.new_api_key else set())
    with (
        masked_errors(hidden),
        open_screen("up", as_json=as_json, show_log=show_log) as screen,
    ):
        emit = masked(screen, hidden)
        for finding in _worth_saying(read):
            emit(Found(finding))
        for flag, value in read.fixed:
            emit(Note(f"fixed: {flag} {value}"))
        clock = PhaseClock(emit, began, "pull" if engine.uses_images else "create")
        launch = Launch(engine, request, emit, clock)
        name = request.deployment.spec.name
        with Cleaning(launch.engine, name, emit, keep=request.keep) as cleaning:
            deployed = start_deployment(launch, cleaning)
            if request.wait:
                from spark_vllm_docker.launcher.up import follow_deployment

                follow_deployment(launch, cleaning, deployed, _open_probe)
            elif key := find_new_key(request, deployed):
                screen(Note(f"  api key   {key}   (shown once)"))
            cleaning.release()
    if as_json:
        phases = {phase: round(seconds, 3) for phase, seconds in clock.durations()}
        write_json(
            "up",
            event="result",
            ok=True,
            exit_code=0,
            ready=request.wait,
            elapsed_s=round(clock.elapsed_s, 3),
            phases=phases,
            **describe_result(deployed),
        )
    elif not sys.stdout.isatty():
        click.echo(f"{deployed.endpoint}/v1")


def _open_probe(endpoint: str, api_key: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Loads the HTTP client, in the watcher's thread, when the container runs already."""
    from spark_vllm_docker.health.probe import Probe

    return Probe(endpoint, api_key)


def _show_dry_run(request: UpRequest, *, as_json: bool) -> None:
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.engine.recorder import RecorderEngine
    from spark_vllm_docker.health.phases import PhaseClock
    from spark_vllm_docker.launcher.cleaning import Cleaning
    from spark_vllm_docker.launcher.start import Launch, start_deployment
    from spark_vllm_docker.render.docker_run import render_docker_run

    engine = RecorderEngine()
    clock = PhaseClock(lambda _: None, time.monotonic())
    name = request.deployment.spec.name
    with Cleaning(engine, name, lambda _: None, keep=False) as cleaning:
        start_deployment(Launch(engine, request, lambda _: None, clock), cleaning)
    lines = [
        render_docker_run(request.deployment.spec) for verb, _ in engine.asked if verb == "create"
    ]
    if as_json:
        write_json(
            "up",
            event="result",
            ok=True,
            exit_code=0,
            dry_run=True,
            docker_run=lines,
            endpoint=request.deployment.endpoint,
            spec=request.deployment.spec.digest(),
        )
    else:
        for line in lines:
            click.echo(line)
