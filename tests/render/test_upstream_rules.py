"""The corpus renders to the argv that the format's own runner gives it, alone and in a cluster.

`upstream_command` is that runner's rules, written from their description: format, strip, append,
remove the executor or, with Ray, name it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_vllm_docker.errors import InvalidRecipe, Refused
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.nodes import Nodes
from spark_vllm_docker.recipe.overrides import Override, Overrides
from spark_vllm_docker.render.build import build_deployment, build_gang
from spark_vllm_docker.render.command import LaunchOptions
from tests.conftest import ROOT

from .docker_run_reader import bash_words

CORPUS = ROOT.parent / "shared/recipes-corpus/eugr"
FILES = sorted(CORPUS.glob("*.yaml")) if CORPUS.is_dir() else []
needs_corpus = pytest.mark.skipif(not FILES, reason="the corpus is not here")
MACHINES = tuple(f"10.0.0.{number}" for number in range(1, 17))


def upstream_command(
    recipe: dict[str, Any], sets: dict[str, object], extra: str = "", mode: str = "solo"
) -> str:
    params = {**(recipe.get("defaults") or {}), **sets}
    if mode == "solo" and "tensor_parallel" not in sets:
        params["tensor_parallel"] = 1
    command: str = recipe["command"].format(**params).rstrip().removesuffix("\\").rstrip() + extra
    if mode == "ray":
        named = "vllm serve" in command and "--distributed-executor-backend" not in command
        return command + " --distributed-executor-backend ray" if named else command
    command = re.sub(r"--distributed-executor-backend(?:\s+|=)\S+", "", command)
    lines = [line for line in command.split("\n") if line.strip() not in ("", "\\")]
    return "\n".join(lines).rstrip().removesuffix("\\")


def our_command(
    path: Path, sets: dict[str, object], extra: tuple[str, ...] = (), nodes: Nodes | None = None
) -> list[str]:
    recipe = load_recipe(path)
    # Guards of our own that stand before the rendering are not what is compared here.
    keys = recipe.keys.model_copy(update={"mods": [], "cluster_only": False, "solo_only": False})
    recipe = replace(recipe, keys=keys)
    overrides = Overrides(tuple(Override(k, str(v), "--set") for k, v in sets.items()))
    options = LaunchOptions(overrides=overrides, extra_arguments=extra, nodes=nodes or Nodes())
    return [made.command for made in build_gang(recipe, options, {"HOME": "/home/u"})]


def test_the_corpus_is_whole_where_it_is() -> None:
    assert len(FILES) in (0, 59)


@needs_corpus
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("extra", [(), ("--seed", "42", '--x={"a b":1}')], ids=["plain", "extra"])
def test_the_corpus_has_the_argv_of_its_own_runner(path: Path, extra: tuple[str, ...]) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if data.get("cluster_only") and data["recipe_version"] == "2":
        pytest.skip("for several machines only; version 2 does not count them with tensor_parallel")
    text = " --seed 42 '--x={\"a b\":1}'" if extra else ""
    expected = upstream_command(data, {}, text)
    assert bash_words(our_command(path, {}, extra)[0]) == bash_words(expected)


@needs_corpus
@pytest.mark.parametrize("ray", [False, True], ids=["own", "ray"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_corpus_has_the_argv_of_its_own_runner_on_several_machines(
    path: Path, ray: bool
) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if data.get("solo_only"):
        pytest.skip("for one machine only")
    expected = upstream_command(data, {}, "", "ray" if ray else "cluster")
    ours = our_command(path, {}, nodes=Nodes(MACHINES, ray))
    if ray:
        assert [bash_words(command) for command in ours] == [bash_words(expected)]
        return
    size = len(ours)
    for rank, command in enumerate(ours):
        tail = f" --nnodes {size} --node-rank {rank} --master-addr 10.0.0.1 --master-port 29501"
        tail += " --headless" if rank else ""
        assert bash_words(command) == bash_words(expected + (tail if size > 1 else ""))


@needs_corpus
def test_an_asked_for_tensor_parallel_stays() -> None:
    path = CORPUS / "nemotron-3.5-lightning.yaml"
    words = bash_words(our_command(path, {"tensor_parallel": 4})[0])
    assert words[words.index("-tp") + 1] == "4"


def test_as_many_machines_as_the_command_takes() -> None:
    text = "  vllm serve m -tp {tensor_parallel} --port {port}\n"
    recipe = parse_recipe(HEAD + text, Path("a.yaml"))
    three = LaunchOptions(nodes=Nodes(("a", "b", "c")))
    first, second = build_gang(recipe, three, {})
    assert first.command.endswith("--nnodes 2 --node-rank 0 --master-addr a --master-port 29501")
    assert second.command.endswith("--master-port 29501 --headless")
    assert first.spec.network == "host"
    assert ("VLLM_HOST_IP", "b") in second.spec.env
    many = Overrides((Override("tensor_parallel", "8", "--set"),))
    with pytest.raises(Refused, match="take 8 machines, and --nodes names 3"):
        build_gang(recipe, replace(three, overrides=many), {})


HEAD = 'recipe_version: "1"\nname: a\ncontainer: i\nmodel: org/m\ndefaults: {port: 1, tensor_parallel: 2}\ncommand: |\n'


def command_of(text: str) -> tuple[str, list[str]]:
    recipe = parse_recipe(HEAD + text, Path("a.yaml"))
    return build_deployment(recipe, LaunchOptions(), {}).command, [f.code for f in recipe.notes]


def test_one_machine_has_no_distributed_executor() -> None:
    text = "  vllm serve m \\\n    --distributed-executor-backend ray \\\n    -tp {tensor_parallel} \\\n    --port {port}\n"
    assert command_of(text) == ("vllm serve m \\\n  -tp 1 \\\n  --port 1", [])
    last = "  vllm serve m --port {port} \\\n    --distributed-executor-backend=ray\n"
    assert command_of(last) == ("vllm serve m --port 1", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  vllm serve {model} --port {port}\n", "vllm serve org/m --port 1"),
        (
            '  vllm serve m --port {port} --limit-mm-per-prompt \'{"video":{"fps":2}}\'\n',
            'vllm serve m --port 1 --limit-mm-per-prompt \'{"video":{"fps":2}}\'',
        ),
        ("  vllm serve m --port {port} --x '{}'\n", "vllm serve m --port 1 --x '{}'"),
    ],
)
def test_files_of_other_runners_are_read_leniently_and_that_is_said(
    text: str, expected: str
) -> None:
    assert command_of(text) == (expected, ["REC011"])


@pytest.mark.parametrize(
    "text",
    [
        "  vllm serve m --port {prot}\n",
        "  vllm serve m --port {port}}\n",
        "  vllm serve m --port {port\n",
    ],
)
def test_a_mistake_is_not_read_leniently(text: str) -> None:
    with pytest.raises(InvalidRecipe):
        command_of(text)


def test_a_cluster_recipe_is_refused_on_one_machine() -> None:
    with pytest.raises(Refused, match="several machines"):
        command_of("  vllm serve m --port {port}\ncluster_only: true\n")
