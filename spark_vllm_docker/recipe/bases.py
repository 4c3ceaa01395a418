"""`extends:` and `include:`: the other files that a recipe stands on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_vllm_docker.errors import InvalidRecipe, RecipeNotFound
from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.recipe.lookup import SUFFIXES, find_recipe, is_file
from spark_vllm_docker.recipe.source import Source, parse_yaml, read_text

MAX_DEPTH = 8


def read_chain(source: Source, path: Path, key: str) -> list[Source]:
    """The files that a recipe stands on by its `key`, the lowest first, and itself as the last.

    Raises:
        InvalidRecipe: a base is not there, is no recipe of this form, or stands on itself.
    """
    files, sources = [path], [source]
    while True:
        top: Any = sources[-1].data
        name = top.get(key) if isinstance(top, dict) else None
        if not isinstance(name, str):
            return sources[::-1]
        below = _find(name, files[-1], key, sources[-1])
        if any(_same(below, seen) for seen in files):
            way = " → ".join(file.stem for file in (*files, below))
            raise _fault(sources[-1], key, f"{key}: the recipe stands on itself: {way}")
        if len(files) >= MAX_DEPTH:
            message = f"{key}: more than {MAX_DEPTH} recipes on top of each other"
            raise _fault(sources[-1], key, message)
        base = parse_yaml(read_text(below), str(below))
        if not isinstance(base.data, dict) or ("command" in base.data and key == "extends"):
            fix = f"spark-recipe convert {below}"
            raise _fault(sources[-1], key, f"{key}: {below} is no structured recipe", fix)
        files.append(below)
        sources.append(base)


def _find(name: str, path: Path, key: str, source: Source) -> Path:
    """`include:` takes a file of the same folder only; `extends:` also knows recipes by name."""
    if key == "include" and ("/" in name or name.startswith(("@", "."))):
        fix = "copy that recipe beside this one, and name it without its folder"
        raise _fault(source, key, f"{key}: '{name}' is not a recipe in the same folder", fix)
    for suffix in ("", *SUFFIXES):
        beside = path.parent / f"{name}{suffix}"
        if is_file(beside):
            return beside
    if key == "extends":
        try:
            return find_recipe(name)
        except RecipeNotFound as error:
            raise _fault(source, key, f"{key}: {error.message}", error.hint) from error
    raise _fault(source, key, f"{key}: there is no recipe '{name}' beside {path.name}")


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _fault(source: Source, key: str, message: str, fix: str = "") -> InvalidRecipe:
    where = source.where((key,), value=True)
    return InvalidRecipe([Finding("REC017", Severity.ERROR, message, where, fix)])
