"""`spark-recipe up`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import (
    PassThrough,
    RecipeChoice,
    choose_recipe,
    engine_option,
    json_option,
    recipe_options,
)

if TYPE_CHECKING:
    from spark_vllm_docker.launcher.start import UpRequest


@click.command("up", cls=PassThrough)
@recipe_options
@engine_option
@click.option("-d", "--detach", is_flag=True, help="Return when the server is ready.")
@click.option("--no-wait", is_flag=True, help="Return when the container has started.")
@click.option("--replace", is_flag=True, help="Stop what runs under the name with another spec.")
@click.option("--keep", is_flag=True, help="Leave the container when interrupted while it loads.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), help="Seconds until ready, in all."
)
@click.option("--logs", "show_log", is_flag=True, help="Show the server's log while it loads.")
@click.option("--dry-run", is_flag=True, help="Print what would run, and run nothing.")
@json_option
def command(
    recipe: str,
    sets: tuple[str, ...],
    network: str | None,
    listen: str,
    no_gpu: bool,
    engine: str | None,
    detach: bool,
    no_wait: bool,
    replace: bool,
    keep: bool,
    timeout_s: float | None,
    show_log: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Start a recipe, watch it to ready, prove it.

    Ready means: /health is 200, the model is listed, and it has answered. Then the log follows;
    Ctrl-C leaves the server running. Ctrl-C before ready removes the container.
    """
    began = time.monotonic()
    choice = choose_recipe(recipe, sets, network, listen, no_gpu)
    # A closed terminal or a service manager's stop is an interrupt too: nothing may be left behind.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    request = _build_request(
        choice,
        wait=not (no_wait or dry_run),
        detach=detach,
        replace=replace,
        keep=keep,
        timeout_s=timeout_s,
        in_container=engine != "process",
    )
    if dry_run:
        _show_dry_run(request, as_json=as_json)
    else:
        _run(request, engine, began, as_json=as_json, show_log=show_log)


def _build_request(
    choice: RecipeChoice,
    *,
    wait: bool,
    detach: bool,
    replace: bool,
    keep: bool,
    timeout_s: float | None,
    in_container: bool,
) -> UpRequest:
    from spark_vllm_docker.launcher.images import find_image_source
    from spark_vllm_docker.launcher.start import UpRequest
    from spark_vllm_docker.render.serve import parse_serve
    from spark_vllm_docker.render.spec import API_KEY_VARIABLE

    recipe = choice.load()
    deployment = choice.build(recipe, os.environ, in_container=in_container)
    build = recipe.file.parent / recipe.keys.build if recipe.keys.build else None
    environ: Mapping[str, str] = os.environ
    new_key = ""
    serve = parse_serve(deployment.command)
    if API_KEY_VARIABLE in deployment.spec.env_from_host and not (serve and serve.api_key):
        import secrets

        new_key = "" if environ.get(API_KEY_VARIABLE) else f"sk-{secrets.token_urlsafe(24)}"
        environ = {**environ, API_KEY_VARIABLE: new_key} if new_key else environ
    return UpRequest(
        deployment=deployment,
        image=find_image_source(recipe.keys.container, build),
        environ=environ,
        wait=wait,
        detach=detach,
        replace=replace,
        keep=keep,
        total_s=timeout_s or recipe.keys.ready_timeout_s,
        new_api_key=new_key,
    )


def _run(
    request: UpRequest, engine: str | None, began: float, *, as_json: bool, show_log: bool
) -> None:
    from spark_vllm_docker.cli.engines import open_engine
    from spark_vllm_docker.cli.screens import masked, open_screen, write_json
    from spark_vllm_docker.health.phases import PhaseClock
    from spark_vllm_docker.launcher.cleaning import Cleaning
    from spark_vllm_docker.launcher.start import Launch, start_deployment
    from spark_vllm_docker.launcher.targets import describe_result
    from spark_vllm_docker.render.secrets import find_secrets

    hidden = find_secrets(request.deployment.spec, request.deployment.command, request.environ)
    with open_screen("up", as_json=as_json, show_log=show_log) as screen:
        emit = masked(screen, hidden)
        clock = PhaseClock(emit, began)
        launch = Launch(open_engine(engine), request, emit, clock)
        with Cleaning(launch.engine, request.deployment, emit, keep=request.keep) as cleaning:
            deployed = start_deployment(launch, cleaning)
            if request.wait:
                from spark_vllm_docker.launcher.up import follow_deployment

                follow_deployment(launch, cleaning, deployed, _open_probe)
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
    from spark_vllm_docker.render.secrets import find_secrets, mask
    from spark_vllm_docker.render.spec import ContainerSpec

    engine = RecorderEngine()
    clock = PhaseClock(lambda _: None, time.monotonic())
    with Cleaning(engine, request.deployment, lambda _: None, keep=False) as cleaning:
        start_deployment(Launch(engine, request, lambda _: None, clock), cleaning)
    hidden = find_secrets(request.deployment.spec, request.deployment.command, request.environ)
    lines = [
        mask(render_docker_run(what), hidden)
        for verb, what in engine.asked
        if verb == "create" and isinstance(what, ContainerSpec)
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
