"""`overrides:` of version 2: which entries hold on one machine of a kind.

Selectors of one `when` are joined by AND; a value is itself (equal), a list (any of), or a
mapping of operators. An entry with a selector or operator that is not known here does not hold,
and that is told: tuning for a launch that cannot be told apart must not be applied.
"""

from __future__ import annotations

from typing import Any

from spark_vllm_docker.catalog.hardware import load_hardware
from spark_vllm_docker.catalog.hardware_names import CPU
from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.recipe.source import Source

_PARALLEL = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "dp": "data_parallel",
    "ep": "expert_parallel",
}
_OPERATORS = {"eq", "ne", "in", "not_in", "gt", "gte", "lt", "lte"}


def find_layers(source: Source, hardware: str) -> tuple[list[int], list[Finding]]:
    """The indices of the entries that hold, in order, and what could not be told."""
    data: Any = source.data
    entries = data.get("overrides") if isinstance(data, dict) else None
    facts = _facts(data, hardware) if isinstance(entries, list) else {}
    layers: list[int] = []
    findings = []
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        when = entry.get("when") if isinstance(entry, dict) else None
        if not isinstance(when, dict):
            continue  # the keys' own check says so
        answers = [_holds(name, wanted, facts) for name, wanted in when.items()]
        unknown = [name for name, answer in zip(when, answers, strict=True) if answer is None]
        if unknown:
            where = source.where(("overrides", index, "when"))
            message = (
                f"overrides[{index}]: not applied, because {', '.join(unknown)} is not known here"
            )
            findings.append(Finding("REC022", Severity.WARNING, message, where))
        elif all(answers):
            layers.append(index)
    return layers, findings


def _facts(data: dict[str, Any], hardware: str) -> dict[str, object]:
    defaults = data.get("defaults")
    config: dict[str, Any] = defaults if isinstance(defaults, dict) else {}
    facts: dict[str, object] = {"nodes": 1, "config": config}
    facts["runtime"] = data.get("runtime") or "vllm-distributed"
    facts["runtime_family"] = "vllm"
    facts |= {short: config.get(name, 1) for short, name in _PARALLEL.items()}
    machine = load_hardware().get(hardware)
    if machine is not None and machine.name != CPU:
        digits = machine.capability.replace(".", "")
        facts |= {
            "arch": f"sm_{digits}",
            "platform": machine.name,
            "accelerator": machine.name,
            "vendor": "nvidia",
            "memory_gb": machine.memory_gb,
        }
    return facts


def _holds(name: str, wanted: Any, facts: dict[str, object]) -> bool | None:
    """Whether a selector holds; None where that cannot be told."""
    if name == "config":
        config: Any = facts["config"]
        if not isinstance(wanted, dict):
            return None
        answers = [_test(config.get(key), value, absent=True) for key, value in wanted.items()]
        return None if None in answers else all(answers)
    return _test(facts[name], wanted) if name in facts else None


def _test(found: object, wanted: Any, *, absent: bool = False) -> bool | None:
    operators = wanted if isinstance(wanted, dict) else None
    if operators is None:
        operators = {"in" if isinstance(wanted, list) else "eq": wanted}
    if not operators.keys() <= _OPERATORS:
        return None
    return all(_compare(found, operator, to, absent) for operator, to in operators.items())


def _compare(found: object, operator: str, to: Any, absent: bool) -> bool:
    if found is None:
        return absent and operator in ("ne", "not_in")
    if operator in ("gt", "gte", "lt", "lte"):
        one, other = _number(found), _number(to)
        if one is None or other is None:
            return False
        return {
            "gt": one > other,
            "gte": one >= other,
            "lt": one < other,
            "lte": one <= other,
        }[operator]
    among = to if isinstance(to, list) else [to]
    hit = any(_plain(found) == _plain(item) for item in among)
    return hit if operator in ("eq", "in") else not hit


def _plain(value: object) -> object:
    """Numbers as numbers, words without case; true is not 1."""
    if isinstance(value, bool):
        return str(value)
    number = _number(value)
    return number if number is not None else str(value).strip().lower()


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(str(value))
    except ValueError:
        return None
