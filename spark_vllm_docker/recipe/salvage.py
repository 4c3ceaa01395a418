"""What is left of a recipe with faults, so that its flags can be checked in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_vllm_docker.errors import InvalidRecipe, SparkRecipeError
from spark_vllm_docker.findings import Finding
from spark_vllm_docker.recipe.forms import Form, find_form
from spark_vllm_docker.recipe.load import read_recipe
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.source import KeyPath, Source, parse_yaml, read_text

_ROUNDS = 4
_STANDS_FOR = {
    Form.VERSION_1: {"recipe_version": "1", "name": "recipe", "container": "unknown"},
    Form.VERSION_2: {"model": "unknown", "container": "unknown"},
    Form.STRUCTURED: {"model": "unknown", "container": "unknown"},
}


def salvage_recipe(path: Path, known: Sequence[Finding]) -> tuple[list[Finding], Recipe | None]:
    """The recipe without the keys that the findings are about, and what is found then.

    None instead of a recipe where what is left is none.
    """
    found: list[Finding] = []
    try:
        source = parse_yaml(read_text(path), str(path))
    except SparkRecipeError:
        return found, None
    for _ in range(_ROUNDS):
        if not isinstance(source.data, dict):
            break
        form = find_form(source)
        points = {point for f in (*known, *found) for point in _points(source, f)}
        data: dict[str, Any] = {**_STANDS_FOR[form], **_without(source, points)}
        try:
            return found, read_recipe(replace(source, data=data, duplicates=()), path, "", form)
        except InvalidRecipe as error:
            more = [f for f in error.findings if f not in known and f not in found]
            if not more:
                break
            found += more
        except SparkRecipeError:
            break
    return found, None


def _points(source: Source, finding: Finding) -> list[KeyPath]:
    """The keys whose place, or whose value's place, a finding names: one in a section alone."""
    return [
        path[:2] if path[0] in ("serve", "defaults", "env") else path[:1]
        for places in (source.keys, source.values)
        for path, where in places.items()
        if path and where == finding.where
    ]


def _without(source: Source, points: set[KeyPath]) -> dict[str, Any]:
    data: Any = source.data
    left = {}
    for key, value in data.items():
        if (key,) in points:
            continue
        if isinstance(value, dict):
            left[key] = {name: v for name, v in value.items() if (key, name) not in points}
        else:
            left[key] = value
    return left
