"""`spark-recipe down`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import engine_option, json_option

if TYPE_CHECKING:
    from spark_vllm_docker.engine.protocol import Deployed, Engine


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

    if bool(names) == everything:
        raise UsageError("down needs names, or --all", hint="spark-recipe ps")
    targets = list_deployed(engine) if everything else [find_target(engine, name) for name in names]
    for opened, deployed in targets:
        told = _take_down(opened, deployed, grace_s)
        if not as_json:
            click.echo(f"{deployed.name}: down{told}")
    if not targets and not as_json:
        click.echo("nothing is deployed")
    if as_json:
        write_json("down", ok=True, removed=[deployed.name for _, deployed in targets])


def _take_down(engine: Engine, deployed: Deployed, grace_s: float) -> str:
    """Remove it; what is to be said of the GPU's memory, where there is one here."""
    from spark_vllm_docker.catalog.hardware import detect_hardware, load_hardware
    from spark_vllm_docker.launcher.down import asked_share, run_down, wait_for_memory
    from spark_vllm_docker.launcher.free_memory import find_free_gib

    hardware = load_hardware().get(detect_hardware())
    ran = deployed.state == "running"
    before = find_free_gib(hardware, here=True) if ran else None
    run_down(engine, deployed, grace_s)
    if before is None or hardware is None:
        return ""
    asked = asked_share(deployed) * hardware.total_gib
    freed = wait_for_memory(before, asked, lambda: find_free_gib(hardware, here=True))
    if freed is None or freed.is_back:
        return f"; {freed.free_gib:.1f} GiB are free" if freed else ""
    return (
        f"; its memory is not back: {freed.free_gib:.1f} GiB are free, {before:.1f} before "
        "(nvidia-smi shows who holds it; where nobody does, restart the machine)"
    )
