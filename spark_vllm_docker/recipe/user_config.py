"""The user's own file: what holds for every recipe on this machine, and for single ones.

hardware: dgx-spark
env: {HF_HUB_OFFLINE: 1}
recipes:
  nemotron-omni:
    set: {max-model-len: 32768}
    env: {VLLM_LOGGING_LEVEL: DEBUG}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from spark_vllm_docker.errors import RecipeNotFound
from spark_vllm_docker.recipe.faults import raise_sorted, validate_keys
from spark_vllm_docker.recipe.models import Env, HardwareName, Settings, empty_as
from spark_vllm_docker.recipe.overrides import Override, Overrides
from spark_vllm_docker.recipe.source import Source, parse_yaml, read_text

_VARIABLE = "SPARK_RECIPE_CONFIG"


class RecipeSettings(BaseModel):
    """What is laid over one recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    sets: Annotated[Settings, Field(alias="set")] = Field(default_factory=dict)
    env: Env = Field(default_factory=dict)


class UserConfig(BaseModel):
    """The file. Its `recipes` are named as in `ps`, or as their files."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    hardware: HardwareName | None = None
    env: Env = Field(default_factory=dict)
    recipes: Annotated[dict[str, RecipeSettings | None], empty_as(dict)] = Field(
        default_factory=dict
    )


def find_user_config(environ: Mapping[str, str]) -> Path:
    """`$SPARK_RECIPE_CONFIG`, else `spark-recipe/config.yaml` in `~/.config`.

    Raises:
        RecipeNotFound: the variable names a file that is not there.
    """
    if named := environ.get(_VARIABLE):
        if not Path(named).is_file():
            raise RecipeNotFound(f"{_VARIABLE}: there is no file {named}")
        return Path(named)
    folder = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '~')}/.config"
    return Path(folder) / "spark-recipe/config.yaml"


def load_user_config(path: Path) -> tuple[UserConfig, Source]:
    """Read the file; one that is not there says nothing.

    Raises:
        RecipeNotFound: it is there and cannot be read.
        InvalidRecipe: with every fault that it has.
    """
    empty = Source(str(path), {})
    if not path.exists():
        return UserConfig.model_construct(), empty
    text = read_text(path)
    if not any(row.strip() and not row.lstrip().startswith("#") for row in text.splitlines()):
        return UserConfig.model_construct(), empty
    source = parse_yaml(text, str(path))
    config, findings = validate_keys(UserConfig, source.data, source)
    if config is None:
        raise_sorted(findings, path)
    return config, source


def find_overrides(config: UserConfig, source: Source, names: tuple[str, ...]) -> Overrides:
    """What the file lays over a recipe that has one of these names."""
    env = [_override(source, ("env", name), value) for name, value in config.env.items()]
    sets: list[Override] = []
    for recipe, settings in config.recipes.items():
        if recipe in names and settings is not None:
            base = ("recipes", recipe)
            sets += [_override(source, (*base, "set", n), v) for n, v in settings.sets.items()]
            env += [_override(source, (*base, "env", n), v) for n, v in settings.env.items()]
    return Overrides(tuple(sets), tuple(env))


def _override(source: Source, path: tuple[str, ...], value: Any) -> Override:
    if path[-2] == "env":
        value = "" if value is None else str(value)
    return Override(path[-1], value, str(source.where(path)))
