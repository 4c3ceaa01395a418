"""`spark-recipe render`."""

from __future__ import annotations

import os

import click

from spark_vllm_docker.cli.options import PassThrough, choose_recipe, json_option, recipe_options

FORMS = ("command", "script", "docker-run", "docker-py")


@click.command("render", cls=PassThrough)
@recipe_options
@click.option("--as", "form", type=click.Choice(FORMS), default="docker-run", show_default=True)
@json_option
def command(
    recipe: str,
    sets: tuple[str, ...],
    network: str | None,
    listen: str,
    no_gpu: bool,
    form: str,
    as_json: bool,
) -> None:
    """Print what `up` would run. Every form is made from the same spec; secrets are masked."""
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.render.docker_py import render_docker_py
    from spark_vllm_docker.render.docker_run import render_docker_run
    from spark_vllm_docker.render.secrets import mask_deployment

    choice = choose_recipe(recipe, sets, network, listen, no_gpu)
    recipe_file = choice.load()
    deployment = choice.build(recipe_file, os.environ)
    secrets = choice.find_secrets(recipe_file, deployment, os.environ)
    deployment = mask_deployment(deployment, secrets)
    text = {
        "command": lambda: deployment.command,
        "script": lambda: deployment.script,
        "docker-run": lambda: render_docker_run(deployment.spec),
        "docker-py": lambda: render_docker_py(deployment.spec),
    }[form]()
    if as_json:
        write_json("render", form=form, text=text, spec=deployment.spec.digest())
    else:
        click.echo(text)
