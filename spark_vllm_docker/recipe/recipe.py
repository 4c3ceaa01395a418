"""`Recipe`: what every form of a recipe file becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spark_vllm_docker.findings import Finding
from spark_vllm_docker.recipe.command import Command
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.models import Keys
from spark_vllm_docker.recipe.source import KeyPath, Source
from spark_vllm_docker.recipe.template import fill_template, parse_version2, resolve_values


@dataclass(frozen=True, slots=True)
class Recipe:
    """A valid recipe: typed keys, the command, its parameters, and where everything stands.

    `values` are the parameters with the recipe's own values and `paths` where each is in `source`.
    `when` names the hardware that the recipe tells apart, and `hardware` the one it was read for.
    `unused` are values that do nothing, `step_values` those of the steps before the server. `notes`
    are findings of the reading.
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
    step_values: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name under which it is deployed and listed."""
        return self.keys.name

    def origin(self, path: KeyPath) -> str:
        """Where a value comes from: `recipes/x.yaml:12:3`, and the `when:` block if it is one."""
        layer = self.source.layers.get(path[:2]) or self.source.layers.get(path[:1], "")
        place = str(self.source.where(path))
        return f"{place} ({layer})" if layer else place

    def folder_of(self, path: KeyPath) -> Path:
        """The folder of the file that a value stands in: this one, or one that it extends."""
        where = self.source.where(path)
        return Path(where.file).parent if where.line else self.file.parent

    def fill_steps(self, values: Mapping[str, object]) -> list[str]:
        """The steps before the server; in version 2 they may have placeholders too."""
        if self.form is not Form.VERSION_2:
            return self.keys.setup
        known = {**self.step_values, **{n: v for n, v in values.items() if n in self.step_values}}
        resolved = resolve_values(known)
        names = frozenset(resolved)
        return [
            fill_template(parse_version2(step, names, doubled=False), resolved)
            for step in self.keys.setup
        ]
