"""The corpus renders to the argv that the format's own runner gives it, in solo mode.

`upstream_command` is that runner's rules, written from their description: format, strip, append,
remove the executor.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from spark_vllm_docker.errors import InvalidRecipe, Refused
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.render.build import LaunchOptions, build_deployment
from tests.conftest import ROOT

from .docker_run_reader import bash_words

CORPUS = ROOT.parent / "shared/recipes-corpus/eugr"
FILES = sorted(CORPUS.glob("*.yaml")) if CORPUS.is_dir() else []


def upstream_command(recipe: dict[str, Any], sets: dict[str, object], extra: str = "") -> str:
    params = {**(recipe.get("defaults") or {}), **sets}
    if "tensor_parallel" not in sets:
        params["tensor_parallel"] = 1
    command = recipe["command"].format(**params).rstrip().removesuffix("\\").rstrip() + extra
    command = re.sub(r"--distributed-executor-backend(?:\s+|=)\S+", "", command)
    lines = [line for line in command.split("\n") if line.strip() not in ("", "\\")]
    return "\n".join(lines).rstrip().removesuffix("\\")


def our_command(path: Path, sets: dict[str, object], extra: tuple[str, ...] = ()) -> str:
    recipe = load_recipe(path)
    # Guards of our own that stand before the rendering are not what is compared here.
    keys = recipe.keys.model_copy(update={"mods": [], "cluster_only": False})
    recipe = type(recipe)(recipe.file, keys, recipe.command, recipe.source, recipe.notes)
    options = LaunchOptions(sets=tuple((k, str(v)) for k, v in sets.items()), extra_arguments=extra)
    return build_deployment(recipe, options, {"HOME": "/home/u"}).command


@pytest.mark.skipif(not FILES, reason="the corpus is not here")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
@pytest.mark.parametrize("extra", [(), ("--seed", "42", '--x={"a b":1}')], ids=["plain", "extra"])
def test_the_corpus_has_the_argv_of_its_own_runner(path: Path, extra: tuple[str, ...]) -> None:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    try:
        ours = our_command(path, {}, extra)
    except InvalidRecipe as error:
        # A key twice, a key of a branch, version 2: said at its line, and not guessed.
        assert {f.code for f in error.findings} <= {"REC001", "REC003", "REC004"}
        return
    text = " --seed 42 '--x={\"a b\":1}'" if extra else ""
    assert bash_words(ours) == bash_words(upstream_command(data, {}, text))


@pytest.mark.skipif(not FILES, reason="the corpus is not here")
def test_an_asked_for_tensor_parallel_stays() -> None:
    path = CORPUS / "nemotron-3.5-lightning.yaml"
    if not path.exists():
        pytest.skip("not in this corpus")
    assert "--tensor-parallel-size 4" in " ".join(
        bash_words(our_command(path, {"tensor_parallel": 4}))
    ) or "-tp 4" in our_command(path, {"tensor_parallel": 4})


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
