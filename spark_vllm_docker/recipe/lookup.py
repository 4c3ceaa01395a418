"""Name of a recipe → its file.

A name is tried, in this order, as a path, as a path without its suffix, under `./recipes`, under
each folder of `SPARK_RECIPE_PATH`, and among the shipped recipes. Folders may be nested:
`4x-spark-cluster/minimax` and `minimax` both find `recipes/4x-spark-cluster/minimax.yaml`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_vllm_docker.catalog.shipped import find_shipped
from spark_vllm_docker.errors import RecipeNotFound
from spark_vllm_docker.findings import did_you_mean

SUFFIXES = (".yaml", ".yml")


def find_recipe(name: str, environ: Mapping[str, str] | None = None) -> Path:
    """The file of a recipe.

    Raises:
        RecipeNotFound: with the folders searched and the closest known name; or with the files,
        when several of one folder have the name: none of them is chosen.
    """
    for candidate in _as_paths(Path(name)):
        if is_file(candidate):
            return candidate
    folders = search_folders(environ)
    for folder in folders:
        here = [candidate for candidate in _as_paths(folder / name) if is_file(candidate)]
        if len(here) > 1:
            raise _ambiguous(name, here)
        if here:
            return here[0]
        if "/" not in name:
            wanted = {f"{name}{suffix}" for suffix in ("", *SUFFIXES)}
            files = [path for path in find_recipes(folder) if path.name in wanted]
            if len(files) > 1:
                raise _ambiguous(name, files)
            if files:
                return files[0]
    known = {path.stem for folder in folders for path in find_recipes(folder)}
    places = ", ".join(str(folder) for folder in folders)
    raise RecipeNotFound(
        f"there is no recipe '{name}'{did_you_mean(Path(name).stem, sorted(known))}",
        hint=f"spark-recipe list; searched: {places}",
    )


def _ambiguous(name: str, files: list[Path]) -> RecipeNotFound:
    shown = ", ".join(str(file) for file in files)
    return RecipeNotFound(f"'{name}' could be {shown}", hint=f"spark-recipe … {files[0]}")


def search_folders(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The folders that recipes are looked for in, first match first."""
    environ = os.environ if environ is None else environ
    parts = [part for part in environ.get("SPARK_RECIPE_PATH", "").split(":") if part]
    home = environ.get("HOME", "~")
    extra = [Path(f"{home}{part[1:]}" if part.startswith("~/") else part) for part in parts]
    folders = [Path("recipes"), *extra, find_shipped("recipes")]
    seen: dict[Path, Path] = {}
    for folder in folders:
        if folder.is_dir():
            seen.setdefault(folder.resolve(), folder)
    return list(seen.values())


def find_recipes(folder: Path) -> Iterator[Path]:
    """Every recipe file under a folder, sorted; what cannot be looked into is passed over."""
    found = [
        Path(place) / name
        for place, _, names in os.walk(folder)
        for name in names
        if name.endswith(SUFFIXES)
    ]
    return (path for path in sorted(found) if is_file(path))


def is_file(path: Path) -> bool:
    """Whether it is a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _as_paths(path: Path) -> Iterator[Path]:
    if not path.name or "\0" in path.name:
        return
    yield path
    for suffix in SUFFIXES:
        yield path.with_name(path.name + suffix)
