"""The keys of a recipe in each of its forms, as pydantic sees them.

`ContainerKeys` are ours and the same in every form: what `docker run` needs to serve a model on a
GPU machine. The forms below add their own keys; `Keys` is what `load.py` makes of any of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

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
Size = Annotated[
    str, StringConstraints(pattern=r"^[0-9]{1,12}([kKmMgGtT][iI]?[bB]?|[bB])?$", to_lower=True)
]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Text = Annotated[str, StringConstraints(min_length=1)]
CommandText = Annotated[str, StringConstraints(min_length=1, max_length=1 << 16)]
Modality = Literal["text", "image", "audio", "video"]
HardwareName = Literal["dgx-spark", "h100", "h200", "b200", "a100", "l40s", "rtx-pro-6000", "cpu"]


def empty_as(kind: type) -> BeforeValidator:
    """A key with only comments under it is YAML's null; people mean an empty list or mapping."""
    return BeforeValidator(lambda value: kind() if value is None else value)


def _as_text(value: object) -> object:
    """`recipe_version: 1` without quotes is what people write."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


TextList = Annotated[list[str], empty_as(list)]
Defaults = Annotated[dict[str, Scalar], empty_as(dict)]
Settings = Annotated[dict[str, Any], empty_as(dict)]
Env = Annotated[dict[EnvName, Scalar], empty_as(dict)]


class ContainerKeys(BaseModel):
    """How the container runs. The same keys in every form of a recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    env: Env = Field(default_factory=dict, description="Environment of the server.")
    mods: TextList = Field(
        default_factory=list,
        description="Folders with a run.sh that patches the image before the server starts.",
    )
    build_args: TextList = Field(
        default_factory=list, description="For the format's own image builder; not used here."
    )
    solo_only: bool = Field(default=False, description="Runs on one machine only.")
    cluster_only: bool = Field(default=False, description="Runs on several machines only.")
    network: Literal["bridge", "host"] = Field(
        default="bridge",
        description="host: the machine's own network, where the server decides who can reach it.",
    )
    gpus: Literal["all", "none"] | Annotated[list[GpuNumber], Field(min_length=1)] = Field(
        default="all", description="all, none, or a list of GPU numbers."
    )
    ipc: Literal["host", "private"] = Field(default="host", description="IPC namespace.")
    shm_size: Size = Field(default="16g", description="Size of /dev/shm, such as 16g.")
    volumes: Annotated[list[Volume], empty_as(list)] = Field(
        default_factory=list,
        description="SOURCE:/TARGET or SOURCE:/TARGET:ro; relative to the recipe's folder.",
    )
    build: str | None = Field(
        default=None, description="A folder with a Dockerfile; relative to the recipe's folder."
    )
    stall_timeout_s: Seconds = Field(
        default=900.0, description="Seconds without any sign of life that count as a stall."
    )
    ready_timeout_s: Seconds | None = Field(
        default=None, description="Seconds until ready, in all."
    )


class Keys(ContainerKeys):
    """A recipe of any form, after reading: what to run it in, and what it says about itself.

    `setup` are bash steps before the command. `env_is_literal` is for forms in which a `$` in a
    value is a `$`; `tags`, `modalities` and `hardware` are what `list` searches.
    """

    name: Name
    container: ImageReference
    description: str = ""
    model: str | None = None
    setup: TextList = Field(default_factory=list)
    tags: TextList = Field(default_factory=list)
    modalities: list[Modality] = Field(default_factory=list)
    hardware: list[HardwareName] = Field(default_factory=list)
    env_is_literal: bool = False


class Version1(ContainerKeys):
    """A version-1 recipe: the keys of the runner that the format comes from."""

    recipe_version: Annotated[Literal["1"], BeforeValidator(_as_text)] = Field(
        description="The version of the format."
    )
    name: Name = Field(description="The name in ps, logs and down.")
    container: ImageReference = Field(description="The image.")
    command: CommandText = Field(
        description="Bash with {parameters}; {{ and }} are literal braces."
    )
    description: str = Field(default="", description="Shown by list.")
    model: str | None = Field(default=None, description="The model, for people and tools.")
    defaults: Defaults = Field(default_factory=dict, description="Values of the parameters.")


