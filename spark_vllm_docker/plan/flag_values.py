"""Is a value one that vLLM's parser takes for a flag?"""

from __future__ import annotations

import json
import re
from typing import Any

from spark_vllm_docker.findings import did_you_mean
from spark_vllm_docker.recipe.arguments import Given
from spark_vllm_docker.recipe.command import Argument

_BY_MODALITY = ("--limit-mm-per-prompt", "--media-io-kwargs")
_MODALITIES = ("image", "audio", "video")
_HUMAN = re.compile(r"(-1|\d+|\d+[KMGTkmgt]|\d+\.\d+[kmgt])")
_INT = re.compile(r"[+-]?\d+")
# Fields whose range vLLM's config classes check (pydantic, vllm/config/*.py).
_RANGES: dict[str, tuple[float, float, str]] = {
    "--gpu-memory-utilization": (0.0, 1.0, "a fraction above 0, at most 1"),
    "--port": (1, 65535, "a port from 1 to 65535"),
    "--tensor-parallel-size": (1, 4096, "at least 1"),
    "--pipeline-parallel-size": (1, 4096, "at least 1"),
    "--data-parallel-size": (1, 4096, "at least 1"),
    "--max-num-seqs": (1, 1 << 40, "at least 1"),
    "--max-num-batched-tokens": (1, 1 << 40, "at least 1"),
}


def find_value_fault(given: Given, flag: dict[str, Any]) -> tuple[Argument | None, str]:
    """The word at fault and what is wrong; an empty message when nothing is."""
    values = given.values
    kind = flag["kind"]
    if given.key:
        return _key_fault(given, flag)
    if kind in ("bool", "store_true", "store_false"):
        if not values:
            return None, ""
        opposite = f"; write --no-{given.name[2:]}" if flag.get("negatable") else ""
        off = opposite if values[0].value.lower() in ("false", "0", "no", "off") else ""
        return values[0], f"takes no value, found '{values[0].value}'{off}"
    if not values:
        free = kind in ("optional-value", "custom") or flag.get("nargs") in ("?", "*")
        return None, "" if free else "needs a value"
    nargs = flag.get("nargs")
    if len(values) > 1 and nargs not in ("+", "*") and not isinstance(nargs, int):
        return values[1], f"takes one value, found '{values[1].value}' after it"
    for value in values:
        if message := _scalar_fault(given.name, value.value, flag):
            return value, message
    return None, ""


def _scalar_fault(name: str, value: str, flag: dict[str, Any]) -> str:
    if flag.get("nullable") and value in ("", "None"):
        return ""
    choices = flag.get("choices")
    if choices and flag["type"] in ("str", "int") and value not in {str(c) for c in choices}:
        known = ", ".join(str(choice) for choice in choices)
        close = did_you_mean(value, [str(choice) for choice in choices])
        return f"expected one of {known}, found '{value}'{close}"
    match flag["type"]:
        case "int" if not _INT.fullmatch(value):
            return f"expected a whole number, found '{value}'"
        case "human_int" | "human_int_or_auto" if not _HUMAN.fullmatch(value):
            if flag["type"] == "human_int_or_auto" and value == "auto":
                return ""
            return f"expected a whole number such as 8192 or 64K, found '{value}'"
        case "float" if _as_float(value) is None:
            return f"expected a number, found '{value}'"
        case "json" if flag["kind"] == "json":
            return _json_fault(value, flag) or _modality_fault(name, value)
    return _range_fault(name, value)


def _range_fault(name: str, value: str) -> str:
    if name == "--max-model-len" and value in ("0", "-0"):
        return "expected at least 1, or auto, found 0"
    number = _as_float(value)
    if name not in _RANGES or number is None:
        return ""
    low, high, words = _RANGES[name]
    inside = low < number <= high if name == "--gpu-memory-utilization" else low <= number <= high
    return "" if inside else f"expected {words}, found {value}"


def _json_fault(value: str, flag: dict[str, Any]) -> str:
    try:
        data = json.loads(value)
    except json.JSONDecodeError as error:
        return f"is not JSON: {error.msg.lower()} at character {error.pos + 1} of {value[:60]!r}"
    except RecursionError:
        return "is JSON of more levels than anything reads"
    fields = flag.get("fields")
    if fields and isinstance(data, dict):
        for key in data:
            if key not in fields:
                return f"has no field '{key}'{did_you_mean(key, fields)}"
    return ""


def _modality_fault(name: str, value: str) -> str:
    """A key that is nearly a modality. Others may exist: models bring their own."""
    data = json.loads(value) if name in _BY_MODALITY else None
    for key in data if isinstance(data, dict) else ():
        if key not in _MODALITIES and (close := did_you_mean(key, _MODALITIES)):
            return f"knows no '{key}'{close}"
    return ""


def _key_fault(given: Given, flag: dict[str, Any]) -> tuple[Argument | None, str]:
    """`--flag.key value`."""
    if flag["kind"] not in ("json", "json-or-str"):
        return None, f"is no JSON flag, so '.{given.key}' has no meaning"
    key, fields = given.key.split(".")[0], flag.get("fields")
    if fields and key.replace("-", "_") not in fields:
        return None, f"has no field '{key}'{did_you_mean(key, fields)}"
    return None, "" if given.values else "needs a value"


def _as_float(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
