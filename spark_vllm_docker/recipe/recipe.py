"""`Recipe`: what every form of a recipe file becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from spark_vllm_docker.findings import Finding
from spark_vllm_docker.recipe.command import Command
from spark_vllm_docker.recipe.models import Keys
from spark_vllm_docker.recipe.source import KeyPath, Source


class Form(StrEnum):
    """How the file is written."""

    VERSION_1 = "version 1"
    VERSION_2 = "version 2"
    STRUCTURED = "structured"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A valid recipe: typed keys, the command, its parameters, and where everything stands.

    `values` are the parameters with the recipe's own values and `paths` where each is in `source`.
    `when` names the hardware that the recipe tells apart, and `hardware` the one it was read for.
    `unused` are values that do nothing. `notes` are findings of the reading.
    """

    file: Path
    form: Form
    keys: Keys
    command: Command
    values: Mapping[str, object]
    paths: Mapping[str, KeyPath]
    source: Source
    notes: tuple[Finding, ...] = ()
    when: tuple[str, ...] = ()
    hardware: str = ""
    unused: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        """The name under which it is deployed and listed."""
        return self.keys.name

    def origin(self, path: KeyPath) -> str:
        """Where a value comes from: `recipes/x.yaml:12:3`, and the `when:` block if it is one."""
        layer = self.source.layers.get(path[:2]) or self.source.layers.get(path[:1], "")
        place = str(self.source.where(path))
        return f"{place} ({layer})" if layer else place
