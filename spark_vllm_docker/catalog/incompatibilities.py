"""Known bad combinations of image, checkpoint, hardware and flags, as data with evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml


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
    text = (Path(__file__).parent / "data/incompatibilities.yaml").read_text(encoding="utf-8")
    return tuple(
        Incompatibility(
            **{key: str(entry[key]) for key in _TOLD},
            conditions={key: value for key, value in entry.items() if key not in _TOLD},
        )
        for entry in yaml.safe_load(text)
    )
