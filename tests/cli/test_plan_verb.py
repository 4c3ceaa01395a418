"""`plan`, `doctor` and what `up` makes of a plan."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.conftest import CommandLine

TRAP = "extends: nemotron-omni\nserve: {max-num-batched-tokens: null, port: 8099}\nname: trap\n"


def test_a_plan_is_text_and_data(cli: CommandLine) -> None:
    done = cli("plan", "nemotron-omni", "--hardware", "dgx-spark")
    assert done.code == 0
    assert "2,128 tokens (16-bit state, fp8 KV)" in done.out
    assert "a prefill step takes 6,384 of them (8,512 would be taken whole)" in done.out
    document = cli("plan", "nemotron-omni", "--hardware", "dgx-spark", "--json").json()
    assert document["ok"] is True
    assert document["block_tokens"] == 2128
    assert document["memory"]["fits"] is True  # type: ignore[index]


def test_without_hardware_memory_is_not_planned(cli: CommandLine) -> None:
    done = cli("plan", "nemotron-omni")
    assert "unknown: --hardware says which" in done.out
    assert "KV cache" not in done.out


def test_up_stops_at_what_the_plan_says_and_mends_or_overrides_it(cli: CommandLine) -> None:
    (cli.home / "trap.yaml").write_text(TRAP)
    plan = cli("plan", "trap.yaml", "--hardware", "dgx-spark")
    assert plan.code == 1
    refused = cli("up", "trap.yaml", "--hardware", "dgx-spark", "--dry-run")
    assert refused.code == 1
    assert "error[MAMBA001]" in refused.err
    assert "block_size (2128) must be <= max_num_batched_tokens (2048, by default)" in refused.err
    assert refused.err.splitlines()[-1] == "fix: up --fix applies the flags that mend it"
    assert refused.out == ""
    fixed = cli("up", "trap.yaml", "--hardware", "dgx-spark", "--dry-run", "--fix")
    assert fixed.code == 0
    assert "fixed (plan): --max-num-batched-tokens unset → 2128\n" in fixed.err
    assert "--max-num-batched-tokens 2128" in fixed.out
    forced = cli("up", "trap.yaml", "--hardware", "dgx-spark", "--dry-run", "--force")
    assert forced.code == 0
    assert "error[MAMBA001]" in forced.err
    assert "--max-num-batched-tokens" not in forced.out
    by_hand = ["--", "--max-num-batched-tokens", "4096"]
    assert cli("up", "trap.yaml", "--hardware", "dgx-spark", "--dry-run", *by_hand).code == 0


def test_up_refuses_flags_that_the_image_does_not_have(cli: CommandLine) -> None:
    (cli.home / "bad.yaml").write_text(TRAP.replace("port: 8099", "max-modle-len: 3"))
    done = cli("up", "bad.yaml", "--dry-run")
    assert done.code == 1
    assert "error[FLAG001] bad.yaml:2:39: --max-modle-len" in done.err


@pytest.mark.parametrize(
    ("video", "words"),
    [
        ("3m", ["in the prompt, of 63,488", "3:32 with the server's settings"]),
        ("10m@1080p", ["fits with", "into 3 parts of 3:20", "never sound"]),
        ("30s silent", ["sound 0"]),
    ],
)
def test_a_video_is_planned(cli: CommandLine, video: str, words: list[str]) -> None:
    done = cli("plan", "nemotron-omni", "--video", video)
    for word in words:
        assert word in done.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nemotron-omni", "--video", "0s"], 2, "--video '0s': a video lasts more than 0 seconds"),
        (["nemotron-omni", "--video", "-5s"], 2, "is no video"),
        (["tiny-cpu", "--video", "5s"], 1, "videos are not planned"),
        (["nemotron-omni", "--svg", "x.svg"], 2, "--svg needs --sweep"),
        (["nemotron-omni", "--beside", "nothing"], 1, "there is no recipe 'nothing'"),
        (["nothing"], 1, "there is no recipe 'nothing'"),
    ],
)
def test_what_cannot_be_planned(
    cli: CommandLine, arguments: list[str], code: int, message: str
) -> None:
    done = cli("plan", *arguments)
    assert (done.code, message in done.err) == (code, True), done.err


def test_the_sweep_is_a_table_data_and_a_picture(cli: CommandLine) -> None:
    done = cli("plan", "nemotron-omni", "--sweep", "--svg", "videos.svg")
    rows = [row.split() for row in done.out.splitlines()]
    assert rows[0] == ["LENGTH", "FRAMES", "VIDEO", "LABELS", "SOUND", "PROMPT"]
    assert rows[3][:2] == ["3:00", "360"]
    picture = ElementTree.fromstring((cli.home / "videos.svg").read_text())
    assert picture.tag.endswith("svg")
    document = cli("plan", "nemotron-omni", "--sweep", "--json").json()
    assert len(document["videos"]) == len(rows) - 1  # type: ignore[arg-type]


def test_two_recipes_beside_each_other(cli: CommandLine) -> None:
    spark = ["--hardware", "dgx-spark"]
    done = cli("plan", "nemotron-omni", "--beside", "nemotron-nano", *spark)
    assert done.code == 1
    assert "do not fit: 0.8 + 0.3 is more than 0.93 usable" in done.out
    assert "they fit with" in done.out
    half = cli(
        "plan",
        "nemotron-omni",
        *spark,
        "--set",
        "gpu-memory-utilization=0.5",
        "--beside",
        "nemotron-nano",
    )
    assert (half.code, "fit: 0.5 + 0.3 of 0.93 usable" in half.out) == (0, True)


def test_a_config_of_the_user_is_planned_for_its_hardware(cli: CommandLine) -> None:
    config = cli.home / ".config/spark-recipe/config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("hardware: h100\n")
    assert "h100, 79.1 GiB" in cli("plan", "nemotron-omni-bf16").out


def test_a_model_folder_with_an_absurd_config_is_not_planned(cli: CommandLine) -> None:
    folder = cli.home / "model"
    folder.mkdir()
    (cli.home / "m.yaml").write_text(f"model: {folder}\ncontainer: i:1\nserve: {{}}\n")
    assert "note[PLAN001]" in cli("plan", "m.yaml").out
    (folder / "config.json").write_text(
        json.dumps({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": -1})
    )
    done = cli("plan", "m.yaml")
    assert done.code == 0
    assert "not planned" in done.out


def test_doctor_says_what_is_missing(cli: CommandLine) -> None:
    cli.environ["DOCKER_HOST"] = "unix:///nowhere.sock"
    done = cli("doctor", "tiny-cpu", "--offline")
    assert done.code == 1
    assert "error    engine" in done.out
    document = cli("doctor", "--offline", "--json").json()
    names = [line["name"] for line in document["lines"]]  # type: ignore[attr-defined]
    assert names[:4] == ["engine", "gpu support", "driver", "gpu"]
    assert document["ok"] is False
