"""Parameters from the recipe and from the command line, each with where it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_vllm_docker.errors import UsageError
from spark_vllm_docker.findings import Where, did_you_mean
from spark_vllm_docker.recipe.load import Recipe


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value and its origin: `recipes/x.yaml:12` or `--set`."""

    value: object
    origin: str


def parse_set(text: str) -> tuple[str, str]:
    """Split `name=value`.

    Raises:
        UsageError: it has no `=` or no proper name.
    """
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"--set {name}: expected name=value", hint="for example --set port=8010")
    return name, value


def resolve_parameters(recipe: Recipe, sets: Iterable[tuple[str, str]]) -> Mapping[str, Parameter]:
    """The recipe's defaults with the overrides on top.

    Raises:
        UsageError: an override that the command does not use. Dropping it in silence would start a
            server with another setting than the one asked for.
    """
    parameters = {
        name: Parameter(value, str(_place_of(name, recipe)))
        for name, value in recipe.values.items()
    }
    used = recipe.command.names
    for name, value in sets:
        if name not in used:
            flag = name.replace("_", "-")
            raise UsageError(
                f"--set {name}=…: the command of {recipe.name} has no {{{name}}}"
                f"{did_you_mean(name, sorted(used))}",
                hint=f"write {{{name}}} in the command, or append the flag: -- --{flag} …",
            )
        if not value.strip():
            raise UsageError(f"--set {name}=: the value is empty", hint=f"--set {name}=<value>")
        parameters[name] = Parameter(_typed_like(value, recipe.values.get(name)), "--set")
    return parameters


def _place_of(name: str, recipe: Recipe) -> Where:
    in_defaults = name in recipe.keys.defaults
    return recipe.source.where(("defaults", name) if in_defaults else (name,))


def _typed_like(text: str, default: object) -> object:
    """A number where the default is one, so that `{port:d}` goes on working; else the text."""
    if isinstance(default, bool) or not isinstance(default, (int, float)):
        return text
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        if str(number) == text:
            return number
    return text
