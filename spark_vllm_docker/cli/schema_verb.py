"""`spark-recipe schema`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("schema")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Write here, not to stdout.")
@click.option("--force", is_flag=True, help="Overwrite the file of --output.")
def command(output: str | None, force: bool) -> None:
    """Print the JSON Schema of recipe files, with which an editor completes keys and flags.

    The line `# yaml-language-server: $schema=recipe.schema.json` at the top of a recipe names it.
    """
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.recipe.schema import build_schema

    text = json.dumps(build_schema(), indent=1, ensure_ascii=False) + "\n"
    if output:
        write_new_file(Path(output), text, force=force)
    else:
        click.echo(text, nl=False)
