"""What is left of a recipe with faults, so that all the rest can be checked in the same run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from spark_vllm_docker.errors import InvalidRecipe, SparkRecipeError
from spark_vllm_docker.findings import Finding
from spark_vllm_docker.recipe.forms import Form, find_form
from spark_vllm_docker.recipe.load import read_recipe
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.source import KeyPath, Source, parse_yaml, read_text
from spark_vllm_docker.recipe.template import parse_template

_ROUNDS = 4
_MISSING = "REC002"
UNKNOWN = "unknown"
"""Stands for what a file does not say."""
_STANDS_FOR = {"recipe_version": "1", "name": "recipe", "container": UNKNOWN, "model": UNKNOWN}
_NEEDED = {
    Form.VERSION_1: ("recipe_version", "name", "container"),
    Form.VERSION_2: ("model", "container"),
    Form.STRUCTURED: ("model", "container"),
}
_SECTIONS = ("serve", "defaults", "env")


def salvage_recipe(
    path: Path, known: Sequence[Finding], hardware: str = ""
) -> tuple[list[Finding], Recipe | None]:
    """The recipe without the keys that the findings are about, and what is found then.

    A key that is needed and missing is taken from one that was misspelt, else a word stands for it.
    None instead of a recipe where what is left is none.
    """
    found: list[Finding] = []
    try:
        source = parse_yaml(read_text(path), str(path))
    except SparkRecipeError:
        return found, None
    stands: dict[str, Any] = {}
    for _ in range(_ROUNDS):
        if not isinstance(source.data, dict):
            break
        form = find_form(source)
        points = {point for f in (*known, *found) for point in _points(source, f)}
        data = {**stands, **_without(source, points)}
        if form is Form.VERSION_1:
            data = _fill_placeholders(data)
        left = replace(source, data=data, duplicates=())
        try:
            return found, read_recipe(left, path, hardware, form)
        except InvalidRecipe as error:
            missing = any(finding.code == _MISSING for finding in error.findings)
            told = (*known, *found)
            more = [f for f in error.findings if f not in told and f.code != _MISSING]
            if not more and (stands or not missing):
                break
            found += more
            if missing:
                stands = {key: _stand_in(key, source.data, data) for key in _NEEDED[form]}
        except SparkRecipeError:
            break
    return found, None


def _stand_in(key: str, written: dict[Any, Any], left: dict[str, Any]) -> Any:
    """The value of a misspelt key, or a word in its place."""
    dropped = [name for name in written if isinstance(name, str) and name not in left]
    close = get_close_matches(key, dropped, n=1, cutoff=0.6)
    value = written[close[0]] if close else None
    return value if isinstance(value, str) else _STANDS_FOR[key]


def _fill_placeholders(data: dict[str, Any]) -> dict[str, Any]:
    """A value for each placeholder of a version-1 command that has none."""
    command, defaults = data.get("command"), data.get("defaults") or {}
    if not isinstance(command, str) or not isinstance(defaults, dict):
        return data
    names = [part.name for part in parse_template(command).parts if not isinstance(part, str)]
    missing = {name: UNKNOWN for name in names if name not in defaults}
    return {**data, "defaults": {**defaults, **missing}} if missing else data


def _points(source: Source, finding: Finding) -> list[KeyPath]:
    """The keys whose place, or whose value's place, a finding names: one in a section alone."""
    return [
        _cut(path)
        for places in (source.keys, source.values)
        for path, where in places.items()
        if path and where == finding.where and path != ("command",)
    ]


def _cut(path: KeyPath) -> KeyPath:
    if path[0] in _SECTIONS:
        return path[:2]
    if path[0] == "when":
        return path[:4] if len(path) > 2 and path[2] in _SECTIONS else path[:3]
    return path[:1]


def _without(node: Source, points: set[KeyPath]) -> dict[str, Any]:
    data: Any = node.data
    kept: dict[str, Any] = _strip(data, (), points)
    return kept


def _strip(value: Any, path: KeyPath, points: set[KeyPath]) -> Any:
    if not isinstance(value, dict) or len(path) > 3:
        return value
    return {
        key: _strip(item, (*path, key), points)
        for key, item in value.items()
        if (*path, key) not in points
    }
