"""`spark-recipe smoke`."""

from __future__ import annotations

import click

from spark_vllm_docker.cli.options import (
    PassThrough,
    RecipeChoice,
    engine_option,
    json_option,
    recipe_options,
)


@click.command("smoke", cls=PassThrough)
@recipe_options
@engine_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), help="Seconds for all.")
@json_option
def command(
    choice: RecipeChoice, engine: str | None, timeout_s: float | None, as_json: bool
) -> int:
    """Start a recipe, prove it with every canary, and take it away again: for CI.

    Exit code 0: proven. 1: a canary failed. 5: the server ended. Nothing is left either way.
    """
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.cli.trials import run_one

    trial = run_one("smoke", choice, engine, timeout_s, as_json=as_json)
    if trial.failure is not None:
        raise trial.failure
    if as_json:
        phases = {phase: round(seconds, 3) for phase, seconds in trial.phases}
        canaries = [{"name": canary.name, "text": canary.text} for canary in trial.canaries]
        write_json("smoke", event="result", ok=True, phases=phases, canaries=canaries)
    else:
        for canary in trial.canaries:
            click.echo(f"proved  {canary.name}: {canary.text}")
    return 0
