"""Imports point one way, and none is hidden in a function outside `cli/`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "spark_vllm_docker"
BASE = {"errors", "findings", "events", "__init__"}
ALLOWED = {
    "errors": {"findings"},
    "findings": set(),
    "events": {"findings"},
    "catalog": BASE,
    "recipe": BASE | {"catalog"},
    "plan": BASE | {"recipe", "catalog"},
    "render": BASE | {"recipe", "catalog"},
    "engine": BASE | {"render.spec", "render.docker_py", "render.masking"},
    "health": BASE | {"engine.protocol"},
    "diagnose": BASE | {"health.log_lines", "health.phases"},
    "launcher": BASE
    | {"catalog", "recipe", "plan", "render", "engine.protocol", "health", "diagnose", "media"},
    "media": BASE,
    "gateway": BASE | {"media"},
    "ui": BASE,
}
DOCKER = {"docker", "docker_errors", "docker_streams"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spark_vllm_docker"):
            yield (node.module or "").removeprefix("spark_vllm_docker").lstrip(".") or "__init__"
        elif isinstance(node, ast.Import):
            for name in node.names:
                assert not name.name.startswith("spark_vllm_docker")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ("cli", "__init__", "__main__"):
        return
    for name in imports(ast.parse(path.read_text())):
        inside = name.split(".")[0] == part
        allowed = any(name == other or name.startswith(other + ".") for other in ALLOWED[part])
        assert inside or allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_import_is_hidden_outside_the_command_line(path: Path) -> None:
    if path.relative_to(PACKAGE).parts[0] == "cli":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = [n for n in ast.walk(node) if isinstance(n, (ast.Import, ast.ImportFrom))]
            assert not inner, f"{path.name}:{inner[0].lineno}"


def test_there_are_no_import_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for path in MODULES:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"
        graph[name] = {n for n in imports(ast.parse(path.read_text())) if n != "__init__"}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " → ".join((*path, name))
        if name not in done:
            for following in graph.get(name, ()):
                visit(following, (*path, name))
            done.add(name)

    for name in graph:
        if not name.startswith("cli"):
            visit(name, ())


def test_only_the_docker_engine_imports_docker_py() -> None:
    for path in MODULES:
        if path.parent.name == "engine" and path.stem in DOCKER:
            continue
        text = path.read_text()
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert all(name.name.split(".")[0] != "docker" for name in node.names), path
            elif isinstance(node, ast.ImportFrom) and not node.level:
                assert (node.module or "").split(".")[0] != "docker", path


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--version"], ["click", "pydantic", "docker", "rich", "yaml"]),
        (["--help"], ["pydantic", "docker", "rich", "yaml", "httpx"]),
        (["render", "nemotron-omni"], ["docker", "rich", "httpx", "requests"]),
        (["up", "tiny-cpu", "--dry-run"], ["docker", "rich", "httpx", "requests"]),
    ],
)
def test_a_verb_loads_only_what_it_needs(arguments: list[str], absent: list[str]) -> None:
    code = (
        "import sys\n"
        "from spark_vllm_docker.cli.entry import main\n"
        f"sys.argv = ['spark-recipe', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as e:\n    assert not e.code\n"
        f"print('LOADED', [m for m in {absent!r} if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED []"
