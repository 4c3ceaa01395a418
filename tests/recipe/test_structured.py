"""The structured form: flags as YAML, on top of other recipes, by hardware."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.errors import InvalidRecipe, UsageError
from spark_vllm_docker.plan.check import check_recipe
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.overrides import (
    Override,
    Overrides,
    parse_env,
    parse_set,
    resolve_env,
    resolve_parameters,
)
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.render.build import build_deployment
from spark_vllm_docker.render.command import LaunchOptions

HEAD = "model: org/m\ncontainer: vllm/vllm-openai:v0.20.0\n"


def read(text: str, hardware: str = "") -> Recipe:
    return parse_recipe(HEAD + text, Path("a.yaml"), hardware)


def command_of(text: str, *sets: str, hardware: str = "") -> str:
    options = LaunchOptions(overrides=Overrides(tuple(parse_set(s) for s in sets)))
    return build_deployment(read(text, hardware), options, {}).command.replace(" \\\n  ", " ")


def faults(text: str, hardware: str = "") -> list[str]:
    with pytest.raises(InvalidRecipe) as caught:
        read(text, hardware)
    return [f"{f.where}: {f.message}" for f in caught.value.findings]


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("max-model-len: 4096", "--max-model-len 4096"),
        ("max_model_len: 4096", "--max_model_len 4096"),
        ("max-model-len: auto", "--max-model-len auto"),
        ("gpu-memory-utilization: 0.8", "--gpu-memory-utilization 0.8"),
        ("enable-prefix-caching: true", "--enable-prefix-caching"),
        ("enable-prefix-caching: false", "--no-enable-prefix-caching"),
        ("enable-auto-tool-choice: null", ""),
        ("-tp: 2", "-tp 2"),
        ("-O3: true", "-O3"),
        ("-cc.mode: 3", "-cc.mode=3"),
        (
            "default-chat-template-kwargs.thinking: true",
            "--default-chat-template-kwargs.thinking=true",
        ),
        ("default-chat-template-kwargs.a_b: x", "--default-chat-template-kwargs.a_b=x"),
        ("limit-mm-per-prompt: {video: 1}", """--limit-mm-per-prompt '{"video":1}'"""),
        ("media-io-kwargs: {video: {fps: 2}}", """--media-io-kwargs '{"video":{"fps":2}}'"""),
        ("served-model-name: [a, b c]", "--served-model-name a 'b c'"),
        ("middleware: [x.y, z]", "--middleware x.y --middleware z"),
        ("chat-template: it's", """--chat-template 'it'"'"'s'"""),
        ("tool-call-parser: -x", "--tool-call-parser=-x"),
        ("seed: -1", "--seed -1"),
    ],
)
def test_a_value_says_how_its_flag_is_written(flag: str, words: str) -> None:
    assert command_of(f"serve:\n  {flag}\n") == f"vllm serve org/m {words}".rstrip()


def test_steps_run_before_the_server_and_a_failing_one_ends_it() -> None:
    text = 'setup:\n  - pip install "vllm[audio]"\n  - "a; b # c"\nserve: {port: 1}\n'
    assert command_of(text) == (
        'set -e\npip install "vllm[audio]"\na; b # c\nset +e\nvllm serve org/m --port 1'
    )


def test_flags_are_checked_against_the_image_at_their_lines() -> None:
    text = (
        "serve:\n  reasoning-parser: nemotron_v4\n  max-modle-len: 1\n  gpu-memory-utilization: 9\n"
        "  media-io-kwargs: 5x\n  enable-auto-tool-choice: true\n"
    )
    found = [(f.code, str(f.where)) for f in check_recipe(read(text))]
    assert found == [
        ("FLAG003", "a.yaml:4:21"),
        ("FLAG001", "a.yaml:5:3"),
        ("FLAG002", "a.yaml:6:27"),
        ("FLAG002", "a.yaml:7:20"),
        ("FLAG006", "a.yaml:8:3"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("serve: [a]\n", ["a.yaml:3:8: serve: expected a mapping, found a list"]),
        ("serve:\n  --port: 1\n", ["a.yaml:4:3: serve: '--port' is no name of a flag"]),
        ("serve:\n  max len: 1\n", ["a.yaml:4:3: serve: 'max len' is no name of a flag"]),
        (
            "serve:\n  max-model-len: 1\n  max_model_len: 2\n",
            ["a.yaml:5:3: serve.max_model_len: the same flag as max-model-len"],
        ),
        (
            "serve:\n  port: 1\n  port: 2\n",
            ["a.yaml:5:3: 'port' is here twice, and the last one counts; the first is on line 4"],
        ),
        (
            "serve: {model: x}\n",
            ["a.yaml:3:9: serve.model: the model is named twice, here and in model:"],
        ),
        ("sreve: {}\nserve: {}\n", ["a.yaml:3:1: sreve: unknown key; did you mean 'serve'?"]),
        (
            "serve: {}\nwhen: {h10: {serve: {}}}\n",
            ["a.yaml:4:8: when.h10: unknown hardware; did you mean 'h100'?"],
        ),
        (
            "serve: {}\nwhen: {h100: {sreve: {}}}\n",
            ["a.yaml:4:15: when.h100.sreve: unknown key; did you mean 'serve'?"],
        ),
        (
            "serve: {}\nmodalities: [sound]\n",
            [
                "a.yaml:4:14: modalities.0: expected 'text', 'image', 'audio' or 'video', "
                "found 'sound'"
            ],
        ),
        ("serve: {}\ncommand: x\n", ["a.yaml:4:1: command: unknown key"]),
        ("serve: {}\nrecipe_version: '1'\n", ["a.yaml:4:1: recipe_version: unknown key"]),
    ],
)
def test_bad_structured_recipes(text: str, expected: list[str]) -> None:
    assert faults(text) == expected


@pytest.mark.parametrize("empty", ["", " null", " ~"])
def test_what_has_no_value_is_missing_there(empty: str) -> None:
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe(f"name: a\ncontainer:{empty}\nmodel:{empty}\n", Path("a.yaml"))
    found = [(f.message, str(f.where)[:8]) for f in caught.value.findings]
    assert found == [
        ("the key 'container' is missing", "a.yaml:2"),
        ("the key 'model' is missing", "a.yaml:3"),
    ]


def test_what_no_file_says_is_missing() -> None:
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe("serve: {}\n", Path("a.yaml"))
    assert [f.message for f in caught.value.findings] == [
        "the key 'container' is missing",
        "the key 'model' is missing",
    ]


WHEN = """\
serve: {port: 1, max-model-len: 100, enable-prefix-caching: true}
env: {A: base}
when:
  h100:
    container: vllm/vllm-openai:v0.24.0
    env: {A: h100}
    serve: {max_model_len: 200, enable-prefix-caching: null, max-num-seqs: 4}
