"""convert, new, schema, list, show and render --nodes, as a user calls them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from spark_vllm_docker.catalog.flags import find_release, load_versions
from spark_vllm_docker.catalog.hardware import detect_hardware, load_hardware, match_gpu
from spark_vllm_docker.catalog.hardware_names import HARDWARE
from spark_vllm_docker.catalog.model_families import load_model_families
from spark_vllm_docker.recipe.load import load_recipe
from tests.conftest import ROOT, CommandLine

OLD = (
    'recipe_version: "1"\nname: old\ncontainer: vllm/vllm-openai:v0.20.0\n'
    "defaults:\n  port: 8000  # free here\n  tensor_parallel: 2\n"
    "command: vllm serve org/m --port {port} -tp {tensor_parallel}\n"
)


def test_convert_prints_or_writes_and_never_overwrites(cli: CommandLine) -> None:
    (cli.home / "old.yaml").write_text(OLD)
    printed = cli("convert", "old.yaml")
    assert printed.out.endswith("serve:\n  port: 8000  # free here\n  -tp: 1\n")
    assert printed.err.startswith("note: tensor_parallel is 1, as on one machine; it was 2")
    assert cli("convert", "old.yaml", "-o", "new.yaml").code == 0
    assert (cli.home / "new.yaml").read_text() == printed.out
    again = cli("convert", "old.yaml", "-o", "new.yaml")
    assert (again.code, again.err) == (
        1,
        "error: new.yaml is there already\nfix: --force overwrites it\n",
    )
    assert cli("convert", "old.yaml", "-o", "new.yaml", "--force").code == 0
    assert cli("convert", "old.yaml", "-o", "no/new.yaml").err.startswith(
        "error: no/new.yaml: cannot be written: no such file or directory"
    )
    document = cli("convert", "old.yaml", "--json").json()
    assert document["text"] == printed.out
    same = [cli("render", name, "--as", "command").out for name in ("old.yaml", "new.yaml")]
    assert same[0].split() == same[1].replace("\\\n", "").split()


def test_convert_refuses_what_it_cannot_say(cli: CommandLine) -> None:
    done = cli("convert", "nemotron-omni")
    assert (done.code, "is a structured recipe already" in done.err) == (1, True)


@pytest.mark.parametrize("model", ["Qwen/Qwen3-8B", "org/Unknown-1B", "/models/tiny-llama"])
def test_new_writes_a_recipe_without_faults(cli: CommandLine, model: str) -> None:
    done = cli("new", model)
    name = model.rpartition("/")[2].lower()
    assert done.out == f"{name}.yaml\n"
    assert f"spark-recipe up {name}.yaml" in done.err
    assert cli("check", f"{name}.yaml").out == "1 recipe: no faults\n"
    assert cli("new", model).code == 1
    assert load_recipe(cli.home / f"{name}.yaml").name == name


def test_new_goes_where_recipes_are(cli: CommandLine) -> None:
    (cli.home / "recipes").mkdir()
    assert cli("new", "org/M", "--name", "mine").out == "recipes/mine.yaml\n"
    assert "schema -o recipes/recipe.schema.json" in cli("new", "org/N").err
    assert cli("schema", "-o", "recipes/recipe.schema.json").code == 0
    assert "schema -o" not in cli("new", "org/O").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a b"], "'a b' is no name of a model"),
        (["org/m", "--image", "::"], "container: expected an image such as"),
        (["org/m", "--name", "x\ny"], "name: expected a name in one line"),
    ],
)
def test_new_writes_nothing_that_check_would_refuse(
    cli: CommandLine, arguments: list[str], message: str
) -> None:
    done = cli("new", *arguments)
    assert done.code in (1, 2)
    assert message in done.err
    assert list(cli.home.glob("*.yaml")) == []


def test_schema_is_json(cli: CommandLine) -> None:
    assert json.loads(cli("schema").out)["title"] == "spark-recipe recipe"


OMNI = ["nemotron-omni", "nemotron-omni-bf16", "nemotron-omni-fp8"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["omni"], [*OMNI, "tiny-omni-cpu"]),
        (["OMNI", "stock"], ["nemotron-omni"]),
        (["--tag", "b12x"], ["nemotron-nano-b12x"]),
        (["--hardware", "l40s"], ["nemotron-omni-fp8"]),
        (["--modality", "audio", "--hardware", "dgx-spark"], ["nemotron-omni"]),
        (["--modality", "image", "gemma"], ["gemma4-26b"]),
        (["nothing-like-it"], []),
    ],
)
def test_list_searches(cli: CommandLine, arguments: list[str], names: list[str]) -> None:
    rows = cli("list", *arguments, "--json").json()["recipes"]
    assert sorted(row["name"] for row in rows) == names  # type: ignore[attr-defined]


def test_show_says_where_everything_comes_from(cli: CommandLine) -> None:
    (cli.home / "r.yaml").write_text(
        "model: m\ncontainer: i:1\nserve: {port: 1, seed: 2}\nenv: {A: a, TOKEN: secret-value}\n"
        "when: {cpu: {serve: {seed: 3}}}\n"
    )
    config = cli.home / ".config/spark-recipe/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("recipes: {r: {set: {port: 7}, env: {B: b}}}\n")
    shown = cli("show", "r.yaml", "--hardware", "cpu", "--env", "C=c", "--set", "max-num-seqs=4")
    rows = {tuple(re.split(r"\s{2,}", row.strip())) for row in shown.out.splitlines()}
    assert ("image", "i:1", "r.yaml:2:1") in rows
    assert ("port", "7", f"{config}:1:21") in rows
    assert ("seed", "3", "r.yaml:5:22 (when cpu)") in rows
    assert ("max-num-seqs", "4", "--set") in rows
    assert ("env A", "a", "r.yaml:4:7") in rows
    assert ("env B", "b", f"{config}:1:37") in rows
    assert ("env C", "c", "--env") in rows
    assert "secret-value" not in shown.out
    document = cli("show", "r.yaml", "--json").json()
    assert document["form"] == "structured"
    assert document["env"]["B"] == {"value": "b", "origin": f"{config}:1:37"}  # type: ignore[index]
    config.write_text("recipes: {r: {set: {prot: 7}}}\n")
    assert (
        f"{config}:1:21 prot=…: r: no release of vLLM has a flag --prot; did you mean"
        in cli("show", "r.yaml").err
    )
    config.write_text("recipes: [\n")
    assert cli("show", "r.yaml").code == 1


def test_show_says_what_is_used_and_not_what_is_overruled(cli: CommandLine) -> None:
    (cli.home / "old.yaml").write_text(OLD)
    rows = cli("show", "old.yaml").out.splitlines()
    (row,) = [row for row in rows if "tensor_parallel" in row]
    assert re.split(r"\s{2,}", row.strip()) == [
        "tensor_parallel",
        "1",
        "one machine; old.yaml:6:3 says 2",
    ]


def test_a_variable_of_this_machine_is_named_and_not_shown(cli: CommandLine) -> None:
    cli.environ["MINE"] = "do-not-show"
    done = cli("render", "tiny-cpu", "--env", "MINE")
    assert "-e MINE " in done.out
    assert "do-not-show" not in done.out


def test_render_shows_each_of_several_machines(cli: CommandLine) -> None:
    (cli.home / "c.yaml").write_text(OLD.replace("name: old", "name: c\ncluster_only: true"))
    done = cli("render", "c.yaml", "--as", "command", "--nodes", "10.0.0.1,10.0.0.2")
    first, second = done.out.split("# ")[1:]
    assert first.startswith("10.0.0.1, rank 0 of 2\nvllm serve org/m --port 8000 -tp 2 --nnodes 2")
    assert second.rstrip().endswith("--master-port 29501 --headless")
    with_ray = cli("render", "c.yaml", "--as", "command", "--nodes", "a,b", "--ray").out
    assert with_ray.rstrip().endswith("-tp 2 --distributed-executor-backend ray")
    alone = cli("render", "c.yaml")
    assert (alone.code, "needs several machines" in alone.err) == (1, True)
    assert cli("render", "c.yaml", "--ray").code == 2


def test_the_problem_matcher_reads_what_check_prints(cli: CommandLine) -> None:
    matcher = json.loads((ROOT / "launch/github-problem-matcher.json").read_text())
    pattern = matcher["problemMatcher"][0]["pattern"][0]
    (cli.home / "a.yaml").write_text(
        OLD.replace("--port {port}", "--port {port} --max-modle-len 3")
    )
    row = cli("check", "a.yaml").out.splitlines()[0]
    found = re.match(pattern["regexp"], row)
    assert found is not None
    fields = {name: found[number] for name, number in pattern.items() if name != "regexp"}
    assert {name: fields[name] for name in ("severity", "code", "file", "line", "column")} == {
        "severity": "error",
        "code": "FLAG001",
        "file": "a.yaml",
        "line": "7",
        "column": "10",
    }
    assert fields["message"].startswith("--max-modle-len: ")


def test_two_files_with_one_name_are_told(cli: CommandLine) -> None:
    for file in ("a", "b"):
        (cli.home / "r").mkdir(exist_ok=True)
        (cli.home / f"r/{file}.yaml").write_text(OLD)
    assert (
        "warning[REC016] r/b.yaml:2:7: name: r/a.yaml has the name 'old' too"
        in cli("check", "r").out
    )


def test_hardware_is_told_by_the_driver(tmp_path: Path) -> None:
    assert tuple(load_hardware()) == HARDWARE
    gpu = tmp_path / "0000:01:00.0"
    gpu.mkdir()
    (gpu / "information").write_text("Model: \t\t NVIDIA GB10\nIRQ: 1\n")
    assert detect_hardware(tmp_path) == "dgx-spark"
    (gpu / "information").write_text("Model: NVIDIA H100 80GB HBM3\n")
    assert detect_hardware(tmp_path) == "h100"
    assert detect_hardware(tmp_path / "none") == ""
    assert match_gpu("NVIDIA RTX PRO 6000 Blackwell Workstation Edition") == "rtx-pro-6000"
    assert match_gpu("NVIDIA H200") == "h200"
    assert match_gpu("NVIDIA GeForce RTX 5090") == ""


def test_parsers_of_model_families_exist() -> None:
    newest = find_release(next(reversed(load_versions())))
    for family in load_model_families():
        for flag, registry in (
            ("reasoning-parser", "reasoning_parser"),
            ("tool-call-parser", "tool_call_parser"),
        ):
            assert family.serve.get(flag) in {None, *newest.sets[registry]}, family


def test_the_readme_of_a_recipe_is_yaml() -> None:
    for block in re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs/recipes.md").read_text(), re.DOTALL
    ):
        yaml.safe_load(block)


def test_a_fault_of_the_keys_does_not_hide_the_flags(cli: CommandLine) -> None:
    (cli.home / "a.yaml").write_text(
        "name: x\nmodel: m\ncontainer: vllm/vllm-openai:v0.20.0\nshm_size: lots\nserve:\n"
        "  enforce-eager: yes please\n  --port: 1\n  max-modle-len: 3\nwhen: {h1000: {}}\n"
    )
    rows = cli("check", "a.yaml").out.splitlines()
    codes = [row.partition(":")[0] for row in rows if row.startswith("error")]
    assert codes == [
        "error[REC004] a.yaml",
        "error[FLAG002] a.yaml",
        "error[REC019] a.yaml",
        "error[FLAG001] a.yaml",
        "error[REC018] a.yaml",
    ]
    (cli.home / "b.yaml").write_text(OLD.replace("container:", "contaner:").replace("-tp", "-pt"))
    assert "FLAG001" in cli("check", "b.yaml").out


def test_check_goes_on_after_a_file_that_is_not_there(cli: CommandLine) -> None:
    (cli.home / "loop.yaml").symlink_to("loop.yaml")
    (cli.home / "r").mkdir()
    (cli.home / "r/old.yaml").write_text(OLD)
    done = cli("check", "r", "tiny-cpu")
    assert "2 recipes" in done.out


@pytest.mark.parametrize("value", ["abc", "a-long-secret-value"])
def test_a_secret_of_any_length_is_masked_where_its_name_stands(
    cli: CommandLine, value: str
) -> None:
    for verb in (
        ["show", "tiny-cpu"],
        ["show", "tiny-cpu", "--json"],
        ["render", "tiny-cpu"],
        ["render", "tiny-cpu", "--as", "docker-py"],
        ["render", "tiny-cpu", "--as", "script"],
        ["up", "tiny-cpu", "--dry-run"],
        ["up", "tiny-cpu", "--dry-run", "--json"],
    ):
        done = cli(*verb, "--env", f"MY_TOKEN={value}", "--set", f"api-key={value}")
        assert done.code == 0, done.err
        assert value not in done.out + done.err, verb


def test_set_null_takes_a_flag_away(cli: CommandLine) -> None:
    done = cli("render", "tiny-cpu", "--as", "command", "--set", "max-num-seqs=null")
    assert "--max-num-seqs" not in done.out
    assert "-tp 2" in cli("render", "tiny-cpu", "--as", "command", "--set", "-tp=2").out.replace(
        "--tensor-parallel-size", "-tp"
    )
    assert (
        "--tensor-parallel-size 3"
        in cli("render", "tiny-cpu", "--as", "command", "--set", "tensor_parallel=3").out
    )


FAULTY = """\
model: org/m
conatiner: vllm/vllm-openai:v0.20.0
gpus: none
serve:
  port: 1
  kv-cache-dtype: fp9
  max-num-seqs: lots
  limit-mm-per-prompt: {vidio: 1}
