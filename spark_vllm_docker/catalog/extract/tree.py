"""Python sources inside a wheel, and the names that their modules define."""

from __future__ import annotations

import ast
import zipfile
from pathlib import Path

MAX_DEPTH = 12
"""How far names are followed from module to module."""

Definition = ast.AST


class Tree:
    """The sources of a wheel."""

    def __init__(self, wheel: Path) -> None:
        self._zip = zipfile.ZipFile(wheel)
        self.names = {name for name in self._zip.namelist() if name.endswith(".py")}
        self._modules: dict[str, Module | None] = {}

    def read(self, name: str) -> str:
        """The text of one file."""
        return self._zip.read(name).decode("utf-8")

    def module(self, dotted: str) -> Module | None:
        """A module by its dotted name; None when it is not in the wheel."""
        if dotted not in self._modules:
            base = dotted.replace(".", "/")
            files = (name for name in (f"{base}.py", f"{base}/__init__.py") if name in self.names)
            file = next(files, None)
            self._modules[dotted] = Module(self, dotted, file) if file else None
        return self._modules[dotted]

    def version(self) -> str:
        """The release, from the wheel's metadata."""
        name = next(n for n in self._zip.namelist() if n.endswith(".dist-info/METADATA"))
        lines = self._zip.read(name).decode("utf-8").splitlines()
        return next(line for line in lines if line.startswith("Version: ")).removeprefix(
            "Version: "
        )


class Module:
    """Top-level names of one module: imports, assignments, classes and functions.

    `typing` holds the names that are imported for the type checker only: at run time they are often
    `Any`, so they suggest values and never decide what argparse does.
    """

    def __init__(self, tree: Tree, dotted: str, file: str) -> None:
        self.tree, self.dotted, self.file = tree, dotted, file
        self.ast = ast.parse(tree.read(file))
        self.imports: dict[str, tuple[str, str | None]] = {}
        self.assigns: dict[str, ast.expr] = {}
        self.defs: dict[str, ast.ClassDef | ast.FunctionDef] = {}
        self.typing: dict[str, tuple[str, str | None]] = {}
        self._collect(self.ast.body)
        for name, where in self.typing.items():
            if name not in self.assigns and name not in self.defs:
                self.imports.setdefault(name, where)

    def lookup(self, name: str, depth: int = 0) -> tuple[Module, Definition] | None:
        """The module that defines a name, and the node that does."""
        if depth > MAX_DEPTH:
            return None
        node = self.defs.get(name) or self.assigns.get(name)
        if node is not None:
            return self, node
        if name not in self.imports:
            return None
        base, attribute = self.imports[name]
        module = self.tree.module(base)
        if attribute is None:
            return (module, module.ast) if module else None
        if module and (found := module.lookup(attribute, depth + 1)):
            return found
        inner = self.tree.module(f"{base}.{attribute}")
        return (inner, inner.ast) if inner else None

    def _collect(self, body: list[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.ImportFrom():
                    for name, where in self._imported(node):
                        self.imports.setdefault(name, where)
                case ast.Import():
                    for alias in node.names:
                        name = alias.asname or alias.name.split(".")[0]
                        self.imports.setdefault(name, (alias.name if alias.asname else name, None))
                case ast.Assign():
                    for target in node.targets:
                        if isinstance(target, ast.Name):
                            self.assigns[target.id] = node.value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.assigns[name] = value
                case ast.ClassDef() | ast.FunctionDef():
                    self.defs[node.name] = node
                case ast.If():
                    self._collect_if(node)
                case ast.Try():
                    self._collect(node.body)

    def _collect_if(self, node: ast.If) -> None:
        if dotted_name(node.test).split(".")[-1] == "TYPE_CHECKING":
            for inner in node.body:
                if isinstance(inner, ast.ImportFrom):
                    self.typing.update(self._imported(inner))
        else:
            self._collect(node.body)
        self._collect(node.orelse)

    def _imported(self, node: ast.ImportFrom) -> list[tuple[str, tuple[str, str | None]]]:
        base = node.module or ""
        if node.level:
            base = ".".join(part for part in (self._package(node.level), base) if part)
        return [(alias.asname or alias.name, (base, alias.name)) for alias in node.names]

    def _package(self, level: int) -> str:
        parts = self.dotted.split(".")
        if not self.file.endswith("__init__.py"):
            parts = parts[:-1]
        return ".".join(parts[: len(parts) - (level - 1)])


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` of a name or attribute, or the empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    return ""


def last_name(node: ast.AST) -> str:
    """`c` of `a.b.c`."""
    return dotted_name(node).split(".")[-1]


def is_dataclass(node: ast.AST) -> bool:
    """A class under `@config` or `@dataclass`."""
    if not isinstance(node, ast.ClassDef):
        return False
    decorators = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(last_name(decorator) in ("config", "dataclass") for decorator in decorators)


def is_enum(node: ast.AST) -> bool:
    """A class whose base is an enumeration."""
    if not isinstance(node, ast.ClassDef):
        return False
    names = {last_name(base) for base in node.bases}
    return any(name.endswith("Enum") or name in ("IntFlag", "Flag") for name in names)
