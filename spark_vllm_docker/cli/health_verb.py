"""`spark-recipe health`."""

from __future__ import annotations

import os

import click

from spark_vllm_docker.cli.options import engine_option, json_option, name_argument

EXIT_ENDED = 5


@click.command("health")
@name_argument
@click.option("--deep", is_flag=True, help="Prove all that the recipe promises: picture, sound, …")
@engine_option
@json_option
def command(name: str, deep: bool, engine: str | None, as_json: bool) -> int:
    """Ask a deployment whether it can be used now.

    Exit code 0: it answered. 1: it runs, but did not answer as it should. 5: it has ended.
    """
    from spark_vllm_docker.cli.engines import find_target
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.health.probe import Probe
    from spark_vllm_docker.launcher.health import ask_health
    from spark_vllm_docker.launcher.targets import describe_result
    from spark_vllm_docker.launcher.watched import find_api_key, find_wanted

    _, deployed = find_target(engine, name)
    probe = Probe(deployed.endpoint, find_api_key(deployed))
    try:
        report = ask_health(deployed, probe, find_wanted(deployed, os.environ) if deep else None)
    finally:
        probe.close()
    if as_json:
        canaries = [
            {"name": c.name, "ok": not c.failed, "text": c.text, "fix": c.fix or None}
            for c in report.canaries
        ]
        result = describe_result(deployed)
        write_json("health", ok=report.ok, detail=report.detail, canaries=canaries, **result)
    elif deep and report.canaries:
        for canary in report.canaries:
            click.echo(f"{'failed' if canary.failed else 'proved'}  {canary.name}: {canary.text}")
            if canary.fix:
                click.echo(f"        fix: {canary.fix}")
    else:
        click.echo(f"{deployed.name}: {'healthy' if report.ok else 'not healthy'}: {report.detail}")
    if report.ok:
        return 0
    if deployed.state == "exited" and not as_json:
        click.echo(f"fix: spark-recipe diagnose {deployed.name}", err=True)
    return EXIT_ENDED if deployed.state == "exited" else 1
