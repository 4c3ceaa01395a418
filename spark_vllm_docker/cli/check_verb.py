"""`spark-recipe check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_vllm_docker.findings import Finding
    from spark_vllm_docker.recipe.recipe import Recipe

FORMATS = ("text", "json", "github", "junit")


@click.command("check")
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE|FOLDER...")
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", show_default=True)
@json_option
def command(recipes: tuple[str, ...], form: str, as_json: bool) -> int:
    """Show every fault of recipe files, each at its line. A folder means every recipe under it.

    Exit code 1 when there is an error; warnings and notes do not count.
    """
    from spark_vllm_docker.findings import Severity

    names: dict[str, Path] = {}
    found = {file: _check(file, names) for file in _find_files(recipes)}
    click.echo(_render("json" if as_json else form, found))
    errors = [f for findings in found.values() for f in findings if f.severity is Severity.ERROR]
    return 1 if errors else 0


def _render(form: str, found: dict[Path, list[Finding]]) -> str:
    if form == "junit":
        from spark_vllm_docker.ui.junit import render_junit

        return render_junit(found)
    from spark_vllm_docker.ui import reports

    forms = {
        "text": reports.render_text,
        "json": reports.render_json,
        "github": reports.render_github,
    }
    return forms[form](found)


def _check(file: Path, names: dict[str, Path]) -> list[Finding]:
    """The findings for each kind of hardware that the recipe tells apart, and for a name that an
    earlier file has: of the two, only one can run.
    """
    from spark_vllm_docker.errors import InvalidRecipe, RecipeNotFound
    from spark_vllm_docker.findings import Finding, Severity, Where
    from spark_vllm_docker.recipe.load import load_recipe

    try:
        recipe = load_recipe(file)
    except InvalidRecipe as error:
        found = [*error.findings, *_check_what_is_left(file, error.findings)]
        return sorted(found, key=lambda finding: finding.where or Where(str(file)))
    except RecipeNotFound as error:
        return [Finding("REC001", Severity.ERROR, error.message, None, error.hint)]
    findings = _check_read(recipe)
    for hardware in recipe.when:
        try:
            more = _check_read(load_recipe(file, hardware))
        except InvalidRecipe as error:
            more = list(error.findings)
        findings += [finding for finding in more if finding not in findings]
    first = names.setdefault(recipe.name, file)
    if first != file:
        message = f"name: {first} has the name '{recipe.name}' too; only one of them can run"
        where = recipe.source.where(("name",), value=True)
        findings.append(Finding("REC016", Severity.WARNING, message, where))
    return findings


def _check_what_is_left(file: Path, known: Sequence[Finding]) -> list[Finding]:
    """The flags of a recipe whose keys have faults."""
    from spark_vllm_docker.plan.flags import check_flags
    from spark_vllm_docker.recipe.salvage import salvage_recipe

    more, left = salvage_recipe(file, known)
    told = {finding.where for finding in (*known, *more)}
    flags = check_flags(left) if left is not None else []
    return more + [f for f in flags if f.where not in told and f.code not in ("FLAG010", "REC009")]


def _check_read(recipe: Recipe) -> list[Finding]:
    """The findings of the planner, and what `up` would refuse on one machine."""
    import os

    from spark_vllm_docker.errors import Refused, UsageError
    from spark_vllm_docker.findings import Finding, Severity
    from spark_vllm_docker.plan.check import check_recipe
    from spark_vllm_docker.render.command import LaunchOptions
    from spark_vllm_docker.render.outline import outline_launch

    findings = check_recipe(recipe)
    if any(finding.severity is Severity.ERROR for finding in findings):
        return findings
    where = recipe.source.start
    try:
        outline_launch(recipe, LaunchOptions(), os.environ)
    except UsageError as error:
        findings.append(Finding("REC012", Severity.ERROR, error.message, where, error.hint))
    except Refused as error:  # fine elsewhere, or with an image that has the mods
        if recipe.keys.mods and "mod" in error.message:
            where = recipe.source.where(("mods",))
        findings.append(Finding("REC013", Severity.WARNING, error.message, where, error.hint))
    return findings


def _find_files(recipes: tuple[str, ...]) -> list[Path]:
    from spark_vllm_docker.errors import RecipeNotFound
    from spark_vllm_docker.recipe.lookup import find_recipe, find_recipes

    files: list[Path] = []
    for recipe in recipes:
        folder = Path(recipe)
        if not folder.is_dir():
            files.append(find_recipe(recipe))
            continue
        inside = list(find_recipes(folder))
        if not inside:
            raise RecipeNotFound(f"there is no recipe under {folder}")
        files += inside
    return files
