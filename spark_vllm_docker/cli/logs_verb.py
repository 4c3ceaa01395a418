"""`spark-recipe logs`."""

from __future__ import annotations

import os
import sys

import click

from spark_vllm_docker.cli.options import engine_option, json_option, name_argument


@click.command("logs")
@name_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the server ends.")
@click.option("-n", "--tail", type=click.IntRange(min=0), help="Only the last lines.")
@engine_option
@json_option
def command(name: str, follow: bool, tail: int | None, engine: str | None, as_json: bool) -> None:
    """The log of a deployment, running or ended. Secrets are masked."""
    from spark_vllm_docker.cli.engines import find_target
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.health.log_lines import LineSplitter
    from spark_vllm_docker.launcher.watched import find_deployed_secrets
    from spark_vllm_docker.render.masking import mask, mask_text

    opened, deployed = find_target(engine, name)
    secrets = find_deployed_secrets(deployed, os.environ)
    stream = opened.follow_log(deployed.id, tail=tail, follow=follow)
    splitter = LineSplitter()

    def show(lines: list[str]) -> None:
        for line in lines:
            if as_json:
                write_json("logs", name=deployed.name, line=mask_text(mask(line, secrets)))
            else:
                sys.stdout.write(mask_text(mask(line, secrets)) + "\n")
        sys.stdout.flush()

    for chunk in stream:
        show(splitter.feed(chunk))
    show(splitter.end())
