"""`spark-recipe new`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("new")
@click.argument("model", metavar="MODEL")
@click.option("--name", help="The recipe's name; without it, the model's.")
@click.option("--image", help="The container image; without it, the newest stock one.")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Where to write it.")
@click.option("--force", is_flag=True, help="Overwrite a file that is there.")
def command(
    model: str, name: str | None, image: str | None, output: str | None, force: bool
) -> None:
    """Write a starter recipe for a model, such as Qwen/Qwen3-8B, and say what comes next."""
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.recipe.load import parse_recipe
    from spark_vllm_docker.recipe.schema import FILE_NAME
    from spark_vllm_docker.render.starter import render_starter, starter_name

    name = name or starter_name(model)
    folder = Path("recipes") if Path("recipes").is_dir() else Path()
    path = Path(output) if output else folder / f"{name}.yaml"
    text = render_starter(model, name, image)
    parse_recipe(text, path)  # a bad name or image is said here, before there is a file
    write_new_file(path, text, force=force)
    click.echo(str(path))
    click.echo(f"check it   spark-recipe check {path}", err=True)
    click.echo(f"start it   spark-recipe up {path}", err=True)
    if not (path.parent / FILE_NAME).exists():
        click.echo(
            f"complete it in an editor   spark-recipe schema -o {path.parent / FILE_NAME}", err=True
        )
