"""Walks the functions that register arguments and records what they add."""

from __future__ import annotations

import ast
from typing import Any

from spark_vllm_docker.catalog.extract.fields import Bag, build_bag, read_fields
from spark_vllm_docker.catalog.extract.tree import Module, Tree, dotted_name
from spark_vllm_docker.catalog.extract.values import as_json, read_value

Names = dict[str, Any]
"""Local names of a walked function: bags, fields' bags by name, argument groups, constants."""

_KEPT = ("default", "choices", "nargs", "dest")


class Walker:
    """Follows `make_arg_parser` and the `add_cli_args` that it calls. `flags` is the result."""

    def __init__(self, human_int: frozenset[str]) -> None:
        self.flags: list[Bag] = []
        self._human_int = human_int

    def run(self, module: Module, function: ast.FunctionDef, own_class: str | None = None) -> None:
        """Walk one function; `own_class` is what `cls` stands for in it."""
        names: Names = {}
        for statement in function.body:
            self._statement(module, statement, names, own_class)

    def _statement(
        self, module: Module, node: ast.stmt, names: Names, own_class: str | None
    ) -> None:
        match node:
            case ast.If():
                for inner in node.body:
                    self._statement(module, inner, names, own_class)
            case ast.ImportFrom():
                for alias in node.names:
                    where = (node.module or "", alias.name)
                    module.imports.setdefault(alias.asname or alias.name, where)
            case ast.Expr(value=ast.Call() as call):
                self._call(module, call, names, own_class)
            case ast.Assign():
                self._assign(module, node.targets[0], node.value, names, own_class)
            case ast.AugAssign():
                self._widen(module, node, names)
            case ast.Delete():
                for target in node.targets:
                    bag, key = self._slot(target, names)
                    if bag is not None:
                        bag.pop(key, None)
                        if key == "nargs" and bag.get("kind") == "list":
                            bag["kind"] = "value"
            case ast.For():
                self._loop(node, names)

    def _widen(self, module: Module, node: ast.AugAssign, names: Names) -> None:
        """`x["choices"] += […]` widens a closed set."""
        bag, key = self._slot(node.target, names)
        if bag is None or not isinstance(bag.get(key), list):
            return
        value = read_value(node.value, module)
        if isinstance(value, list):
            bag[key] = bag[key] + value
        else:  # worked out at run time: the set is open for us
            bag["suggested"] = bag.pop(key)

    def _loop(self, node: ast.For, names: Names) -> None:
        """`for key, value in frontend_kwargs.items(): group.add_argument(…)`."""
        if not (isinstance(node.iter, ast.Call) and dotted_name(node.iter.func).endswith(".items")):
            return
        bags = names.get(dotted_name(node.iter.func).removesuffix(".items"))
        calls = (n for n in ast.walk(node) if isinstance(n, ast.Call))
        if isinstance(bags, dict) and any(
            dotted_name(call.func).endswith(".add_argument") for call in calls
        ):
            for field, bag in bags.items():
                self._add(["--" + field.replace("_", "-")], bag)

    def _slot(self, node: ast.AST, names: Names) -> tuple[Bag | None, str]:
        """`x["f"]["k"]` or `x["k"]` → the bag and `k`."""
        if isinstance(node, ast.Subscript):
            key, target = read_value(node.slice, None), self._held(node.value, names)
            if isinstance(target, dict) and isinstance(key, str):
                return target, key
        return None, ""

    def _held(self, node: ast.AST, names: Names) -> Any:
        if isinstance(node, ast.Name):
            return names.get(node.id)
        if isinstance(node, ast.Subscript):
            base, key = self._held(node.value, names), read_value(node.slice, None)
            return base.get(key) if isinstance(base, dict) and isinstance(key, str) else None
        return None

    def _assign(
        self,
        module: Module,
        target: ast.AST,
        value: ast.expr,
        names: Names,
        own_class: str | None,
    ) -> None:
        if isinstance(target, ast.Subscript):
            bag, key = self._slot(target, names)
            if bag is not None:
                _set_in_bag(module, bag, key, value)
        elif isinstance(target, ast.Name):
            names[target.id] = self._evaluate(module, value, names, own_class)

    def _evaluate(
        self, module: Module, value: ast.expr, names: Names, own_class: str | None
    ) -> Any:
        if isinstance(value, ast.Call):
            return self._evaluate_call(module, value, names, own_class)
        match value:
            case ast.Subscript(value=ast.Call(func=func, args=[config, *_]), slice=key) if (
                dotted_name(func) == "get_kwargs"
            ):
                return self._bags(module, dotted_name(config)).get(read_value(key, None))
        held = self._held(value, names)
        return read_value(value, module) if held is None else held

    def _evaluate_call(
        self, module: Module, call: ast.Call, names: Names, own_class: str | None
    ) -> Any:
        name = dotted_name(call.func)
        if name == "get_kwargs":
            config = dotted_name(call.args[0])
            return self._bags(module, own_class if config == "cls" and own_class else config)
        if name.endswith("_customize_cli_kwargs"):
            bags = names.get(dotted_name(call.args[0]))
            if isinstance(bags, dict) and own_class:
                self._customize(module, own_class, bags)
            return bags
        if not name.endswith((".add_argument_group", ".replace")):
            self._call(module, call, names, own_class)
        return None

    def _bags(self, module: Module, class_name: str) -> dict[str, Bag]:
        found = module.lookup(class_name)
        if not found or not isinstance(found[1], ast.ClassDef):
            return {}
        return {
            name: build_bag(home, node, help_text, self._human_int)
            for name, (home, node, help_text) in read_fields(found[0], found[1]).items()
        }

    def _customize(self, module: Module, class_name: str, bags: dict[str, Bag]) -> None:
        """Apply `_customize_cli_kwargs` of a class, its bases' first."""
        found = module.lookup(class_name)
        home, definition = found or (module, None)
        if not isinstance(definition, ast.ClassDef):
            return
        for base in definition.bases:
            if isinstance(base, ast.Name):
                self._customize(home, base.id, bags)
        for node in definition.body:
            if isinstance(node, ast.FunctionDef) and node.name == "_customize_cli_kwargs":
                names: Names = {node.args.args[1].arg: bags}
                for statement in node.body:
                    if "super()" not in ast.unparse(statement):
                        self._statement(home, statement, names, None)

    def _call(self, module: Module, call: ast.Call, names: Names, own_class: str | None) -> None:
        name = dotted_name(call.func)
        if name.endswith(".add_argument"):
            values = [read_value(arg, module) for arg in call.args]
            options = [value for value in values if isinstance(value, str)]
            self._add(options, self._bag_of_call(module, call, names))
        elif name.endswith(".remove") and call.args and isinstance(call.func, ast.Attribute):
            target, value = self._held(call.func.value, names), read_value(call.args[0], module)
            if isinstance(target, list) and value in target:
                target.remove(value)
        elif name.endswith(".add_cli_args"):
            self._enter(module, name.split(".", maxsplit=1)[0], None)

    def _bag_of_call(self, module: Module, call: ast.Call, names: Names) -> Bag:
        bag: Bag = {}
        for keyword in call.keywords:
            key, value = keyword.arg, keyword.value
            if key is None and isinstance(value, ast.Dict):
                for inner_key, inner in zip(value.keys, value.values, strict=True):
                    if inner_key is None:
                        bag |= self._held(inner, names) or {}
                    else:
                        bag[read_value(inner_key, module)] = as_json(
                            read_value(inner, module), inner
                        )
            elif key is None:
                bag |= self._held(value, names) or {}
            elif key == "help":
                text = read_value(value, module)
                if isinstance(text, str):
                    bag["help"] = " ".join(text.split()).split(". ")[0].rstrip(".")[:200]
            elif key == "action":
                bag |= _kind_of_action(ast.unparse(value).strip("'\""), bag)
            elif key == "type":
                text = ast.unparse(value)
                bag["type"] = text if text in ("int", "str", "float") else "callable"
            elif key in _KEPT:
                bag[key] = as_json(read_value(value, module), value)
        return bag

    def _enter(self, module: Module, class_name: str, own_class: str | None) -> None:
        found = module.lookup(class_name)
        home, definition = found or (module, None)
        if not isinstance(definition, ast.ClassDef):
            return
        for node in definition.body:
            if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args":
                self.run(home, node, own_class or class_name)
                return
        for base in definition.bases:
            if isinstance(base, ast.Name):
                self._enter(home, base.id, own_class or class_name)

    def _add(self, options: list[str], bag: Bag) -> None:
        if not options:
            return
        longs = [option for option in options if option.startswith("--")]
        name = longs[0] if longs else options[0]
        flag: Bag = {"name": name, "kind": "value", "type": "str", "default": None}
        kept = ("kind", "type", "default", "choices", "suggested", "fields", "nargs", "negatable")
        flag |= {key: bag[key] for key in (*kept, "nullable", "help") if key in bag}
        if isinstance(flag.get("choices"), dict):  # worked out at run time
            del flag["choices"]
        aliases = [option for option in options if option != name]
        if aliases:
            flag["aliases"] = aliases
        self.flags.append(flag)


