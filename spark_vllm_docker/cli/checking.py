"""One recipe file → every finding, also when its keys have faults."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_vllm_docker.findings import Finding
    from spark_vllm_docker.recipe.recipe import Recipe

_MISLEADING = ("FLAG010", "REC009", "REC010")
"""Codes that, of what is left of a recipe, may come from what is not left."""


def check_file(file: Path) -> tuple[list[Finding], Recipe | None]:
    """The findings for each kind of hardware that the recipe tells apart; and the recipe, where the
    file is one.
    """
    from spark_vllm_docker.errors import InvalidRecipe, RecipeNotFound
    from spark_vllm_docker.findings import Finding, Severity
    from spark_vllm_docker.recipe.load import load_recipe

    try:
        recipe = load_recipe(file)
    except InvalidRecipe as error:
        return find_the_rest(file, error.findings), None
    except RecipeNotFound as error:
        return [Finding("REC001", Severity.ERROR, error.message, None, error.hint)], None
    findings = _check_read(recipe)
    for hardware in recipe.when:
        try:
            more = _check_read(load_recipe(file, hardware))
        except InvalidRecipe as error:
            more = find_the_rest(file, error.findings, hardware)
        findings += [finding for finding in more if finding not in findings]
    return findings, recipe


def find_the_rest(file: Path, known: Sequence[Finding], hardware: str = "") -> list[Finding]:
    """The findings that are known of a file whose keys have faults, and those of all the rest."""
    from spark_vllm_docker.findings import Where
    from spark_vllm_docker.recipe.salvage import UNKNOWN, salvage_recipe

    found = list(known)
    more, left = salvage_recipe(file, known, hardware)
    found += more
    kinds = left.when if left is not None and not hardware else ()
    for one in (left, *(salvage_recipe(file, known, kind)[1] for kind in kinds)):
        told = {(finding.where, finding.code) for finding in found}
        found += [
            finding
            for finding in (_check_read(one) if one is not None else ())
            if (finding.where, finding.code) not in told
            and finding.code not in _MISLEADING
            and f"'{UNKNOWN}'" not in finding.message
        ]
    return sorted(found, key=lambda finding: finding.where or Where(str(file)))


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