class Override(BaseModel):
    """One entry of a version-2 recipe's `overrides:`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    when: Annotated[dict[str, Any], Field(min_length=1)] = Field(description="What must hold.")
    defaults: Settings = Field(default_factory=dict, description="Values then.")
    env: Env = Field(default_factory=dict, description="Environment then.")
    container: ImageReference | None = Field(default=None, description="The image then.")


class Version2(ContainerKeys):
    """A version-2 recipe (sparkrun). Keys that nothing here acts on are told, not refused."""

    recipe_version: Annotated[Literal["2"], BeforeValidator(_as_text)] = Field(
        default="2", description="The version of the format."
    )
    name: Name | None = Field(default=None, description="The name; without one, the file's.")
    model: Text = Field(description="A Hugging Face model id or an absolute path.")
    model_revision: str | None = Field(default=None, description="A revision of the model.")
    runtime: str = Field(default="", description="vllm, vllm-distributed, vllm-ray, eugr-vllm.")
    container: ImageReference = Field(description="The image.")
    description: str = Field(default="", description="Shown by list.")
    metadata: Settings = Field(default_factory=dict, description="About the model.")
    min_nodes: Annotated[int, Field(ge=1)] = Field(default=1, description="Machines, at least.")
    max_nodes: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Machines, at most."
    )
    mode: Literal["auto", "solo", "cluster"] = Field(default="auto", description="Deprecated.")
    include: str | None = Field(default=None, description="A recipe in the same folder.")
    defaults: Settings = Field(default_factory=dict, description="Values of the parameters.")
    overrides: Annotated[list[Override], empty_as(list)] = Field(
        default_factory=list, description="Values for a layout or a kind of hardware."
    )
    command: CommandText | None = Field(
        default=None, description="Bash with {parameters}; without it, built from defaults."
    )
    pre_exec: Annotated[list[Any], empty_as(list)] = Field(
        default_factory=list, description="Steps inside the container before the server."
    )


class StructuredBlock(ContainerKeys):
    """What a structured recipe says, and what each of its `when:` blocks may say instead."""

    container: ImageReference | None = Field(default=None, description="The image.")
    model: str | None = Field(default=None, description="The model: the word after `vllm serve`.")
    setup: TextList = Field(
        default_factory=list, description="Bash steps before the server; a failing one ends it."
    )
    serve: Settings = Field(
        default_factory=dict,
        description="Flags of vllm serve: true is a bare flag, false its --no- form, null none, "
        "a mapping is JSON.",
    )


class Structured(StructuredBlock):
    """A structured recipe: flags as YAML instead of a command."""

    name: Name | None = Field(default=None, description="The name; without one, the file's.")
    description: str = Field(default="", description="Shown by list.")
    tags: TextList = Field(default_factory=list, description="Words that list --tag finds.")
    modalities: Annotated[list[Modality], empty_as(list)] = Field(
        default_factory=list, description="What the server is promised to understand."
    )
    hardware: Annotated[list[HardwareName], empty_as(list)] = Field(
        default_factory=list, description="The machines that it is made for."
    )
    extends: str | None = Field(
        default=None, description="Another structured recipe: its name, or a file beside this one."
    )
    when: Annotated[dict[str, StructuredBlock | None], empty_as(dict)] = Field(
        default_factory=dict, description="What is different on a kind of hardware."
    )


def name_of_file(path: Path) -> str:
    """A recipe's name from its file's, without what a name cannot have."""
    text = path.stem.encode(errors="replace").decode()
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", "-", text)[:100].strip() or "recipe"


_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def size_in_bytes(size: str) -> int:
    """Bytes of a size such as `16g`, read as Docker does: powers of 1024, no fractions."""
    number, unit = re.fullmatch(r"(\d+)([a-z]*)", size).groups()  # type: ignore[union-attr]
    return int(number) * _UNITS[unit[:1]]
