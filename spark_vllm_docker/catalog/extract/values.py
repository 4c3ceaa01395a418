"""Values of constant expressions, with names followed through the wheel."""

from __future__ import annotations

import ast
from typing import Any

from spark_vllm_docker.catalog.extract.tree import (
    MAX_DEPTH,
    Module,
    dotted_name,
    is_enum,
    last_name,
)


class _Unknown:
    """Not a constant as far as can be told."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()
_EMPTY: dict[str, Any] = {"list": [], "dict": {}, "set": [], "tuple": []}
_LARGEST_POWER = 64


def read_value(node: ast.AST | None, module: Module | None, depth: int = 0) -> Any:
    """The value of an expression, or `UNKNOWN`."""
    if node is None or depth > MAX_DEPTH:
        return UNKNOWN
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        pass
    match node:
        case ast.Name(id=name) if module:
            found = module.lookup(name)
            if found and isinstance(found[1], ast.expr):
                return read_value(found[1], found[0], depth + 1)
        case ast.Attribute(value=ast.Name(id=owner), attr=attribute) if module:
            return _read_attribute(owner, attribute, module, depth)
        case ast.BinOp():
            return _calculate(node, module, depth)
        case ast.Call():
            return _read_call(node, module, depth)
    return UNKNOWN


def read_default(module: Module, node: ast.AnnAssign) -> Any:
    """The default of a dataclass field, through `Field` and `field`."""
    value = node.value
    if value is None:
        return UNKNOWN
    if not (isinstance(value, ast.Call) and last_name(value.func) in ("Field", "field")):
        return read_value(value, module)
    keywords = {keyword.arg: keyword.value for keyword in value.keywords}
    if "default" in keywords:
        return read_value(keywords["default"], module)
    if value.args:
        return read_value(value.args[0], module)
    factory = keywords.get("default_factory")
    if isinstance(factory, ast.Lambda):
        return read_value(factory.body, module)
    if factory is None:
        return UNKNOWN
    name = dotted_name(factory)
    return _EMPTY[name] if name in _EMPTY else {"expr": f"{ast.unparse(factory)}()"}


def as_json(value: Any, node: ast.AST | None) -> Any:
    """A value as JSON holds it; what is not constant becomes its source text."""
    if value is UNKNOWN or value is Ellipsis:
        return {"expr": ast.unparse(node) if node is not None else "?"}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, tuple):
        return list(value)
    return value


def _read_attribute(owner: str, attribute: str, module: Module, depth: int) -> Any:
    found = module.lookup(owner)
    home, definition = found or (module, None)
    if not isinstance(definition, ast.ClassDef):
        return UNKNOWN
    for node in definition.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) if name == attribute:
                return read_default(home, node)
            case ast.Assign(targets=targets) if any(
                isinstance(target, ast.Name) and target.id == attribute for target in targets
            ):
                if is_enum(definition):
                    return {"enum": f"{definition.name}.{attribute}"}
                return read_value(node.value, home, depth + 1)
    return UNKNOWN


def _calculate(node: ast.BinOp, module: Module | None, depth: int) -> Any:
    left = read_value(node.left, module, depth + 1)
    right = read_value(node.right, module, depth + 1)
    if not (isinstance(left, (int, float)) and isinstance(right, (int, float))):
        return UNKNOWN
    match node.op:
        case ast.Mult():
            return left * right
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Pow() if right < _LARGEST_POWER:
            return left**right
        case ast.LShift() if isinstance(left, int) and isinstance(right, int):
            return left << right if right < _LARGEST_POWER else UNKNOWN
    return UNKNOWN


def _read_call(node: ast.Call, module: Module | None, depth: int) -> Any:
    name = dotted_name(node.func)
    if name in _EMPTY and not node.args:
        return _EMPTY[name]
    if len(node.args) != 1:
        return UNKNOWN
    argument = node.args[0]
    if name == "int" and dotted_name(argument) == "ssl.CERT_NONE":
        return 0
    if name == "get_args" and module:
        return _read_literal_type(argument, module)
    if name in ("list", "sorted", "tuple", "set"):
        return read_value(argument, module, depth + 1)
    return UNKNOWN


def _read_literal_type(node: ast.expr, module: Module) -> Any:
    """The values of `Literal[…]`, also behind a name."""
    if isinstance(node, ast.Name):
        found = module.lookup(node.id)
        if found and isinstance(found[1], ast.expr):
            return _read_literal_type(found[1], found[0])
    if isinstance(node, ast.Subscript) and last_name(node.value) == "Literal":
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        values: list[Any] = []
        for part in parts:
            value = read_value(part, module)
            if value is UNKNOWN:
                value = _read_literal_type(part, module)
            if value is UNKNOWN:
                continue
            values += value if isinstance(value, (list, tuple)) else [value]
        return values
    return UNKNOWN
