"""Pulls from a real registry protocol on loopback, and an engine whose disk is full."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_vllm_docker.engine.docker import DockerEngine
from spark_vllm_docker.engine.protocol import BuildRequest
from spark_vllm_docker.errors import ImageMissing, NoSpace, PullFailed
from spark_vllm_docker.launcher.image_facts import look_at_image
from tests.conftest import CommandLine, RecipeWriter
from tests.registry import Image, serve_registry

pytestmark = pytest.mark.docker


@pytest.fixture
def pulled(docker_engine: DockerEngine) -> Iterator[list[str]]:
    names: list[str] = []
    yield names
    for name in names:
        subprocess.run(["docker", "rmi", "-f", name], capture_output=True, check=False)


def test_a_pull_shows_layers_and_bytes(docker_engine: DockerEngine, pulled: list[str]) -> None:
    with serve_registry(Image(), slow_s=0.3) as registry:
        name = f"{registry}/app/x:1"
        pulled.append(name)
        assert docker_engine.find_image(name) is None
        progress = list(docker_engine.pull_image(name))
    assert (progress[-1].layers_done, progress[-1].layers_total) == (3, 3)
    assert progress[-1].bytes_done == progress[-1].bytes_total > 3_000_000
    assert any(0 < p.bytes_done < p.bytes_total for p in progress)
    found = docker_engine.find_image(name)
    assert found is not None
    assert found.labels["made-by"] == "tests"


def test_up_pulls_what_is_not_here(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine, pulled: list[str]
) -> None:
    with serve_registry(Image(), slow_s=0.2) as registry:
        name = f"{registry}/app/x:2"
        pulled.append(name)
        up = cli("up", str(write_recipe(container=name)), "-d", "--json")
    lines = up.out.splitlines()
    assert '"unit": "MB"' in "".join(lines)
    assert "3 of 3 layers" in "".join(lines)
    # The image holds nothing but noise, so there is no bash to run.
    assert up.code == 5
    assert "the image does not have the command that the recipe runs" in up.err
    docker_engine.remove("sr-test")


def test_an_error_in_the_stream_is_an_error(docker_engine: DockerEngine) -> None:
    with (
        serve_registry(Image(), corrupt=True) as registry,
        pytest.raises(PullFailed, match="broke off"),
    ):
        list(docker_engine.pull_image(f"{registry}/app/x:3"))


def test_an_image_that_its_registry_does_not_have(docker_engine: DockerEngine) -> None:
    with serve_registry(Image()) as registry, pytest.raises(ImageMissing, match="does not have it"):
        list(docker_engine.pull_image(f"{registry}/other/x:1"))


def test_no_registry_at_all(docker_engine: DockerEngine, port: int) -> None:
    with pytest.raises(PullFailed, match="broke off"):
        list(docker_engine.pull_image(f"127.0.0.1:{port}/app/x:1"))


@pytest.fixture
def small_engine(tmp_path: Path) -> Iterator[DockerEngine]:
    """An engine of its own whose disk is a tmpfs of 24 MB."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("needs root and dockerd")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)], check=True)
    address = f"unix://{tmp_path}/docker.sock"
    # In a network of its own: a second daemon would take the bridge of the first one down.
    command = [
        "unshare", "--net", "dockerd", "--host", address, "--data-root", str(disk), "--exec-root", str(tmp_path / "exec"),
        "--pidfile", str(tmp_path / "pid"), "--bridge", "none", "--iptables=false", "--ip-masq=false",
    ]  # fmt: skip
    with (tmp_path / "dockerd.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 30
        while not (tmp_path / "docker.sock").exists():
            assert time.monotonic() < end, (tmp_path / "dockerd.log").read_text()
            time.sleep(0.1)
        engine = DockerEngine(address)
        yield engine
        engine.close()
    finally:
        process.terminate()
        process.wait(timeout=30)
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk(small_engine: DockerEngine, tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text("FROM scratch\nCOPY big /big\n")
    (context / "big").write_bytes(os.urandom(40_000_000))
    with pytest.raises(NoSpace, match="is full") as caught:
        list(small_engine.build_image(BuildRequest("x:1", context)))
    assert "docker system df" in caught.value.hint


def test_a_registry_is_asked_without_a_pull(docker_engine: DockerEngine) -> None:
    with serve_registry(Image()) as registry:
        assert docker_engine.find_in_registry(f"{registry}/app/x:1") == ("amd64",)
        assert docker_engine.find_image(f"{registry}/app/x:1") is None
        assert docker_engine.find_in_registry(f"{registry}/missing/x:1") == ()
    assert docker_engine.find_in_registry(f"{registry}/app/x:1") is None


def test_an_image_is_asked_what_is_in_it_once(
    docker_engine: DockerEngine, stand_in_image: str, tmp_path: Path
) -> None:
    environ = {"SPARK_RECIPE_CACHE": str(tmp_path)}
    seen = look_at_image(docker_engine, stand_in_image, environ)
    assert seen.present
    assert seen.architectures in (("amd64",), ("arm64",))
    assert seen.modules == frozenset()
    assert seen.vllm == ""
    (kept,) = (tmp_path / "image-facts").iterdir()
    kept.write_text('{"vllm": "0.20.1+x", "modules": ["av"]}')
    again = look_at_image(docker_engine, stand_in_image, environ)
    assert again.vllm == "0.20.1"
    assert again.modules == frozenset({"av"})
    absent = look_at_image(docker_engine, "spark-recipe/vllm-cpu:0.99.0", environ)
    assert (absent.present, absent.buildable, absent.registry_has) == (False, True, None)
    names = subprocess.run(
        ["docker", "ps", "-a", "--format", "{{.Names}}"], capture_output=True, text=True, check=True
    )
    assert "spark-recipe-look" not in names.stdout
