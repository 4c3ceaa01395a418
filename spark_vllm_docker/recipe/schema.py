"""The JSON Schema of recipe files, for editors: keys, flags, parser names, and what each means.

The keys come from the pydantic models, the flags of `serve` from the catalogue of all releases: an
editor cannot know which release is in the image, so a flag's help says which releases have it.
"""

from __future__ import annotations

from typing import Any

from spark_vllm_docker.catalog.flags import load_versions, version_key
from spark_vllm_docker.catalog.hardware_names import HARDWARE
from spark_vllm_docker.recipe.faults import FOREIGN
from spark_vllm_docker.recipe.forms import ONLY_VERSION_2
from spark_vllm_docker.recipe.models import Structured, Version1, Version2

FILE_NAME = "recipe.schema.json"
_OPEN_SETS = {
    "--tool-call-parser": "tool_call_parser",
    "--reasoning-parser": "reasoning_parser",
    "--attention-backend": "attention_backend",
    "--load-format": "load_format",
    "--quantization": "quantization",
}
_HELP = 160
_RANGES = {"--gpu-memory-utilization": {"exclusiveMinimum": 0, "maximum": 1}}


def build_schema() -> dict[str, Any]:
    """The schema of a recipe in any of its forms (JSON Schema, draft 7)."""
    definitions: dict[str, Any] = {}
    forms = {}
    for name, model in (
        ("version-1", Version1),
        ("version-2", Version2),
        ("structured", Structured),
    ):
        schema = model.model_json_schema(ref_template="#/definitions/{model}")
        definitions |= schema.pop("$defs", {})
        forms[name] = _allow_empty(_plain(schema))
    definitions = {name: _allow_empty(_plain(schema)) for name, schema in definitions.items()}
    flags = _build_flags()
    for schema in (forms["structured"], definitions["StructuredBlock"]):
        schema["properties"]["serve"] = {
            "anyOf": [{"$ref": "#/definitions/serve"}, {"type": "null"}]
        }
    when = forms["structured"]["properties"]["when"]
    block = when.pop("additionalProperties")
    when |= {"properties": dict.fromkeys(HARDWARE, block), "additionalProperties": False}
    for schema in (forms["version-1"], forms["version-2"]):
        schema["properties"]["recipe_version"] = {"enum": ["1", 1, "2", 2]}
    for schema in (forms["version-1"], forms["version-2"]):
        for key in sorted(FOREIGN - schema["properties"].keys()):
            schema["properties"][key] = {"description": "Of another runner: not acted on here."}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "spark-recipe recipe",
        "type": "object",
        "definitions": {**definitions, **forms, "serve": flags},
        "if": {"required": ["recipe_version"]},
        "then": {
            "if": {"properties": {"recipe_version": {"enum": ["2", 2]}}},
            "then": {"$ref": "#/definitions/version-2"},
            "else": {"$ref": "#/definitions/version-1"},
        },
        "else": {
            "if": {"anyOf": [{"required": [key]} for key in sorted(ONLY_VERSION_2)]},
            "then": {"$ref": "#/definitions/version-2"},
            "else": {"$ref": "#/definitions/structured"},
        },
    }


def _build_flags() -> dict[str, Any]:
    """Every flag that any release has. Short flags and dotted keys are allowed, and not
    described.
    """
    versions = load_versions()
    newest = next(reversed(versions))
    records: dict[str, dict[str, Any]] = {}
    having: dict[str, list[str]] = {}
    sets: dict[str, set[str]] = {}
    for version, known in versions.items():
        for name, flag in known.flags.items():
            records[name] = _join(records.get(name), flag)
            for alias in flag.get("aliases", ()):
                if alias.startswith("--"):
                    records.setdefault(alias, flag)
                    having.setdefault(alias, []).append(version)
            having.setdefault(name, []).append(version)
        for name, values in known.sets.items():
            sets.setdefault(name, set()).update(values)
    properties = {}
    for name, flag in sorted(records.items()):
        accepted = _value_schema(name, flag)
        if name in _OPEN_SETS:
            accepted = [{"enum": sorted(sets.get(_OPEN_SETS[name], ()))}, {"type": "string"}]
        entry: dict[str, Any] = {"anyOf": [*accepted, {"type": "null"}]}
        text = str(flag.get("help", ""))
        entry["description"] = _say(text, having[name], next(iter(versions)), newest)
        properties[name[2:]] = entry
    return {
        "type": "object",
        "description": Structured.model_fields["serve"].description,
        "properties": properties,
        "patternProperties": {
            "^-[A-Za-z]": {},
            "\\.": {},
            # The same names with underscores.
            f"^(?:{'|'.join(name.replace('-', '[-_]') for name in properties)})$": {},
        },
        "additionalProperties": False,
    }


def _join(old: dict[str, Any] | None, new: dict[str, Any]) -> dict[str, Any]:
    """A flag of several releases: every choice that one of them has."""
    if old is None or not (old.get("choices") and new.get("choices")):
        return new
    return {**new, "choices": list(dict.fromkeys([*old["choices"], *new["choices"]]))}


def _say(text: str, having: list[str], oldest: str, newest: str) -> str:
    first = text.split(". ", maxsplit=1)[0].replace("\n", " ").strip().rstrip(".")
    if len(first) > _HELP:
        first = first[: _HELP - 1].rsplit(" ", 1)[0] + "…"
    since = "" if having[0] == oldest else f"since {having[0]}"
    until = "" if version_key(having[-1]) == version_key(newest) else f"until {having[-1]}"
    range_ = ", ".join(part for part in (since, until) if part)
    parts = (f"{first}." if first else "", f"({range_})" if range_ else "")
    return " ".join(part for part in parts if part)


def _value_schema(name: str, flag: dict[str, Any]) -> list[dict[str, Any]]:
    """What YAML may hold for a flag."""
    kind, values = flag["kind"], flag.get("type")
    if kind in ("bool", "store_true", "store_false"):
        return [{"type": "boolean"}]
    schemas: list[dict[str, Any]] = []
    if kind in ("json", "json-or-str"):
        fields = flag.get("fields")
        keys: dict[str, Any] = {"properties": {field: {} for field in fields}} if fields else {}
        schemas = [{"type": "object", **keys}, {"type": ["string", "array"]}]
    elif flag.get("choices"):
        schemas = [{"enum": list(flag["choices"])}]
    elif values == "int":
        schemas = [{"type": "integer"}, {"type": "string", "pattern": r"^[+-]?\d+$"}]
    elif flag.get("type") == "float":
        schemas = [{"type": "number", **_RANGES.get(name, {})}, {"type": "string"}]
    elif values in ("human_int", "human_int_or_auto"):
        schemas = [{"type": "integer"}, {"type": "string"}]
    else:
        schemas = [{"type": ["string", "number"]}]
    if flag.get("nargs") or kind in ("append", "list"):
        schemas.append({"type": "array"})
    if kind == "optional-value":
        schemas.append({"type": "boolean"})
    return schemas


def _allow_empty(schema: dict[str, Any]) -> dict[str, Any]:
    """A key with nothing under it is an empty list or mapping."""
    for value in schema.get("properties", {}).values():
        if value.get("type") in ("array", "object"):
            value["type"] = [value["type"], "null"]
    return schema


def _plain(schema: Any) -> Any:
    """Without pydantic's titles, which editors would show instead of the descriptions."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _plain(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }
