"""`spark-recipe list`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.catalog.hardware_names import HARDWARE
from spark_vllm_docker.cli.options import json_option

if TYPE_CHECKING:
    from spark_vllm_docker.recipe.models import Keys

MODALITIES = ("text", "image", "audio", "video")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file, and what it says about itself, or why it cannot be read."""

    file: Path
    keys: Keys | None
    form: str
    hardware: tuple[str, ...]
    error: str


@click.command("list")
@click.argument("words", nargs=-1, metavar="[WORD...]")
@click.option("--tag", "tags", multiple=True, help="Only recipes with this tag.")
@click.option("--hardware", type=click.Choice(HARDWARE), help="Only recipes made for it.")
@click.option(
    "--modality",
    "modalities",
    type=click.Choice(MODALITIES),
    multiple=True,
    help="Only recipes whose server understands it.",
)
@json_option
def command(
    words: tuple[str, ...],
    tags: tuple[str, ...],
    hardware: str | None,
    modalities: tuple[str, ...],
    as_json: bool,
) -> None:
    """Recipes that can be started by name: ./recipes, SPARK_RECIPE_PATH, and those shipped.

    Words are looked for in name, description, model, image, tags, modalities and hardware.
    """
    from spark_vllm_docker.cli.screens import write_json

    def wanted(entry: _Entry) -> bool:
        keys = entry.keys
        if keys is None:
            text = entry.file.stem.lower()
            return not (tags or hardware or modalities) and all(w.lower() in text for w in words)
        texts = (entry.file.stem, keys.name, keys.description, keys.model or "", keys.container)
        text = " ".join((*texts, *keys.tags, *keys.modalities, *entry.hardware)).lower()
        return (
            all(word.lower() in text for word in words)
            and {tag.lower() for tag in tags} <= {tag.lower() for tag in keys.tags}
            and (hardware is None or hardware in entry.hardware)
            and set(modalities) <= set(keys.modalities)
        )

    entries = [entry for entry in _find_entries() if wanted(entry)]
    if as_json:
        write_json("list", recipes=[_to_json(entry) for entry in entries])
        return
    _write(entries)


def _find_entries() -> Iterator[_Entry]:
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.recipe.load import load_recipe
    from spark_vllm_docker.recipe.lookup import find_recipes, search_folders

    seen: dict[str, bytes] = {}
    for folder in search_folders():
        for path in find_recipes(folder):
            try:
                recipe = load_recipe(path)
            except SparkRecipeError as error:
                yield _Entry(path, None, "", (), error.message)
                continue
            content = recipe.source.text.encode()
            if seen.get(path.stem) == content:
                continue  # the same recipe again, as in a checkout
            seen[path.stem] = content
            hardware = tuple(dict.fromkeys((*recipe.keys.hardware, *recipe.when)))
            yield _Entry(path, recipe.keys, recipe.form.value, hardware, "")


def _write(entries: list[_Entry]) -> None:
    from spark_vllm_docker.health.log_lines import clean_text

    if not entries:
        click.echo("no recipe is like that", err=True)
    width = max((len(entry.file.stem) for entry in entries), default=0)
    for entry in entries:
        keys = entry.keys
        if keys is None:
            click.echo(f"{entry.file.stem:{width}}  not valid: spark-recipe check {entry.file}")
            continue
        click.echo(f"{entry.file.stem:{width}}  {clean_text(keys.description or keys.model or '')}")
        named = f"name: {keys.name}" if keys.name != entry.file.stem else ""
        about = [named, keys.container, " ".join(keys.modalities), ", ".join(entry.hardware)]
        click.echo(f"{'':{width}}  {'   '.join(part for part in about if part)}")


def _to_json(entry: _Entry) -> dict[str, object]:
    keys = entry.keys
    return {
        "file": str(entry.file),
        "name": keys.name if keys else "",
        "container": keys.container if keys else "",
        "description": keys.description if keys else "",
        "error": entry.error,
        "form": entry.form,
        "model": keys.model if keys else None,
        "tags": keys.tags if keys else [],
        "modalities": keys.modalities if keys else [],
        "hardware": list(entry.hardware),
    }
