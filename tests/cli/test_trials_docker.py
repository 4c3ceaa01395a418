"""`smoke`, `compare`, `health --deep` and the report bundle, on a real engine."""

from __future__ import annotations

import json
import zipfile

import pytest
import yaml

from spark_vllm_docker.cli.compare_verb import compare_rows
from spark_vllm_docker.engine.docker import DockerEngine
from spark_vllm_docker.errors import NotProven
from spark_vllm_docker.health.answers import Canary
from spark_vllm_docker.launcher.trial import Trial
from tests.conftest import STAND_IN_IMAGE, CommandLine

LOG = "ok-tiny-llama-compiled-cold.log"
docker = [pytest.mark.docker, pytest.mark.usefixtures("no_leftovers", "stand_in_image")]


def write(cli: CommandLine, port: int, steps: list[list[object]], **more: object) -> str:
    data = {
        "name": "sr-test",
        "model": "m",
        "container": STAND_IN_IMAGE,
        "gpus": "none",
        "env": {"STAND_IN": json.dumps(steps)},
        "serve": {"port": port},
        **more,
    }
    (cli.home / "r.yaml").write_text(yaml.safe_dump(data))
    return "r.yaml"


class TestOnAnEngine:
    """What runs containers."""

    pytestmark = docker

    def test_smoke_proves_and_leaves_nothing(
        self, cli: CommandLine, port: int, docker_engine: DockerEngine
    ) -> None:
        done = cli("smoke", write(cli, port, [["play", LOG, 0.1], ["serve"]]))
        assert done.code == 0, done.err
        assert "proved  text: 2 tokens" in done.out
        assert docker_engine.find("sr-test") is None
        as_json = cli("smoke", "r.yaml", "--json")
        result = json.loads(as_json.out.splitlines()[-1])
        assert (result["ok"], result["canaries"][0]["name"]) == (True, "text")

    @pytest.mark.parametrize(
        ("steps", "code", "cause"),
        [
            ([["serve"], ["answer", 500]], 1, "answered 500"),
            ([["play", "fail-no-weights.log", 0.1], ["exit", 1]], 5, "There are no weights"),
        ],
    )
    def test_smoke_that_fails_leaves_nothing_either(
        self,
        cli: CommandLine,
        port: int,
        docker_engine: DockerEngine,
        steps: list[list[object]],
        code: int,
        cause: str,
    ) -> None:
        done = cli("smoke", write(cli, port, steps))
        assert done.code == code
        assert cause in done.err
        assert docker_engine.find("sr-test") is None

    def test_a_running_deployment_is_not_disturbed(self, cli: CommandLine, port: int) -> None:
        recipe = write(cli, port, [["serve"]])
        assert cli("up", recipe, "-d").code == 0
        done = cli("smoke", recipe)
        assert (done.code, "is running, and smoke would end it" in done.err) == (1, True)
        deep = cli("health", "sr-test", "--deep")
        assert (deep.code, deep.out.startswith("proved  text: 2 tokens")) == (0, True)
        assert cli("down", "sr-test").code == 0

    def test_compare_runs_both_and_leaves_nothing(
        self, cli: CommandLine, port: int, docker_engine: DockerEngine
    ) -> None:
        recipe = write(cli, port, [["play", LOG, 0.1], ["serve"]])
        done = cli("compare", recipe, "--image", STAND_IN_IMAGE, "--image", STAND_IN_IMAGE)
        assert done.code == 0, done.err
        assert done.out.count("proven") == 2
        assert docker_engine.find("sr-test") is None
        dead = write(cli, port, [["play", "fail-no-weights.log", 0.1], ["exit", 1]])
        done = cli("compare", dead, "--image", STAND_IN_IMAGE, "--json")
        result = json.loads(done.out.splitlines()[-1])
        assert done.code == 1
        assert [trial["passed"] for trial in result["trials"]] == [False, False]
        assert "There are no weights" in result["trials"][0]["failure"]["cause"]

    def test_a_bundle_holds_all_and_no_secret(self, cli: CommandLine, port: int) -> None:
        steps = [["print", "the key is sk-very-secret"], ["play", "fail-no-weights.log", 0.1]]
        env = {"STAND_IN": json.dumps([*steps, ["exit", 1]]), "MY_TOKEN": "sk-very-secret"}
        assert cli("up", write(cli, port, [], env=env), "-d").code == 5
        done = cli("diagnose", "sr-test", "--bundle", "b.zip")
        assert done.code == 1
        assert "no-weights: There are no weights" in done.out
        with zipfile.ZipFile(cli.home / "b.zip") as archive:
            files = {name: archive.read(name).decode() for name in archive.namelist()}
        assert {"report.md", "log.txt", "container.json", "script.sh", "host.txt"} <= set(files)
        assert "**no-weights**" in files["report.md"]
        assert "Cannot find any model weights" in files["log.txt"]
        assert "exec vllm serve m" in files["script.sh"]
        assert all("sk-very-secret" not in text for text in files.values())
        assert cli("down", "sr-test").code == 0


def test_the_rows_of_a_comparison() -> None:
    good = Trial(
        "a:1",
        (("load", 3.0), ("ready", 0.1)),
        (Canary("numbers", "finite"),),
        (("NVFP4 GEMM", "X"), ("same", "S")),
        35.0,
        None,
    )
    bad = Trial(
        "b:1",
        (("load", 4.0),),
        (Canary("numbers", "the model computes NaN", failed=True),),
        (("NVFP4 GEMM", "Y"), ("same", "S")),
        0.0,
        NotProven("not proven", cause="the model computes NaN"),
    )
    assert compare_rows(good, bad) == [
        ("image", "a:1", "b:1"),
        ("phase load", "3.0 s", "4.0 s"),
        ("phase ready", "0.1 s", "-"),
        ("NVFP4 GEMM", "X", "Y"),
        ("numbers", "finite", "FAILED: the model computes NaN"),
        ("speed", "35.0 tokens/s", "-"),
        ("result", "proven", "not proven"),
    ]


def test_compare_needs_images(cli: CommandLine) -> None:
    assert cli("compare", "tiny-cpu").code == 2
    assert cli("diagnose", "tiny-cpu", "--bundle").code == 2
