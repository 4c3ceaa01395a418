"""`spark-recipe show`."""

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
    from spark_vllm_docker.recipe.recipe import Recipe


@click.command("show", cls=PassThrough)
@recipe_options
@json_option
def command(choice: RecipeChoice, as_json: bool) -> None:
    """A recipe's values, where each comes from, and what would run."""
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.health.log_lines import clean_text
    from spark_vllm_docker.recipe.flag_command import to_json
    from spark_vllm_docker.recipe.overrides import resolve_env, resolve_parameters
    from spark_vllm_docker.render.command import apply_machines
    from spark_vllm_docker.render.masking import MASK, is_secret_name, mask
    from spark_vllm_docker.render.secrets import mask_deployment

    chosen = choice.load(os.environ)
    recipe = chosen.recipe
    deployment = chosen.build(os.environ)
    resolved = resolve_parameters(recipe, chosen.overrides.sets)
    parameters = apply_machines(recipe, resolved, chosen.options().nodes)
    env = resolve_env(recipe, chosen.overrides.env)
    secrets = chosen.find_secrets(deployment, os.environ)

    masked = mask_deployment(deployment, secrets)

    def shown(name: str, value: object) -> object:
        if is_secret_name(name):
            return MASK
        return mask(value, secrets) if isinstance(value, str) else value

    shell_text = masked.command
    image_from = recipe.origin(("container",))
    if as_json:
        write_json(
            "show",
            name=recipe.name,
            file=str(recipe.file),
            form=recipe.form.value,
            hardware=recipe.hardware or None,
            image=deployment.spec.image,
            image_origin=image_from,
            endpoint=deployment.endpoint,
            served=list(deployment.served),
            spec=deployment.spec.digest(),
            parameters={
                name: {"value": shown(name, p.value), "origin": p.origin}
                for name, p in parameters.items()
            },
            env={
                name: {"value": None if v.from_host else shown(name, v.value), "origin": v.origin}
                for name, v in env.items()
            },
            command=shell_text,
            argv=list(masked.spec.command),
        )
        return
    click.echo(f"{recipe.name}   {recipe.file}   ({recipe.form.value})")
    if recipe.keys.description:
        click.echo(f"  {clean_text(recipe.keys.description)}")
    rows: list[tuple[str, str, str]] = [("image", deployment.spec.image, image_from)]
    if recipe.when:
        known = ", ".join(recipe.when)
        rows.append(("hardware", recipe.hardware or "unknown", f"when: blocks for {known}"))
    for name, parameter in parameters.items():
        value = shown(name, parameter.value)
        text = to_json(value) if isinstance(value, (dict, list, bool)) else str(value)
        rows.append((name, mask(text, secrets), parameter.origin))
    for name, variable in env.items():
        text = "(from this machine)" if variable.from_host else str(shown(name, variable.value))
        rows.append((f"env {name}", text, variable.origin))
    rows += _container_rows(recipe)
    names = max(len(row[0]) for row in rows)
    values = min(48, max(len(row[1]) for row in rows))
    for name, text, origin in rows:
        click.echo(f"  {name:{names}}  {clean_text(text):{values}}  {origin}")
    click.echo(f"  {'endpoint':{names}}  {deployment.endpoint}/v1")
    click.echo(shell_text)


def _container_rows(recipe: Recipe) -> list[tuple[str, str, str]]:
    """The other keys that the recipe sets."""
    from spark_vllm_docker.recipe.flag_command import to_json
    from spark_vllm_docker.recipe.models import ContainerKeys

    rows = []
    for name in ("setup", *ContainerKeys.model_fields):
        if name != "env" and (name,) in recipe.source.keys:
            value = getattr(recipe.keys, name)
            text = value if isinstance(value, str) else to_json(value)
            rows.append((name, text, recipe.origin((name,))))
    return rows
