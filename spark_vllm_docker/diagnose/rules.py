"""The rules of known failures: `data/rules/`, one file each.

A rule names the lines by which a failure is known (`patterns`, regular expressions for one line,
with named captures), lines of which one must be elsewhere in the log too (`also`), the cause, and
the fix.
`{{ name }}` in a text stands for a capture, or for a number of `compute`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from math import ceil, floor, isnan, nan
from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).parent / "data/rules"
_PLACE = re.compile(r"\{\{ (\w+) \}\}")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
REQUEST = "request"
"""The phase of rules about one request that a healthy server refused."""


@dataclass(frozen=True, slots=True)
class Fix:
    """What mends a failure. `kind` is flag, env, image, host or request; `flags` are set, or taken
    away where the value is None. `automatic` ones need nobody's judgement.
    """

    kind: str
    text: str
    flags: Mapping[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    automatic: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """One failure. `weight` orders rules that match the same line: the larger is the more exact."""

    id: str
    name: str
    phases: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    also: tuple[re.Pattern[str], ...]
    compute: Mapping[str, tuple[Any, ...]]
    cause: str
    fix: Fix
    weight: int
    beats: tuple[str, ...]
    samples: tuple[str, ...]
    near_misses: tuple[str, ...]

    @property
    def about_a_request(self) -> bool:
        """Whether it tells of a request, and not of the server."""
        return self.phases == (REQUEST,)


@cache
def load_rules() -> dict[str, Rule]:
    """All rules by id. Takes some 50 ms: not before a line is there."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    rules = {}
    for path in sorted(_FOLDER.glob("*.yaml")):
        data = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506 - it is safe
        rules[path.stem] = _build(data)
    return rules


@cache
def load_benign() -> re.Pattern[str]:
    """Lines that look bad and stop nothing."""
    text = (Path(__file__).parent / "data/benign.yaml").read_text(encoding="utf-8")
    return re.compile("|".join(yaml.safe_load(text)["lines"]))


def _build(data: dict[str, Any]) -> Rule:
    fix = data["fix"]
    return Rule(
        id=data["id"],
        name=data["name"],
        phases=tuple(data["phases"]),
        patterns=tuple(re.compile(pattern) for pattern in data["patterns"]),
        also=tuple(re.compile(pattern) for pattern in data.get("also", ())),
        compute={name: tuple(call) for name, call in data.get("compute", {}).items()},
        cause=data["cause"],
        fix=Fix(
            fix["kind"],
            fix["text"],
            fix.get("set", {}),
            fix.get("env", {}),
            fix.get("automatic", False),
        ),
        weight=data.get("weight", 1),
        beats=tuple(data.get("beats", ())),
        samples=tuple(data["samples"]),
        near_misses=tuple(data["near_misses"]),
    )


def compute_values(rule: Rule, captures: Mapping[str, str]) -> dict[str, str]:
    """The captures, and the numbers that follow from them."""
    values = dict(captures)
    for name, (formula, *arguments) in rule.compute.items():
        numbers = [
            _read_number(values.get(part, "")) if isinstance(part, str) else part
            for part in arguments
        ]
        if not any(map(isnan, numbers)):
            values[name] = _FORMULAS[formula](*numbers)
    return values


def is_plausible(flag: str, value: str) -> bool:
    """Whether a number that a fix sets, taken from a log, can be meant: a line that was cut, or
    written by anybody, must not set 0, or 400 % of the memory.
    """
    if not value.isascii() or not value.isprintable():
        return False
    least, most = _RANGES.get(flag, (None, None))
    if least is None or most is None:
        return True
    number = _read_number(value)
    return least <= number <= most and "," not in value


_RANGES = {
    "max-model-len": (512, 1 << 24),
    "max-num-batched-tokens": (512, 1 << 24),
    "max-num-seqs": (1, 1 << 16),
    "gpu-memory-utilization": (0.1, 1.0),
    "block-size": (1, 1 << 20),
    "tensor-parallel-size": (1, 1 << 10),
}


def _read_number(text: str) -> float:
    """`8,192` → 8192; NaN for what is no number of at most twelve digits."""
    found = re.fullmatch(r"[0-9][0-9,]{0,15}(?:\.[0-9]{1,9})?", text)
    return float(text.replace(",", "")) if found else nan


def _multiple_at_least(block: float, wanted: float) -> str:
    """The smallest multiple of `block` that is at least `wanted`."""
    return str(int(block * ceil(wanted / block))) if block > 0 else ""


def _share_below(free: float, total: float) -> str:
    """The utilisation that `free` of `total` GiB allow, with 0.02 to spare."""
    share = floor((free / total - 0.02) * 100) / 100 if total > 0 else 0.0
    return f"{share:.2f}" if share > 0 else ""


_FORMULAS = {"multiple_at_least": _multiple_at_least, "share_below": _share_below}


def fill(text: str, values: Mapping[str, str]) -> tuple[str, bool]:
    """A text with its values, and whether all of them are known."""
    missing = [name for name in _PLACE.findall(text) if not values.get(name)]

    def place(found: re.Match[str]) -> str:
        value = values.get(found[1]) or "…"
        return value.replace(",", "") if _GROUPED.fullmatch(value) else value

    return _PLACE.sub(place, text), not missing
