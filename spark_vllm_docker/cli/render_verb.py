"""`spark-recipe render`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import (
    PassThrough,
    RecipeChoice,
    json_option,
    recipe_options,
)

if TYPE_CHECKING:
    from spark_vllm_docker.render.deployment import Deployment

FORMS = ("command", "script", "docker-run", "docker-py")


@click.command("render", cls=PassThrough)
@recipe_options
@click.option("--as", "form", type=click.Choice(FORMS), default="docker-run", show_default=True)
@click.option(
    "--nodes", metavar="HEAD,WORKER...", default="", help="Several machines: what each would run."
)
@click.option("--ray", is_flag=True, help="With --nodes: the server on the head, over Ray.")
@json_option
def command(choice: RecipeChoice, form: str, nodes: str, ray: bool, as_json: bool) -> None:
    """Print what `up` would run. Every form is made from the same spec; secrets are masked."""
    from dataclasses import replace

    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.errors import UsageError
    from spark_vllm_docker.recipe.nodes import Nodes
    from spark_vllm_docker.render.build import build_gang
    from spark_vllm_docker.render.secrets import mask_deployment

    machines = Nodes(tuple(part for part in nodes.split(",") if part), ray)
    if len(set(machines.addresses)) < len(machines.addresses):
        raise UsageError(f"--nodes {nodes}: a machine is named twice")
    if ray and not machines.several:
        raise UsageError("--ray needs --nodes with at least two machines")
    chosen = choice.load(os.environ)
    options = replace(chosen.options(), nodes=machines)
    texts = []
    digests = []
    for deployment in build_gang(chosen.recipe, options, os.environ):
        masked = mask_deployment(deployment, chosen.find_secrets(deployment, os.environ))
        texts.append(_render(masked, form))
        digests.append(masked.spec.digest())
    if machines.several and not ray and len(texts) < len(machines.addresses):
        click.echo(
            f"note: {len(texts)} of {len(machines.addresses)} machines are used: "
            "the parallel sizes take no more; --set tensor_parallel=N",
            err=True,
        )
    if as_json:
        more = {"nodes": list(machines.addresses), "texts": texts} if machines.several else {}
        write_json("render", form=form, text=texts[0], spec=digests[0], **more)
        return
    for rank, text in enumerate(texts):
        if machines.several:
            click.echo(f"# {machines.addresses[rank]}, rank {rank} of {len(texts)}")
        click.echo(text)


def _render(deployment: Deployment, form: str) -> str:
    from spark_vllm_docker.render.docker_py import render_docker_py
    from spark_vllm_docker.render.docker_run import render_docker_run

    if form == "docker-run":
        return render_docker_run(deployment.spec)
    if form == "docker-py":
        return render_docker_py(deployment.spec)
    return deployment.command if form == "command" else deployment.script
