"""`spark-recipe doctor`."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

import click

from spark_vllm_docker.cli.options import engine_option, json_option


@click.command("doctor")
@click.argument("recipe", required=False, metavar="[RECIPE]")
@engine_option
@click.option("--no-gpu", is_flag=True, help="Do not ask for GPUs: for CPU images.")
@click.option("--offline", is_flag=True, help="Do not ask the Hub.")
@json_option
def command(
    recipe: str | None, engine: str | None, no_gpu: bool, offline: bool, as_json: bool
) -> int:
    """Can this machine serve models? Each line: how it is, why it matters, what mends it.

    With RECIPE its port is looked at too, and GPUs only if it wants them. Exit code 1
    when something would stop a start.
    """
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.launcher.host_facts import gather_facts
    from spark_vllm_docker.launcher.hub import ping_hub
    from spark_vllm_docker.plan.host import State, examine

    opened, trouble = _try_engine(engine)
    name, ports, needs_gpu = _read_needs(recipe) if recipe else ("", [], True)
    if opened and name and any(d.name == name and d.state == "running" for d in opened.list_ours()):
        ports = []  # it is itself that has its port
    ask_hub = None if offline else partial(ping_hub, os.environ)
    facts = gather_facts(opened, trouble, os.environ, ports, ask_hub)
    lines = examine(replace(facts, needs_gpu=needs_gpu and not no_gpu))
    failed = any(line.state is State.ERROR for line in lines)
    if as_json:
        rows = [
            {
                "name": line.name,
                "state": line.state.value,
                "found": line.found,
                "why": line.why,
                "mend": line.mend or None,
            }
            for line in lines
        ]
        write_json("doctor", ok=not failed, lines=rows)
        return int(failed)
    width = max(len(line.name) for line in lines)
    for line in lines:
        click.echo(f"{line.state.value:7}  {line.name:{width}}  {line.found}")
        if line.state in (State.ERROR, State.WARNING):
            click.echo(f"{'':9}{'':{width}}  why: {line.why}")
            if line.mend:
                click.echo(f"{'':9}{'':{width}}  fix: {line.mend}")
    return int(failed)


def _try_engine(kind: str | None):  # type: ignore[no-untyped-def]  # noqa: ANN202
    from spark_vllm_docker.cli.engines import open_engine
    from spark_vllm_docker.errors import EngineError

    try:
        engine = open_engine(kind)
        engine.check()
    except EngineError as error:
        return None, error
    return engine, None


def _read_needs(recipe: str) -> tuple[str, list[int], bool]:
    """The name under which a recipe runs, its ports, and whether it wants GPUs."""
    from spark_vllm_docker.recipe.load import load_recipe
    from spark_vllm_docker.recipe.lookup import find_recipe
    from spark_vllm_docker.recipe.serve import parse_serve
    from spark_vllm_docker.render.build import container_name

    loaded = load_recipe(find_recipe(recipe))
    try:
        serve = parse_serve(loaded.command.fill(loaded.values))
    except (ValueError, TypeError):
        serve = None
    ports = [serve.port] if serve and serve.port else []
    return container_name(loaded.name), ports, loaded.keys.gpus != "none"
