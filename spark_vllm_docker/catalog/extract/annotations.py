"""Type annotations → flat lists of what a value may be."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from spark_vllm_docker.catalog.extract.tree import (
    MAX_DEPTH,
    Module,
    is_dataclass,
    is_enum,
    last_name,
)
from spark_vllm_docker.catalog.extract.values import UNKNOWN, read_value

_WRAPPERS = ("Annotated", "SkipValidation", "Final", "ClassVar", "InitVar")
_SEQUENCES = ("list", "List", "set", "Set", "tuple", "Tuple", "Sequence")
_PLAIN = ("str", "int", "float", "bool", "dict", "list", "set", "tuple")


@dataclass(frozen=True)
class Part:
    """One alternative of a union.

    `kind` is None, str, int, float, bool, dict, list, set, tuple, Literal, dataclass, enum, hint (a
    `Literal` that only the type checker sees) or other. `detail` is what the kind needs: values,
    element types, or the module and class.
    """

    kind: str
    detail: Any = None


def read_annotation(node: ast.AST, module: Module, depth: int = 0) -> list[Part]:
    """The alternatives of an annotation, names followed."""
    if depth > MAX_DEPTH:
        return [Part("other", "?")]
    match node:
        case ast.Constant(value=None):
            return [Part("None")]
        case ast.Constant(value=str() as text):
            return read_annotation(ast.parse(text, mode="eval").body, module, depth + 1)
        case ast.Constant(value=value):
            return [Part("other", repr(value))]
        case ast.BinOp(op=ast.BitOr()):
            left = read_annotation(node.left, module, depth + 1)
            return left + read_annotation(node.right, module, depth + 1)
        case ast.Subscript():
            return _read_subscript(node, module, depth)
    last = last_name(node)
    if last in _PLAIN:
        return [Part(last, [[Part("str")]] if last in ("list", "set", "tuple") else None)]
    if isinstance(node, ast.Name) and last not in ("Any", "object"):
        found = module.lookup(node.id)
        if found:
            return _read_definition(node.id, *found, depth)
    return [Part("other", last or ast.unparse(node))]


def _read_subscript(node: ast.Subscript, module: Module, depth: int) -> list[Part]:
    head = last_name(node.value)
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if head in _WRAPPERS:
        return read_annotation(parts[0], module, depth + 1)
    if head == "Optional":
        return [*read_annotation(parts[0], module, depth + 1), Part("None")]
    if head == "Union":
        return [alt for part in parts for alt in read_annotation(part, module, depth + 1)]
    if head == "Literal":
        return [Part("Literal", _literal_values(parts, module, depth))]
    if head in _SEQUENCES:
        kind = "list" if head == "Sequence" else head.lower()
        return [Part(kind, [read_annotation(part, module, depth + 1) for part in parts])]
    if head in ("dict", "Dict", "Mapping"):
        return [Part("dict")]
    return [Part("other", ast.unparse(node))]


def _literal_values(parts: list[ast.expr], module: Module, depth: int) -> list[Any]:
    values: list[Any] = []
    for part in parts:
        value = read_value(part, module)
        if isinstance(value, (list, tuple)):
            values += value
        elif value is not UNKNOWN:
            values.append(value)
        else:
            for alternative in read_annotation(part, module, depth + 1):
                if alternative.kind == "Literal":
                    values += alternative.detail
    return values


def _read_definition(name: str, owner: Module, target: ast.AST, depth: int) -> list[Part]:
    if is_dataclass(target):
        return [Part("dataclass", (owner, target))]
    if is_enum(target):
        return [Part("enum", (owner, target))]
    if isinstance(target, ast.ClassDef):
        bases = {last_name(b.value if isinstance(b, ast.Subscript) else b) for b in target.bases}
        return [Part("dict")] if bases & {"TypedDict", "dict"} else [Part("other", name)]
    if not isinstance(target, ast.expr):
        return [Part("other", name)]
    alternatives = read_annotation(target, owner, depth + 1)
    if name in owner.typing and target is owner.assigns.get(name):
        alternatives += _hints(name, owner, depth)
    return alternatives


def _hints(name: str, owner: Module, depth: int) -> list[Part]:
    """The precise type that only the type checker sees: good for suggestions."""
    base, attribute = owner.typing[name]
    precise = owner.tree.module(base)
    found = precise.lookup(attribute or name) if precise else None
    if not found or not isinstance(found[1], ast.expr):
        return []
    alternatives = read_annotation(found[1], found[0], depth + 1)
    return [Part("hint", alt.detail) for alt in alternatives if alt.kind == "Literal"]


def enum_members(node: ast.ClassDef) -> list[str]:
    """The names of an enumeration's members."""
    names = [
        n.targets[0].id
        for n in node.body
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    ]
    return [name for name in names if not name.startswith("_")]


def is_any_ellipsis(parts: list[Part]) -> bool:
    """`…` in `tuple[int, ...]`."""
    return any(part == Part("other", "Ellipsis") for part in parts)


def scalar_type(parts: list[Part]) -> str:
    """The argparse type of a list's elements."""
    real = [part for part in parts if part.kind != "None"]
    if len(real) != 1:
        return "str"
    if real[0].kind == "Literal":
        return type(real[0].detail[0]).__name__ if real[0].detail else "str"
    return real[0].kind if real[0].kind in ("str", "int", "float") else "str"


def first(parts: list[Part], *kinds: str) -> Part | None:
    """The first alternative of one of the kinds."""
    return next((part for part in parts if part.kind in kinds), None)
