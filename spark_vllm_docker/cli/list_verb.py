"""`spark-recipe list`."""

from __future__ import annotations

import click

from spark_vllm_docker.cli.options import json_option


@click.command("list")
@json_option
def command(as_json: bool) -> None:
    """Recipes that can be started by name: ./recipes, SPARK_RECIPE_PATH, and those shipped."""
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.health.log_lines import clean_text
    from spark_vllm_docker.recipe.load import load_recipe
    from spark_vllm_docker.recipe.lookup import find_recipes, search_folders

    rows = []
    seen: dict[str, bytes] = {}
    for folder in search_folders():
        for path in find_recipes(folder):
            content = path.read_bytes()
            if seen.get(path.stem) == content:
                continue  # the same recipe again, as in a checkout
            seen[path.stem] = content
            try:
                keys = load_recipe(path).keys
            except SparkRecipeError as error:
                rows.append((path, "", "", f"not valid: spark-recipe check {path}", error.message))
            else:
                rows.append((path, keys.name, keys.container, keys.description, ""))
    if as_json:
        names = ("file", "name", "container", "description", "error")
        write_json("list", recipes=[dict(zip(names, map(str, row), strict=True)) for row in rows])
        return
    width = max((len(row[0].stem) for row in rows), default=0)
    for path, _, container, description, _ in rows:
        click.echo(f"{path.stem:{width}}  {clean_text(description)}")
        if container:
            click.echo(f"{'':{width}}  {container}")
