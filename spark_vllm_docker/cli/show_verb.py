"""`spark-recipe show`."""

from __future__ import annotations

import os

import click

from spark_vllm_docker.cli.options import PassThrough, choose_recipe, json_option, recipe_options


@click.command("show", cls=PassThrough)
@recipe_options
@json_option
def command(
    recipe: str,
    sets: tuple[str, ...],
    network: str | None,
    listen: str,
    no_gpu: bool,
    as_json: bool,
) -> None:
    """A recipe's parameters, where each comes from, and what would run."""
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.health.log_lines import clean_text
    from spark_vllm_docker.recipe.overrides import parse_set, resolve_parameters
    from spark_vllm_docker.render.masking import mask

    choice = choose_recipe(recipe, sets, network, listen, no_gpu)
    loaded = choice.load()
    deployment = choice.build(loaded, os.environ)
    parameters = resolve_parameters(loaded, [parse_set(text) for text in sets])
    secrets = choice.find_secrets(loaded, deployment, os.environ)

    def shown(value: object) -> object:
        return mask(value, secrets) if isinstance(value, str) else value

    shell_text = mask(deployment.command, secrets)
    if as_json:
        write_json(
            "show",
            name=loaded.name,
            file=str(loaded.file),
            image=deployment.spec.image,
            endpoint=deployment.endpoint,
            served=list(deployment.served),
            spec=deployment.spec.digest(),
            parameters={
                name: {"value": shown(p.value), "origin": p.origin}
                for name, p in parameters.items()
            },
            command=shell_text,
        )
        return
    click.echo(f"{loaded.name}   {loaded.file}")
    if loaded.keys.description:
        click.echo(f"  {clean_text(loaded.keys.description)}")
    click.echo(f"  image     {deployment.spec.image}")
    click.echo(f"  endpoint  {deployment.endpoint}/v1   model {', '.join(deployment.served)}")
    width = max((len(name) for name in parameters), default=0)
    for name, parameter in parameters.items():
        click.echo(f"  {name:{width}}  {shown(parameter.value)!s:12}  {parameter.origin}")
    click.echo(shell_text)
