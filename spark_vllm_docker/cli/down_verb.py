"""`spark-recipe down`."""

from __future__ import annotations

import click

from spark_vllm_docker.cli.options import engine_option, json_option


@click.command("down")
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--all", "everything", is_flag=True, help="Every deployment of spark-recipe.")
@click.option(
    "--grace",
    "grace_s",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds between SIGTERM and SIGKILL.",
)
@engine_option
@json_option
def command(
    names: tuple[str, ...], everything: bool, grace_s: float, engine: str | None, as_json: bool
) -> None:
    """Stop deployments and remove them with their logs. Containers of others are never touched."""
    from spark_vllm_docker.cli.engines import find_target, list_deployed
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.errors import UsageError
    from spark_vllm_docker.launcher.down import run_down

    if bool(names) == everything:
        raise UsageError("down needs names, or --all", hint="spark-recipe ps")
    targets = list_deployed(engine) if everything else [find_target(engine, name) for name in names]
    for opened, deployed in targets:
        run_down(opened, deployed, grace_s)
        if not as_json:
            click.echo(f"{deployed.name}: down")
    if not targets and not as_json:
        click.echo("nothing is deployed")
    if as_json:
        write_json("down", ok=True, removed=[deployed.name for _, deployed in targets])