def _set_in_bag(module: Module, bag: Bag, key: str, value: ast.expr) -> None:
    """`x["f"]["type"] = …` and its like."""
    text = ast.unparse(value)
    if key == "action":
        action = text.strip("'\"")
        bag["kind"] = "append" if action == "append" else "custom"
    elif key != "type":
        bag[key] = as_json(read_value(value, module), value)
    else:
        if "optional_type" not in text:
            bag.pop("nullable", None)
        if "json.loads" in text:
            bag["type"] = "json"
            bag["kind"] = bag["kind"] if bag.get("kind") in ("json", "json-or-str") else "json"
        elif text == "str" or "optional_type(str)" in text:
            bag["type"] = "str"


def _kind_of_action(action: str, bag: Bag) -> Bag:
    if action.endswith("BooleanOptionalAction"):
        return {"kind": "bool", "type": "bool", "negatable": True}
    if action in ("store_true", "store_false"):
        return {
            "kind": action,
            "type": "bool",
            "default": bag.get("default", action == "store_false"),
        }
    return {"kind": "append" if action == "append" else "custom"}


def find_parser_factory(tree: Tree) -> tuple[Module, ast.FunctionDef]:
    """`make_arg_parser`, wherever the release keeps it.

    Raises:
        LookupError: the wheel has none.
    """
    known = ["vllm.entrypoints.openai.cli_args", "vllm.entrypoints.launchers.cli_args"]
    others = [
        n[:-3].replace("/", ".") for n in sorted(tree.names) if n.startswith("vllm/entrypoints/")
    ]
    for dotted in known + [n for n in others if n.endswith("cli_args")]:
        module = tree.module(dotted)
        function = module.defs.get("make_arg_parser") if module else None
        if module and isinstance(function, ast.FunctionDef):
            return module, function
    raise LookupError("no make_arg_parser in this wheel")