mods: [mods/nowhere]
when:
  b200:
    serve: {max-model-len: -5x, no-such: 1}
"""


def test_a_misspelt_key_hides_nothing(cli: CommandLine) -> None:
    (cli.home / "a.yaml").write_text(FAULTY)
    done = cli("check", "a.yaml")
    for told in (
        "a.yaml:2:1: conatiner: unknown key; did you mean 'container'?",
        "a.yaml:6:19: --kv-cache-dtype",
        "a.yaml:7:17: --max-num-seqs",
        "a.yaml:8:24: --limit-mm-per-prompt knows no 'vidio'; did you mean 'video'?",
        "--max-model-len expected a whole number such as 8192 or 64K, found '-5x'",
        "--no-such: vLLM 0.20.0 does not have it",
    ):
        assert told in done.out, told
    up = cli("up", "a.yaml", "--dry-run")
    assert (up.code, "a.yaml:6:19: --kv-cache-dtype" in up.err) == (1, True)


def test_the_image_of_a_base_is_not_forgotten(cli: CommandLine) -> None:
    text = "extends: nemotron-omni\nserv: {}\nserve: {max-modle-len: 1}\n"
    (cli.home / "a.yaml").write_text(text)
    done = cli("check", "a.yaml")
    assert "--max-modle-len: vLLM 0.20.0 does not have it; did you mean '--max-model-len'" in (
        done.out
    )
    assert "serv: unknown key" in done.out


def test_an_unfilled_placeholder_hides_nothing(cli: CommandLine) -> None:
    text = (
        'recipe_version: "1"\nname: a\ncontainer: vllm/vllm-openai:v0.20.0\nserv: 1\n'
        "defaults: {port: 1, unused: 2}\n"
        "command: vllm serve m --host {hots} --port {port} --max-num-seqs abc\n"
    )
    (cli.home / "a.yaml").write_text(text)
    done = cli("check", "a.yaml")
    for told in ("REC007", "REC003", "defaults.unused: the command has no", "found 'abc'"):
        assert told in done.out, (told, done.out)


def test_a_path_that_is_not_there_is_one_finding(cli: CommandLine) -> None:
    (cli.home / "a.yaml").write_text(FAULTY)
    done = cli("check", "a.yaml", "nowhere.yaml")
    assert done.code == 1
    assert "there is no recipe 'nowhere.yaml'" in done.out
    assert "a.yaml:2:1" in done.out


def test_what_is_set_from_outside_is_checked_too(cli: CommandLine) -> None:
    up = cli("up", "nemotron-omni", "--dry-run", "--set", "max-num-seqs=abc")
    assert up.code == 1
    assert "found 'abc' (set from outside)" in up.err
    up = cli("up", "nemotron-omni", "--dry-run", "--", "--no-such-flag", "1")
    assert up.code == 1
    assert "--no-such-flag: vLLM 0.20.0 does not have it (set from outside)" in up.err
    assert cli("up", "nemotron-omni", "--dry-run", "--", "--port", "9").code == 0


def test_numbers_of_tokens_are_no_secrets(cli: CommandLine) -> None:
    shown = cli("render", "nemotron-omni", "--set", "max-num-batched-tokens=8192").out
    assert "--max-num-batched-tokens 8192" in shown
    assert "********" not in shown


def test_list_searches_modalities_and_hardware(cli: CommandLine) -> None:
    found = cli("list", "audio", "h200", "--json").json()["recipes"]
    assert isinstance(found, list)
    assert {"nemotron-omni-fp8", "nemotron-omni-bf16"} <= {one["name"] for one in found}


def test_doctor_asks_a_cpu_recipe_for_no_gpu(cli: CommandLine) -> None:
    lines = cli("doctor", "tiny-cpu", "--offline", "--json").json()["lines"]
    assert isinstance(lines, list)
    names = {line["name"] for line in lines}
    assert "engine" in names
    assert not names & {"gpu", "driver", "gpu support"}


def test_a_value_that_nothing_can_be_built_with_has_its_line(cli: CommandLine) -> None:
    (cli.home / "a.yaml").write_text(
        "model: org/m\ncontainer: vllm/vllm-openai:v0.20.0\nserve:\n  port: 99999\n"
    )
    up = cli("up", "a.yaml", "--dry-run")
    assert (up.code, "a.yaml:4:9" in up.err) == (1, True)
    plan = cli("plan", "a.yaml")
    assert "a.yaml:4:9" in plan.out + plan.err


def test_a_recipe_without_gpus_is_of_a_cpu(cli: CommandLine) -> None:
    assert "hardware  cpu" in cli("plan", "tiny-cpu").out
