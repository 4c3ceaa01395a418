"""Everything that can be said of a recipe file without asking an engine."""

from __future__ import annotations

from spark_vllm_docker.findings import Finding, Severity, Where
from spark_vllm_docker.plan.flags import check_flags
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import parse_serve
from spark_vllm_docker.recipe.shell import scan_shell
from spark_vllm_docker.recipe.template_command import CommandPlaces


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
        return _check_continuations(recipe)
    where = recipe.source.where(("command",), value=True)
    message = "the command starts no `vllm serve`: its flags and names are not checked"
    return [Finding("REC010", Severity.NOTE, message, where)]


def _check_continuations(recipe: Recipe) -> list[Finding]:
    """A line that begins with a flag is a command of its own to bash."""
    for simple in scan_shell(recipe.command.text).commands:
        first = simple.words[0]
        if first.value.startswith("--"):
            where = find_word(recipe, first.start)
            message = f"{first.value[:40]} begins a line, and bash takes it for a command"
            fix = "end the line before it with a backslash"
            return [Finding("REC024", Severity.ERROR, message, where, fix)]
    return []


def find_word(recipe: Recipe, offset: int) -> Where:
    """The place of a word of a command that is written as text."""
    if ("command",) in recipe.source.values:
        return CommandPlaces(recipe.source).find(offset)
    return recipe.source.start
