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
        if candidate.is_file():
            return candidate
    folders = search_folders(environ)
    for folder in folders:
        here = [candidate for candidate in _as_paths(folder / name) if candidate.is_file()]
        if len(here) > 1:
            raise _ambiguous(name, here)
        if here:
            return here[0]
        if "/" not in name:
            nested = [
                p for s in ("", *SUFFIXES) for p in sorted(folder.glob(f"**/{_literal(name)}{s}"))
            ]
            files = [p for p in nested if p.is_file() and p.suffix in SUFFIXES]
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
    """Every recipe file under a folder, sorted."""
    return (
        path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file()
    )


def _as_paths(path: Path) -> Iterator[Path]:
    if not path.name or "\0" in path.name:
        return
    yield path
    for suffix in SUFFIXES:
        yield path.with_name(path.name + suffix)


def _literal(name: str) -> str:
    """A name as a glob pattern that matches only itself."""
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
