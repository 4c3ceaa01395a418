"""`spark-recipe convert`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import json_option

if TYPE_CHECKING:
    from spark_vllm_docker.recipe.recipe import Recipe


@click.command("convert")
@click.argument("recipe", metavar="RECIPE")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here, not to stdout.")
@click.option("--force", is_flag=True, help="Overwrite the file of --output.")
@json_option
def command(recipe: str, output: str | None, force: bool, as_json: bool) -> None:
    """Write a recipe of another form as a structured one: flags as YAML, the same argv.

    Comments stay where YAML allows. What cannot be said in YAML is refused, not dropped.
    """
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.recipe.load import load_recipe
    from spark_vllm_docker.recipe.lookup import find_recipe
    from spark_vllm_docker.render.structured import render_structured

    loaded = load_recipe(find_recipe(recipe))
    conversion = render_structured(loaded)
    if output:
        _check_folder(loaded, Path(output))
        write_new_file(Path(output), conversion.text, force=force)
    if as_json:
        write_json(
            "convert",
            file=str(loaded.file),
            output=output,
            text=conversion.text,
            notes=list(conversion.notes),
        )
        return
    for note in conversion.notes:
        click.echo(f"note: {note}", err=True)
    if not output:
        click.echo(conversion.text, nl=False)


def _check_folder(recipe: Recipe, output: Path) -> None:
    """Relative paths in a recipe are relative to its file."""
    from spark_vllm_docker.errors import Refused

    keys = recipe.keys
    relative = [v for v in keys.volumes if not v.startswith(("/", "~"))]
    relative += [keys.build] if keys.build and not keys.build.startswith("/") else []
    if relative and output.resolve().parent != recipe.file.resolve().parent:
        raise Refused(
            f"{recipe.file} names {relative[0]}, relative to its own folder",
            hint=f"-o {recipe.file.with_name(output.name)}, or make it absolute first",
        )
