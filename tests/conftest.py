"""What tests share: recordings, a command line that runs for real, an engine, a stand-in for vLLM."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_vllm_docker.engine.docker import DockerEngine, find_docker_address
from spark_vllm_docker.engine.protocol import BuildRequest
from spark_vllm_docker.errors import EngineError

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
RECORDINGS = DATA / "recordings"
STAND_IN = ROOT / "tests/stand_in"
STAND_IN_IMAGE = "spark-recipe-tests/stand-in:1"


@dataclass(frozen=True)
class Done:
    """A finished command."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, object]:
        """The last line of stdout, which is the document or the result."""
        data = json.loads(self.out.splitlines()[-1])
        assert isinstance(data, dict)
        return data


@dataclass
class CommandLine:
    """The installed `spark-recipe`, with a home of its own."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "spark_vllm_docker", *arguments]

    def env(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("SPARK_RECIPE", "HF_", "XDG_"))
        }
        cache = os.environ.get("SPARK_RECIPE_CACHE") or str(Path.home() / ".cache/spark-recipe")
        return {**kept, "HOME": str(self.home), "SPARK_RECIPE_CACHE": cache, **self.environ}

    def __call__(self, *arguments: str, cwd: Path | None = None, timeout: float = 120) -> Done:
        done = subprocess.run(
            self.argv(*arguments),
            cwd=cwd or self.home,
            env=self.env(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            self.argv(*arguments),
            cwd=self.home,
            env=self.env(),
            text=True,
            stdin=subprocess.DEVNULL,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    home = tmp_path / "home"
    home.mkdir()
    return CommandLine(home)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[DockerEngine]:
    """A real engine. Where none runs the test is skipped, unless SPARK_RECIPE_TEST_DOCKER=1."""
    engine = DockerEngine(find_docker_address(os.environ))
    try:
        engine.check()
    except EngineError as error:
        if os.environ.get("SPARK_RECIPE_TEST_DOCKER") == "1":
            raise
        pytest.skip(str(error))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def stand_in_image(docker_engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    script = ROOT / "launch/lib/base-image.sh"
    done = subprocess.run(
        ["bash", str(script), os.environ.get("SPARK_RECIPE_BASE", "")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    context = tmp_path_factory.mktemp("stand-in")
    shutil.copytree(RECORDINGS, context / "recordings")
    for name in ("vllm", "Dockerfile"):
        shutil.copy(STAND_IN / name, context / name)
    request = BuildRequest(STAND_IN_IMAGE, context, {"BASE": done.stdout.strip()})
    for _line in docker_engine.build_image(request):
        pass
    return STAND_IN_IMAGE


RecipeWriter = Callable[..., Path]


@pytest.fixture
def write_recipe(tmp_path: Path, port: int) -> RecipeWriter:
    """Write a recipe for the stand-in; `steps` is its life, other keywords are recipe keys."""

    def write(
        name: str = "sr-test", steps: list[list[object]] | None = None, **keys: object
    ) -> Path:
        env = {"STAND_IN": json.dumps(steps)} if steps is not None else {}
        recipe: dict[str, object] = {
            "recipe_version": "1",
            "name": name,
            "container": STAND_IN_IMAGE,
            "gpus": "none",
            "shm_size": "64m",
            "defaults": {"port": port, "host": "0.0.0.0"},
            "env": env,
            "command": "vllm serve some/model --served-model-name m --host {host} --port {port}\n",
            **keys,
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(recipe), encoding="utf-8")  # JSON is YAML
        return path

    return write


@pytest.fixture
def no_leftovers(docker_engine: DockerEngine) -> Iterator[None]:
    """Whatever a test deploys is gone after it, also when it fails; nothing else is touched."""
    yield
    for deployed in docker_engine.list_ours():
        if deployed.name.startswith("sr-test"):
            docker_engine.remove(deployed.id)
