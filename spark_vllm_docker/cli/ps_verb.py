"""`spark-recipe ps`."""

from __future__ import annotations

import time

import click

from spark_vllm_docker.cli.options import engine_option, json_option


@click.command("ps")
@engine_option
@json_option
def command(engine: str | None, as_json: bool) -> None:
    """Deployments on this machine: running, ended, and where they answer."""
    from spark_vllm_docker.cli.engines import list_deployed
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.launcher.targets import describe_result

    rows = list_deployed(engine)
    if as_json:
        write_json("ps", deployments=[{"engine": e.kind, **describe_result(d)} for e, d in rows])
        return
    table = [("NAME", "STATE", "SINCE", "ENDPOINT", "MODEL", "IMAGE", "ENGINE")]
    for opened, deployed in rows:
        state: str = deployed.state
        if deployed.exit is not None:
            state = f"exited ({deployed.exit.code})"
        table.append(
            (
                deployed.name,
                state,
                _say_age(time.time() - deployed.started_at) if deployed.started_at else "-",
                f"{deployed.endpoint}/v1" if deployed.state == "running" else "-",
                ", ".join(deployed.served) or "-",
                deployed.image if opened.uses_images else "-",
                opened.kind,
            )
        )
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _say_age(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
