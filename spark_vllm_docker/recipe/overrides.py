"""Parameters and environment from the recipe and from what is laid over it, with their origins.

From weak to strong: the recipe, its `when:` block, the user's configuration, the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spark_vllm_docker.errors import UsageError
from spark_vllm_docker.recipe.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Parameter:
    """A value and its origin: `recipes/x.yaml:12:3`, `--set`, a line of the configuration."""

    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class EnvValue:
    """A variable of the server. `from_host` takes the value from the launcher's own environment at
    create time; `expand` lets bash expand a `$` in it inside the container.
    """

    value: str
    origin: str
    expand: bool = False
    from_host: bool = False


@dataclass(frozen=True, slots=True)
class Override:
    """A value for a parameter or a variable. `value` is text from a command line, or data from
    YAML; None is a variable of the host.
    """

    name: str
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Overrides:
    """All that is laid over a recipe, the stronger one later."""

    sets: tuple[Override, ...] = ()
    env: tuple[Override, ...] = ()


def parse_set(text: str) -> Override:
    """Split `name=value`.

    Raises:
        UsageError: it has no `=`, no proper name, or no value.
    """
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"-?[A-Za-z_][A-Za-z0-9_.-]*", name):
        raise UsageError(f"--set {name}: expected name=value", hint="for example --set port=8010")
    if not value.strip():
        raise UsageError(f"--set {name}=: the value is empty", hint=f"--set {name}=<value>")
    return Override(name, value, "--set")


def parse_env(text: str) -> Override:
    """Split `NAME=value`; `NAME` alone is taken from the launcher's environment.

    Raises:
        UsageError: it has no proper name.
    """
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
        raise UsageError(f"--env {name}: expected NAME=value", hint="for example --env HF_TOKEN")
    return Override(name, value if equals else None, "--env")


def resolve_parameters(recipe: Recipe, sets: Iterable[Override]) -> Mapping[str, Parameter]:
    """The recipe's values with the overrides on top.

    Raises:
        UsageError: an override that the command does not use. Dropping it in silence would start a
            server with another setting than the one asked for.
    """
    parameters = {
        name: Parameter(value, recipe.origin(recipe.paths[name]))
        for name, value in recipe.values.items()
    }
    for override in sets:
        name = recipe.command.find_parameter(override.name)
        if not name:
            raise _unused(recipe, override)
        value = override.value
        if isinstance(value, str):
            current = parameters[name].value if name in parameters else None
            try:
                value = recipe.command.parse_value(name, value, current)
            except ValueError as error:
                raise UsageError(f"{override.origin} {override.name}: {error}") from error
        parameters[name] = Parameter(value, override.origin)
    return parameters


def resolve_env(recipe: Recipe, env: Iterable[Override]) -> Mapping[str, EnvValue]:
    """The recipe's environment with the overrides on top. An override's `$` is a `$`."""
    literal = recipe.keys.env_is_literal
    values = {
        name: EnvValue(
            text := str(value), recipe.origin(("env", name)), not literal and "$" in text
        )
        for name, value in recipe.keys.env.items()
    }
    for override in env:
        from_host = override.value is None
        text = "" if from_host else str(override.value)
        values[override.name] = EnvValue(text, override.origin, from_host=from_host)
    return values


def _unused(recipe: Recipe, override: Override) -> UsageError:
    why, instead = recipe.command.say_unknown(override.name)
    return UsageError(f"{override.origin} {override.name}=…: {recipe.name}: {why}", hint=instead)
