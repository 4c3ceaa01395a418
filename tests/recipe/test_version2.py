"""Version 2 (sparkrun): its own substitution, include, overrides, and commands built from defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.errors import InvalidRecipe
from spark_vllm_docker.plan.check import check_recipe
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.overrides import Overrides, parse_set
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.render.build import build_deployment
from spark_vllm_docker.render.command import LaunchOptions

HEAD = 'recipe_version: "2"\nmodel: org/m\ncontainer: vllm/vllm-openai:v0.20.0\n'


def read(text: str, hardware: str = "") -> Recipe:
    return parse_recipe(HEAD + text, Path("a.yaml"), hardware)


def command_of(recipe: Recipe, *sets: str) -> str:
    options = LaunchOptions(overrides=Overrides(tuple(parse_set(s) for s in sets)))
    return build_deployment(recipe, options, {}).command.replace(" \\\n  ", " ")


def notes_of(recipe: Recipe) -> list[tuple[str, str]]:
    return [(f.code, f.message) for f in check_recipe(recipe)]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("recipe_version: 2\n", Form.VERSION_2),
        ("runtime: vllm\n", Form.VERSION_2),
        ("metadata: {}\n", Form.VERSION_2),
    ],
)
def test_the_form_is_told_by_version_or_keys(text: str, form: Form) -> None:
    recipe = parse_recipe(text + "model: m\ncontainer: i\ndefaults: {port: 1}\n", Path("a.yaml"))
    assert recipe.form is form


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve {model} --port {port}", "vllm serve org/m --port 8000"),
        ("vllm serve m --x '{\"a\":{port}}'", "vllm serve m --x '{\"a\":8000}'"),
        ('vllm serve m --x \'{"a":{"b":1}}\'', 'vllm serve m --x \'{"a":{"b":1}}\''),
        ("vllm serve m --x '{{\"a\":{port}}}'", "vllm serve m --x '{\"a\":8000}'"),
        ("vllm serve m --x {unknown} --y ${HOME}", "vllm serve m --x {unknown} --y ${HOME}"),
        (
            "vllm serve m --speculative-config '{spec}'",
            "vllm serve m --speculative-config '{\"n\": 8000}'",
        ),
    ],
)
def test_known_names_are_filled_and_other_braces_stay(command: str, expected: str) -> None:
    quoted = command.replace("'", "''")
    recipe = read(f"defaults: {{port: 8000, spec: '{{\"n\": {{port}}}}'}}\ncommand: '{quoted}'\n")
    assert command_of(recipe) == expected


def test_what_looks_like_a_mistake_in_a_command_is_told() -> None:
    recipe = read(
        "defaults: {port: 1, prot: 2}\ncommand: vllm serve {model} --port {portt} '{{1}}'\n"
    )
    found = notes_of(recipe)
    assert (
        "REC007",
        "command: {portt} has no value and stays as it is; did you mean 'port'?",
    ) in found
    assert ("REC021", "command: doubled braces are the older spelling; write single ones") in found
    assert ("REC008", "defaults.prot: the command has no {prot}") in found


def test_a_command_is_built_from_defaults() -> None:
    recipe = read(
        "model_revision: abc\n"
        "defaults:\n  port: 8000\n  tensor_parallel: 2\n  trust_remote_code: true\n"
        "  enforce_eager: false\n  speculative_config: {method: mtp}\n  kv_cache_dtype: fp8\n"
        "  distributed_executor_backend: ray\n  max_nmu_seqs: 3\n"
    )
    assert command_of(recipe) == (
        "vllm serve org/m --revision abc --port 8000 -tp 2 --trust-remote-code --no-enforce-eager "
        """--speculative-config '{"method":"mtp"}' --kv-cache-dtype fp8"""
    )
    assert (
        "REC008",
        "defaults.max_nmu_seqs: no flag of vLLM, and nothing uses it; did you mean 'max_num_seqs'?",
    ) in notes_of(recipe)
    assert command_of(recipe, "tensor_parallel_size=4", "port=9").count("-tp 4") == 1


def test_keys_that_nothing_acts_on_are_named() -> None:
    recipe = read(
        "defaults: {port: 1}\nexecutor_config: {x: 1}\nbenchmark: {}\npost_exec: [x]\n"
        "pre_exec:\n  - pip install x=={port}\n  - copy: a\n"
    )
    told = [f.message.partition(":")[0] for f in check_recipe(recipe) if f.code == "REC015"]
    assert sorted(told) == ["benchmark", "executor_config", "post_exec", "pre_exec"]
    assert command_of(recipe) == "pip install x==1 && \\\nvllm serve org/m --port 1"


def test_the_environment_is_literal() -> None:
    recipe = read("defaults: {port: 1}\nenv: {A: '${HF_TOKEN}'}\n")
    spec = build_deployment(recipe, LaunchOptions(), {"HF_TOKEN": "secret"}).spec
    assert ("A", "${HF_TOKEN}") in spec.env


@pytest.mark.parametrize(
    ("keys", "solo", "cluster"),
    [
        ("max_nodes: 1\n", True, False),
        ("min_nodes: 2\n", False, True),
        ("mode: solo\n", True, False),
        ("cluster_only: true\n", False, True),
        ("min_nodes: 1\nmax_nodes: 4\n", False, False),
    ],
)
def test_how_many_machines(keys: str, solo: bool, cluster: bool) -> None:
    found = read(keys + "defaults: {port: 1}\n").keys
    assert (found.solo_only, found.cluster_only) == (solo, cluster)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("{nodes: 1}", True),
        ("{nodes: [2, 4]}", False),
        ("{nodes: {gte: 2}}", False),
        ("{tp: 2, nodes: 1}", True),
        ("{arch: sm_121}", True),
        ("{arch: {not_in: [sm_121]}}", False),
        ("{memory_gb: {gt: 100, lt: 200}}", True),
        ("{config: {speculator: none}}", True),
        ("{config: {speculator: {ne: none}}}", False),
        ("{config: {absent: {ne: x}}}", True),
        ("{config: {absent: x}}", False),
        ("{vendor: NVIDIA}", True),
    ],
)
def test_overrides_hold_on_the_machine_that_is_meant(when: str, holds: bool) -> None:
    recipe = read(
        "defaults: {port: 1, tensor_parallel: 2, speculator: none, seed: 1}\n"
        "command: vllm serve {model} --seed {seed} -tp {tensor_parallel} # {port} {speculator}\n"
        f"overrides:\n  - when: {when}\n    defaults: {{seed: 2}}\n    env: {{A: b}}\n"
        "    container: other:1\n",
        "dgx-spark",
    )
    assert (recipe.values["seed"] == 2) is holds
    assert (recipe.keys.env == {"A": "b"}) is holds
    assert (recipe.keys.container == "other:1") is holds
    if holds:
        assert recipe.origin(recipe.paths["seed"]).endswith("(overrides[0])")


@pytest.mark.parametrize("when", ["{planet: mars}", "{nodes: {about: 2}}", "{config: x}"])
def test_an_override_that_cannot_be_told_is_not_applied(when: str) -> None:
    recipe = read(f"defaults: {{seed: 1}}\noverrides: [{{when: {when}, defaults: {{seed: 2}}}}]\n")
    assert recipe.values["seed"] == 1
    assert "REC022" in [f.code for f in recipe.notes]


def test_without_known_hardware_a_hardware_override_is_told() -> None:
    recipe = read("defaults: {seed: 1}\noverrides: [{when: {arch: sm_121}, defaults: {seed: 2}}]\n")
    assert recipe.values["seed"] == 1
    assert "REC022" in [f.code for f in recipe.notes]


def test_a_recipe_includes_one_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        HEAD + "metadata: {description: words}\ndefaults: {port: 1, seed: 2, spec: {a: 1}}\n"
        "overrides: [{when: {nodes: 1}, defaults: {seed: 3}}]\n"
    )
    path = tmp_path / "top.yaml"
    path.write_text(
        "include: base\ndefaults: {port: null, spec: {b: 2}}\n"
        "overrides: [{when: {nodes: 1}, defaults: {max_num_seqs: 4}}]\n"
    )
    recipe = load_recipe(path)
    assert (recipe.name, recipe.keys.description) == ("top", "words")
    assert recipe.values["seed"] == 3
    assert "port" not in recipe.values
    assert recipe.values["max-num-seqs"] == 4
    assert command_of(recipe) == "vllm serve org/m --seed 3 --max-num-seqs 4"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "there is no recipe 'nothing' beside top.yaml"),
        ("../base", "'../base' is not a recipe in the same folder"),
        ("'@official/x'", "'@official/x' is not a recipe in the same folder"),
        ("top", "stands on itself: top → top"),
    ],
)
def test_includes_that_cannot_be(tmp_path: Path, name: str, message: str) -> None:
    path = tmp_path / "top.yaml"
    path.write_text(HEAD + f"include: {name}\n")
    with pytest.raises(InvalidRecipe) as caught:
        load_recipe(path)
    assert message in caught.value.findings[0].message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "runtime: sglang\n",
            "runtime: 'sglang' is not vLLM, the only one that spark-recipe starts",
        ),
        ("defualts: {}\n", "defualts: unknown key; did you mean 'defaults'?"),
        ("min_nodes: 0\n", "min_nodes: input should be greater than or equal to 1, found 0"),
        ("overrides: [{when: {}}]\n", "overrides.0.when: dictionary should have at least 1 item"),
        ("overrides: [{defaults: {}}]\n", "the key 'when' is missing"),
        ("overrides: x\n", "overrides: expected a list, found 'x'"),
    ],
)
def test_bad_version_2_recipes(text: str, message: str) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        read(text)
    assert message in caught.value.findings[0].message


def test_another_runtime_with_a_command_is_only_a_command() -> None:
    recipe = read("runtime: llama-cpp\ncommand: llama-server -m {model}\n")
    assert command_of(recipe) == "llama-server -m org/m"
    assert "REC010" in [code for code, _ in notes_of(recipe)]
