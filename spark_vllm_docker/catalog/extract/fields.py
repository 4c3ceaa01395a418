"""Config dataclass fields → what vLLM hands to `add_argument` for them.

The order of the tests is that of `_compute_kwargs` (vllm/engine/arg_utils.py): first match wins.
"""

from __future__ import annotations

import ast
from typing import Any

from spark_vllm_docker.catalog.extract.annotations import (
    Part,
    enum_members,
    first,
    is_any_ellipsis,
    read_annotation,
    scalar_type,
)
from spark_vllm_docker.catalog.extract.tree import (
    MAX_DEPTH,
    Module,
    dotted_name,
    is_dataclass,
    last_name,
)
from spark_vllm_docker.catalog.extract.values import UNKNOWN, as_json, read_default, read_value

Bag = dict[str, Any]
"""The argparse keyword arguments of one flag, and what we note beside them."""


def read_fields(
    module: Module, definition: ast.ClassDef, depth: int = 0
) -> dict[str, tuple[Module, ast.AnnAssign, str]]:
    """The fields of a dataclass with those of its bases: module, node and help text."""
    fields: dict[str, tuple[Module, ast.AnnAssign, str]] = {}
    if depth > MAX_DEPTH:
        return fields
    for base in definition.bases:
        found = module.lookup(base.id) if isinstance(base, ast.Name) else None
        if found and isinstance(found[1], ast.ClassDef) and is_dataclass(found[1]):
            fields |= read_fields(found[0], found[1], depth + 1)
    for index, node in enumerate(definition.body):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        annotation = node.annotation
        head = last_name(annotation.value) if isinstance(annotation, ast.Subscript) else ""
        if head not in ("ClassVar", "InitVar"):
            fields[node.target.id] = (module, node, _help_after(definition.body, index))
    return fields


def _help_after(body: list[ast.stmt], index: int) -> str:
    """The first sentence of the docstring that follows a field."""
    following = body[index + 1] if index + 1 < len(body) else None
    match following:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            sentence = " ".join(text.split()).split(". ")[0]
            return sentence.rstrip(".")[:200]
    return ""


def settable_names(module: Module, definition: ast.ClassDef) -> list[str]:
    """Names of the fields that a JSON value may hold: none of `init=False`, none of `_x`."""
    names = []
    for name, (_, node, _) in read_fields(module, definition).items():
        hidden = isinstance(node.value, ast.Call) and any(
            keyword.arg == "init" and read_value(keyword.value, None) is False
            for keyword in node.value.keywords
        )
        if not hidden and not name.startswith("_"):
            names.append(name)
    return sorted(names)


def find_human_int(module: Module) -> frozenset[str]:
    """Fields that `_compute_kwargs` reads as human-readable integers (`64k`)."""
    names: set[str] = set()
    function = module.defs.get("_compute_kwargs")
    for node in ast.walk(function) if function else ():
        value: Any = UNKNOWN
        match node:
            case ast.Compare(left=left, ops=[ast.In(), *_]) if dotted_name(left) == "name":
                value = read_value(node.comparators[0], module)
            case ast.Assign(value=ast.Set()):
                value = read_value(node.value, module)
        if isinstance(value, (tuple, list, set)) and all(isinstance(v, str) for v in value):
            names.update(value)
    return frozenset(names)


def build_bag(module: Module, node: ast.AnnAssign, help_text: str, human: frozenset[str]) -> Bag:
    """What the generator of vLLM makes of one field."""
    assert isinstance(node.target, ast.Name)  # noqa: S101 - by `read_fields`
    parts = read_annotation(node.annotation, module)
    hint = first(parts, "hint")
    parts = [part for part in parts if part.kind != "hint"]
    kinds = {part.kind for part in parts}
    bag: Bag = {"default": as_json(read_default(module, node), node.value)}
    if help_text:
        bag["help"] = help_text
    bag |= _kind_of(node.target.id, parts, kinds, human)
    enum = first(parts, "enum")
    if enum and bag.get("type") == "str":
        bag["suggested"] = enum_members(enum.detail[1])
    if hint and "choices" not in bag and "suggested" not in bag:
        bag["suggested"] = sorted(hint.detail)
    if "None" in kinds and "bool" not in kinds:
        bag["nullable"] = True
    return bag


def _kind_of(name: str, parts: list[Part], kinds: set[str], human: frozenset[str]) -> Bag:
    if dataclass := first(parts, "dataclass"):
        return {"kind": "json", "type": "json", "fields": settable_names(*dataclass.detail)}
    if kinds == {"bool", "str", "None"}:
        return {"kind": "optional-value", "type": "str", "nargs": "?"}
    if "bool" in kinds:
        return {"kind": "bool", "type": "bool", "negatable": True}
    if "Literal" in kinds:
        values = [value for part in parts if part.kind == "Literal" for value in part.detail]
        bag: Bag = {"kind": "value", "type": type(values[0]).__name__ if values else "str"}
        bag["suggested" if "str" in kinds else "choices"] = sorted(values)
        return bag
    if sequence := first(parts, "tuple", "list", "set"):
        return _sequence(sequence)
    if "int" in kinds:
        human_type = "human_int" if name in human else "int"
        kind = "human_int_or_auto" if name == "max_model_len" else human_type
        return {"kind": "value", "type": kind}
    if "float" in kinds:
        return {"kind": "value", "type": "float"}
    if "dict" in kinds:
        mixed = bool(kinds - {"dict", "None"})
        return {"kind": "json-or-str" if mixed else "json", "type": "json"}
    return {"kind": "value", "type": "str"}


def _sequence(sequence: Part) -> Bag:
    elements: list[list[Part]] = sequence.detail or [[Part("str")]]
    bag: Bag = {"kind": "list", "nargs": "+", "type": scalar_type(elements[0])}
    if sequence.kind == "tuple" and not is_any_ellipsis(elements[-1]):
        bag["nargs"] = len(elements)
    if literal := first(elements[0], "Literal"):
        bag["choices"] = sorted(literal.detail)
    return bag
