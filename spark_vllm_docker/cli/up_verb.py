"""`spark-recipe up`."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import (
    PassThrough,
    RecipeChoice,
    engine_option,
    json_option,
    recipe_options,
)
from spark_vllm_docker.cli.to_start import (
    ToStart,
    build_request,
    find_hidden,
    read_to_start,
    refuse_errors,
    worth_saying,
)
from spark_vllm_docker.errors import EngineError, Refused
from spark_vllm_docker.events import Found, Note, ServerReady

MOST_REPAIRS = 2
"""After a death, before it is given up: every attempt is a whole start."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_vllm_docker.cli.repair import Change
    from spark_vllm_docker.engine.protocol import Deployed, Engine
    from spark_vllm_docker.errors import Remedy
    from spark_vllm_docker.events import Emit, Event
    from spark_vllm_docker.health.phases import PhaseClock
    from spark_vllm_docker.launcher.start import UpRequest


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
@click.option(
    "--fix",
    is_flag=True,
    help="Apply what mends it: flags of the plan, and of the rule after a death.",
)
@click.option("--write", is_flag=True, help="With --fix: put what mended it into the recipe file.")
@click.option(
    "--restart",
    "restarts",
    type=click.IntRange(0, 5),
    default=0,
    metavar="N",
    help="Start again so often when it dies while serving, if that can help.",
)
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
    write: bool,
    restarts: int,
    show_log: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start a recipe, watch it to ready, prove it.

    Ready means: /health is 200, the model is listed, and it has answered. Then the log follows;
    Ctrl-C leaves the server running. Ctrl-C before ready removes the container.
    """
    from spark_vllm_docker.errors import UsageError

    if write and not fix:
        raise UsageError("--write needs --fix")
    began = time.monotonic()
    # A closed terminal or a service manager's stop is an interrupt too: nothing may be left behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    in_container = engine != "process"
    options = {"wait": not no_wait, "detach": detach, "replace": replace, "keep": keep}
    if dry_run:
        read = read_to_start(choice, in_container=in_container, force=force, fix=fix)
        refuse_errors(read, force=force)
        _write_findings(read)
        from spark_vllm_docker.render.secrets import mask_deployment

        request = build_request(read, options | {"wait": False}, timeout_s)
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

    def read_recipe(choice: RecipeChoice = choice) -> ToStart:
        return read_to_start(choice, in_container=in_container, force=force, fix=fix)

    try:
        read = make_while(read_recipe, load_engine)
    except EngineError:
        refuse_errors(read_recipe(), force=force)  # a fault of the recipe is told first
        raise
    from spark_vllm_docker.launcher.neighbours import judge_free_memory

    judged = judge_free_memory(read.findings, opened[0], read.deployment.spec.name)
    read = dataclasses.replace(read, findings=judged)
    refuse_errors(read, force=force)

    def mend(read: ToStart, remedy: Remedy) -> _Mended | None:
        from spark_vllm_docker.cli.repair import apply_remedy

        applied = apply_remedy(
            read.choice, remedy, read.deployment.command, structured=read.structured
        )
        if applied is None:
            return None
        try:
            again = read_recipe(applied[0])
            refuse_errors(again, force=force)
        except Refused:
            return None  # what the rule says does not fit this recipe: the death itself is told
        return _Mended(again, build_request(again, options, timeout_s), applied[1])

    _run(
        build_request(read, options, timeout_s),
        opened[0],
        began,
        read,
        mend=mend if fix else None,
        write=write,
        restarts=restarts,
        as_json=as_json,
        show_log=show_log,
    )


@dataclass(frozen=True, slots=True)
class _Mended:
    """A recipe with a remedy in it, and what that changes."""

    read: ToStart
    request: UpRequest
    changes: list[Change]


def _write_findings(read: ToStart) -> None:
    from spark_vllm_docker.ui.words import say_finding

    for finding in worth_saying(read):
        click.echo(say_finding(finding), err=True)
    for text in read.fixed:
        click.echo(text, err=True)


def _run(
    request: UpRequest,
    engine: Engine,
    began: float,
    read: ToStart,
    *,
    mend: Callable[[ToStart, Remedy], _Mended | None] | None,
    write: bool,
    restarts: int,
    as_json: bool,
    show_log: bool,
) -> None:
    from spark_vllm_docker.catalog.hardware import detect_hardware, load_hardware
    from spark_vllm_docker.cli.screens import masked, masked_errors, open_screen, write_json
    from spark_vllm_docker.errors import ServerFailed
    from spark_vllm_docker.health.phases import PhaseClock
    from spark_vllm_docker.launcher.free_memory import find_free_gib
    from spark_vllm_docker.launcher.restart import RestartGuard
    from spark_vllm_docker.launcher.targets import describe_result

    hidden = find_hidden(read, request)
    with (
        masked_errors(hidden),
        open_screen("up", as_json=as_json, show_log=show_log) as screen,
    ):
        emit = masked(screen, hidden)
        for finding in worth_saying(read):
            emit(Found(finding))
        for text in read.fixed:
            emit(Note(text))
        changes: list[Change] = []
        repairs = 0
        hardware = load_hardware().get(detect_hardware()) if restarts else None
        guard = RestartGuard(restarts, partial(find_free_gib, hardware, here=True))

        def told(event: Event) -> None:
            emit(event)
            if isinstance(event, ServerReady) and write and changes:
                emit(Note(_write_changes(read, changes)))

        while True:
            clock = PhaseClock(emit, began, "pull" if engine.uses_images else "create")
            try:
                deployed = _launch(engine, request, clock, told, screen)
            except ServerFailed as error:
                mended = None
                if mend and error.remedy and not error.served and repairs < MOST_REPAIRS:
                    mended = mend(read, error.remedy)
                if mended is None:
                    if why := guard.refuse(error):
                        if guard.most:
                            emit(Note(f"not restarted: {why}"))
                        raise
                    emit(Note(f"{error.message}; restart {guard.done} of {guard.most}"))
                    continue
                repairs += 1
                read, request = mended.read, mended.request
                changes += mended.changes
                emit(Note(f"{error.message}: {error.cause}"))
                for change in mended.changes:
                    emit(Note(str(change)))
                continue
            break
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
            repairs=[change.to_json() for change in changes],
            **describe_result(deployed),
        )
    elif not sys.stdout.isatty():
        click.echo(f"{deployed.endpoint}/v1")


def _launch(
    engine: Engine, request: UpRequest, clock: PhaseClock, emit: Emit, screen: Emit
) -> Deployed:
    """Start, and unless it is not to wait, follow to ready and beyond."""
    from spark_vllm_docker.launcher.cleaning import Cleaning
    from spark_vllm_docker.launcher.start import Launch, find_new_key, start_deployment

    launch = Launch(engine, request, emit, clock)
    with Cleaning(engine, request.deployment.spec.name, emit, keep=request.keep) as cleaning:
        deployed = start_deployment(launch, cleaning)
        if request.wait:
            from spark_vllm_docker.launcher.up import follow_deployment

            follow_deployment(launch, cleaning, deployed, _open_probe)
        elif key := find_new_key(request, deployed):
            screen(Note(f"  api key   {key}   (shown once)"))
        cleaning.release()
    return deployed


def _write_changes(read: ToStart, changes: list[Change]) -> str:
    """Put what mended it into the recipe's file; what was done, or why it was not."""
    file = read.file
    if not read.structured and not all(change.is_env for change in changes):
        return (
            f"not written: {file} has a command: of its own; "
            f"spark-recipe convert {file} makes a form of it that can be edited"
        )
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.render.edit import set_in_recipe

    try:
        text = file.read_bytes().decode("utf-8")
        for change in changes:
            section = "env" if change.is_env else "serve"
            name = change.name if change.is_env else change.name.removeprefix("--")
            text = set_in_recipe(text, str(file), section, name, change.after)
        write_new_file(file, text, force=True)
    except (SparkRecipeError, OSError, UnicodeDecodeError) as error:
        return f"not written: {error}"
    return f"written to {file}"


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
