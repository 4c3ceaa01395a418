"""`spark-recipe check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from spark_vllm_docker.findings import Finding

from spark_vllm_docker.cli.options import json_option


@click.command("check")
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE|FOLDER...")
@json_option
def command(recipes: tuple[str, ...], as_json: bool) -> int:
    """Show every fault of recipe files, each at its line. A folder means every recipe under it."""
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.errors import InvalidRecipe
    from spark_vllm_docker.recipe.load import load_recipe
    from spark_vllm_docker.recipe.lookup import find_recipe, find_recipes
    from spark_vllm_docker.ui.words import say_finding

    files: list[Path] = []
    for recipe in recipes:
        folder = Path(recipe)
        files += find_recipes(folder) if folder.is_dir() else [find_recipe(recipe)]
    findings: list[Finding] = []
    for file in files:
        try:
            load_recipe(file)
        except InvalidRecipe as error:
            findings += error.findings
    if as_json:
        write_json(
            "check", ok=not findings, files=len(files), findings=[f.to_json() for f in findings]
        )
    else:
        for finding in findings:
            click.echo(say_finding(finding))
        plural = "s" if len(files) != 1 else ""
        click.echo(
            f"{len(files)} recipe{plural}, {len(findings)} faults"
            if findings
            else f"{len(files)} recipe{plural}: no faults"
        )
    return 1 if findings else 0
