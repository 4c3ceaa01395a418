"""The keys of a recipe, as pydantic sees them.

The version-1 keys are those of the runner that the format comes from; the container keys below them
are ours, and their defaults are what `docker run` needs to serve a model on a GPU machine.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

Scalar = Annotated[str | int | float | bool | None, Field(union_mode="left_to_right")]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
]
GpuNumber = Annotated[int, Field(ge=0, le=255)]
Volume = Annotated[str, StringConstraints(pattern=r"^[^:]+:/[^:]*(:ro|:rw)?$")]
ImageReference = Annotated[
    str, StringConstraints(max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")
]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Size = Annotated[str, StringConstraints(pattern=r"^(?i)[0-9]{1,12}([kmgt]i?b?|b)?$", to_lower=True)]


def _empty_as(kind: type) -> BeforeValidator:
    """A key with only comments under it is YAML's null; people mean an empty list or mapping."""
    return BeforeValidator(lambda value: kind() if value is None else value)


def _as_text(value: object) -> object:
    """`recipe_version: 1` without quotes is what people write."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class RecipeModel(BaseModel):
    """A version-1 recipe file, checked for types. The command is checked in `load.py`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    recipe_version: Annotated[Literal["1"], BeforeValidator(_as_text)]
    name: Name
    container: ImageReference
    command: Annotated[str, StringConstraints(min_length=1)]
    description: str = ""
    model: str | None = None
    mods: Annotated[list[str], _empty_as(list)] = Field(default_factory=list)
    defaults: Annotated[dict[str, Scalar], _empty_as(dict)] = Field(default_factory=dict)
    env: Annotated[dict[EnvName, Scalar], _empty_as(dict)] = Field(default_factory=dict)
    build_args: Annotated[list[str], _empty_as(list)] = Field(default_factory=list)
    solo_only: bool = False
    cluster_only: bool = False

    network: Literal["bridge", "host"] = "bridge"
    gpus: Literal["all", "none"] | Annotated[list[GpuNumber], Field(min_length=1)] = "all"
    ipc: Literal["host", "private"] = "host"
    shm_size: Size = "16g"
    volumes: Annotated[list[Volume], _empty_as(list)] = Field(default_factory=list)
    build: str | None = None
    stall_timeout_s: Annotated[float, Field(gt=0, le=86_400)] = 900.0
    ready_timeout_s: Annotated[float, Field(gt=0, le=86_400)] | None = None


_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size_in_bytes(size: str) -> int:
    """Bytes of a size such as `16g`, read as Docker does: powers of 1024, no fractions."""
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", size).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS[unit[:1]]
