"""Everything that can be said of a recipe file without asking an engine."""

from __future__ import annotations

from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.plan.flags import check_flags
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import parse_serve


def check_recipe(recipe: Recipe) -> list[Finding]:
    """Findings about a recipe whose keys are valid."""
    findings = [
        *recipe.notes,
        *_check_parameters(recipe),
        *_check_command(recipe),
        *check_flags(recipe),
    ]
    return sorted(findings, key=lambda finding: finding.where or recipe.source.start)


def _check_parameters(recipe: Recipe) -> list[Finding]:
    """A parameter that the command does not use sets nothing."""
    return [
        Finding(
            "REC008",
            Severity.WARNING,
            f"defaults.{name}: the command has no {{{name}}}",
            recipe.source.where(("defaults", name)),
            f"write {{{name}}} where it belongs, or remove it",
        )
        for name in recipe.unused
    ]


def _check_command(recipe: Recipe) -> list[Finding]:
    if parse_serve(recipe.command.text) is not None:
        return []
    where = recipe.source.where(("command",), value=True)
    message = "the command starts no `vllm serve`: its flags and names are not checked"
    return [Finding("REC010", Severity.NOTE, message, where)]