"""


def test_a_when_block_holds_for_its_hardware_only() -> None:
    assert read(WHEN).values["max-model-len"] == 100
    other = read(WHEN, "a100")
    assert other.keys.container == "vllm/vllm-openai:v0.20.0"
    on = read(WHEN, "h100")
    assert on.keys.container == "vllm/vllm-openai:v0.24.0"
    assert on.values == {"model": "org/m", "port": 1, "max-model-len": 200, "max-num-seqs": 4}
    assert on.keys.env == {"A": "h100"}
    assert on.when == ("h100",)
    origins = {name: p.origin for name, p in resolve_parameters(on, ()).items()}
    assert origins == {
        "model": "a.yaml:1:1",
        "port": "a.yaml:3:9",
        "max-model-len": "a.yaml:9:13 (when h100)",
        "max-num-seqs": "a.yaml:9:62 (when h100)",
    }
    assert resolve_env(on, ())["A"].origin == "a.yaml:8:11 (when h100)"
    assert on.origin(("container",)) == "a.yaml:7:5 (when h100)"


def test_any_flag_of_the_release_can_be_set_and_only_those() -> None:
    text = "serve: {max-model-len: 100, port: 1}\n"
    assert command_of(text, "max_model_len=auto").endswith("--max-model-len auto --port 1")
    assert command_of(text, "tensor_parallel_size=2").endswith("--tensor-parallel-size 2")
    assert command_of(text, "-tp=2").endswith("--tensor-parallel-size 2")
    assert command_of(text, "enforce-eager=true").endswith("--enforce-eager")
    assert command_of(text, 'limit-mm-per-prompt={"image": 1}').endswith(
        """--limit-mm-per-prompt '{"image":1}'"""
    )
    assert command_of(text, "model=org/other").startswith("vllm serve org/other ")
    for sets, message in (
        ("max-modle-len=1", r"has no flag --max-modle-len; did you mean 'max-model-len'"),
        ("enforce-eager=yes", "expected true or false, found 'yes'"),
        ("limit-mm-per-prompt={x", "expected JSON, found '{x'"),
    ):
        with pytest.raises(UsageError, match=message):
            command_of(text, sets)


def test_variables_are_laid_over_the_recipes_own() -> None:
    recipe = read("serve: {port: 1}\nenv: {A: $HOME/x, B: two, C: '{\"a\": 1}'}\n")
    overrides = Overrides(env=(parse_env("B=three=$x"), parse_env("FROM_HERE"), parse_env("D=")))
    deployment = build_deployment(recipe, LaunchOptions(overrides=overrides), {})
    assert dict(deployment.spec.env) == {"B": "three=$x", "C": '{"a": 1}', "D": ""}
    assert deployment.spec.env_from_host == ("FROM_HERE", "HF_TOKEN")
    assert 'export A="$HOME/x"' in deployment.script
    origins = {name: value.origin for name, value in resolve_env(recipe, overrides.env).items()}
    assert origins == {
        "A": "a.yaml:4:7",
        "B": "--env",
        "C": "a.yaml:4:27",
        "FROM_HERE": "--env",
        "D": "--env",
    }


@pytest.mark.parametrize("text", ["=x", "1A=x", "A B=c", "A=\0", ""])
def test_a_malformed_variable(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAME=value"):
        parse_env(text)


BASE = HEAD + WHEN


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_recipe_stands_on_another_one(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", BASE + "name: base\ndescription: words\n")
    path = write(
        tmp_path,
        "child.yaml",
        "extends: base\nserve: {max_model_len: 300, max-num-seqs: 9}\n"
        "when: {h100: {serve: {seed: 1}}}\n",
    )
    plain = load_recipe(path)
    assert (plain.name, plain.keys.description) == ("child", "words")
    assert plain.values["max-model-len"] == 300
    on = load_recipe(path, "h100")
    # The file itself counts for more than the when: block of the one below it.
    assert on.values == {
        "model": "org/m",
        "port": 1,
        "max-model-len": 300,
        "max-num-seqs": 9,
        "seed": 1,
    }
    assert on.keys.container == "vllm/vllm-openai:v0.24.0"
    origins = {name: p.origin for name, p in resolve_parameters(on, ()).items()}
    assert origins["port"] == f"{tmp_path}/base.yaml:3:9"
    assert origins["seed"] == f"{tmp_path}/child.yaml:3:23 (when h100)"


def test_a_fault_below_is_shown_in_its_own_file(tmp_path: Path) -> None:
    write(tmp_path, "base.yaml", HEAD + "serve: {port: 1}\nshm_size: many\n")
    path = write(tmp_path, "child.yml", "extends: base.yaml\nserve: {}\n")
    with pytest.raises(InvalidRecipe) as caught:
        load_recipe(path)
    assert str(caught.value.findings[0].where) == f"{tmp_path}/base.yaml:4:11"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "extends: a\n"}, "extends: the recipe stands on itself: a → a"),
        (
            {"a": "extends: b\n", "b": "extends: a\n"},
            "extends: the recipe stands on itself: a → b → a",
        ),
        ({"a": "extends: nothing\n"}, "extends: there is no recipe 'nothing'"),
        ({"a": "extends: b\n", "b": "command: x\n"}, "is no structured recipe"),
        ({"a": "extends: b\n", "b": "[1]\n"}, "is no structured recipe"),
        (
            {f"{n}": f"extends: '{n + 1}'\n" for n in range(12)} | {"a": "extends: '0'\n"},
            "more than 8 recipes on top of each other",
        ),
    ],
)
def test_bases_that_cannot_be(tmp_path: Path, files: dict[str, str], message: str) -> None:
    for name, text in files.items():
        write(tmp_path, f"{name}.yaml", text)
    with pytest.raises(InvalidRecipe) as caught:
        load_recipe(tmp_path / "a.yaml")
    assert message in caught.value.findings[0].message


def test_a_shipped_recipe_can_be_a_base(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.yaml", "extends: nemotron-omni\nserve: {port: 9}\n")
    recipe = load_recipe(path)
    assert recipe.form is Form.STRUCTURED
    assert (recipe.name, recipe.values["port"]) == ("mine", 9)


def test_overrides_from_yaml_keep_their_types() -> None:
    recipe = read("serve: {port: 1}\n")
    override = Override("limit-mm-per-prompt", {"image": 2}, "config.yaml:1:1")
    options = LaunchOptions(overrides=Overrides((override,)))
    assert build_deployment(recipe, options, {}).command.endswith(
        """--limit-mm-per-prompt '{"image":2}'"""
    )
