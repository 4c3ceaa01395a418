"""Known bad combinations of image, checkpoint, hardware and flags, as data with evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from spark_vllm_docker.catalog.yaml_data import read_data


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One entry of `data/incompatibilities.yaml`; its header says what the conditions mean."""

    id: str
    severity: str
    message: str
    fix: str
    evidence: str
    conditions: dict[str, Any] = field(default_factory=dict)


_TOLD = ("id", "severity", "message", "fix", "evidence")


@cache
def load_incompatibilities() -> tuple[Incompatibility, ...]:
    """All entries, in the order of the file."""
    return tuple(
        Incompatibility(
            **{key: str(entry[key]) for key in _TOLD},
            conditions={key: value for key, value in entry.items() if key not in _TOLD},
        )
        for entry in read_data("incompatibilities.yaml")
    )
