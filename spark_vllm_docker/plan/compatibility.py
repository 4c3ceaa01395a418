"""A recipe against the combinations that are known not to work."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_vllm_docker.catalog.flags import version_key
from spark_vllm_docker.catalog.incompatibilities import load_incompatibilities
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.recipe.arguments import Arguments
from spark_vllm_docker.recipe.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known of a start: empty where it is not. `modules` are Python modules that the
    image was seen to have, None where nobody has looked.
    """

    recipe: Recipe
    arguments: Arguments
    shape: ModelShape | None
    version: str
    hardware: str
    modules: frozenset[str] | None = None


def check_compatibility(situation: Situation) -> list[Finding]:
    """A finding for each known combination that holds; one that cannot be told does not."""
    findings = []
    for entry in load_incompatibilities():
        if all(
            _CONDITIONS[name](situation, wanted, entry.conditions)
            for name, wanted in entry.conditions.items()
        ):
            where = situation.recipe.source.where(("container",), value=True)
            message = f"{entry.message} ({entry.evidence})"
            findings.append(Finding(entry.id, Severity(entry.severity), message, where, entry.fix))
    return findings


_STOCK = "^vllm/vllm-openai"
Condition = Callable[[Situation, Any, dict[str, Any]], bool]


def _image(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return re.search(wanted, situation.recipe.keys.container) is not None


def _quantization(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return situation.shape is not None and situation.shape.quantization in wanted


def _architecture(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return situation.shape is not None and situation.shape.architecture in wanted


def _hardware(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return situation.hardware in wanted


def _from(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return bool(situation.version) and version_key(situation.version) >= version_key(wanted)


def _below(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return bool(situation.version) and version_key(situation.version) < version_key(wanted)


def _flag(situation: Situation, wanted: Any, conditions: dict[str, Any]) -> bool:
    given = situation.arguments.find(wanted)
    value = conditions.get("value")
    if given is None or given.negated:
        return False
    words = " ".join((given.key, *(word.value for word in given.values)))
    return value is None or str(value).lower() in words.lower()


def _without(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    given = situation.arguments.find(wanted)
    return given is None or given.negated


def _modality(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return wanted in situation.recipe.keys.modalities


def _no_setup(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    steps = " ".join(situation.recipe.keys.setup) + situation.recipe.command.text
    return re.search(wanted, steps) is None


def _with_value(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    return all(_flag(situation, flag, {"value": value}) for flag, value in wanted.items())


def _lacks(situation: Situation, wanted: Any, _: dict[str, Any]) -> bool:
    """An image that was looked into counts; of one that was not, its name is the best guess."""
    if situation.modules is not None:
        return not set(wanted) <= situation.modules
    return re.search(_STOCK, situation.recipe.keys.container) is not None


def _always(situation: Situation, wanted: Any, conditions: dict[str, Any]) -> bool:
    """`value` belongs to `flag`, which looks at it."""
    del situation, wanted, conditions
    return True


_CONDITIONS: dict[str, Condition] = {
    "image": _image,
    "quantization": _quantization,
    "architecture": _architecture,
    "hardware": _hardware,
    "from": _from,
    "below": _below,
    "flag": _flag,
    "value": _always,
    "without": _without,
    "modality": _modality,
    "no_setup": _no_setup,
    "with_value": _with_value,
    "lacks": _lacks,
}
