"""`spark-recipe wait`."""

from __future__ import annotations

import os
import time

import click

from spark_vllm_docker.cli.options import engine_option, json_option, name_argument


@click.command("wait")
@name_argument
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0.1), help="Give up after so many seconds."
)
@engine_option
@json_option
def command(name: str, timeout_s: float | None, engine: str | None, as_json: bool) -> None:
    """Wait until a deployment is ready, for example after `up --no-wait`."""
    from spark_vllm_docker.cli.engines import find_target
    from spark_vllm_docker.cli.screens import masked, masked_errors, open_screen, write_json
    from spark_vllm_docker.health.phases import PhaseClock
    from spark_vllm_docker.health.probe import Probe
    from spark_vllm_docker.launcher.health import run_wait
    from spark_vllm_docker.launcher.targets import describe_result
    from spark_vllm_docker.launcher.watched import find_deployed_secrets

    began = time.monotonic()
    opened, deployed = find_target(engine, name)
    secrets = find_deployed_secrets(deployed, os.environ)
    with masked_errors(secrets), open_screen("wait", as_json=as_json, show_log=False) as screen:
        emit = masked(screen, secrets)
        run_wait(
            opened, deployed, Probe, PhaseClock(emit, began, "setup"), emit, timeout_s, os.environ
        )
    if as_json:
        write_json("wait", event="result", ok=True, exit_code=0, **describe_result(deployed))
