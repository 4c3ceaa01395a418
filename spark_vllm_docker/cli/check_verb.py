"""`spark-recipe check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import json_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spark_vllm_docker.findings import Finding

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
    found = {file: why or _check(file, names) for file, why in _find_files(recipes)}
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
    """The findings of a file, and the one for a name that an earlier file has: of the two, only one
    can run.
    """
    from spark_vllm_docker.cli.checking import check_file
    from spark_vllm_docker.findings import Finding, Severity

    findings, recipe = check_file(file)
    if recipe is None:
        return findings
    first = names.setdefault(recipe.name, file)
    if first != file:
        message = f"name: {first} has the name '{recipe.name}' too; only one of them can run"
        where = recipe.source.where(("name",), value=True)
        findings.append(Finding("REC016", Severity.WARNING, message, where))
    return findings


def _find_files(recipes: tuple[str, ...]) -> Iterator[tuple[Path, list[Finding]]]:
    """The files that are meant; for one that is not there, why."""
    from spark_vllm_docker.errors import Refused
    from spark_vllm_docker.findings import Finding, Severity
    from spark_vllm_docker.recipe.lookup import find_recipe, find_recipes

    for recipe in recipes:
        folder = Path(recipe)
        try:
            inside = list(find_recipes(folder)) if folder.is_dir() else [find_recipe(recipe)]
        except Refused as error:
            yield folder, [Finding("REC001", Severity.ERROR, error.message, None, error.hint)]
            continue
        if not inside:
            message = f"there is no recipe under {folder}"
            yield folder, [Finding("REC001", Severity.ERROR, message)]
        for file in inside:
            yield file, []
