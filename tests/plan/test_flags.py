"""The flags of a recipe against the release in its image: every kind of mistake, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.catalog.image_versions import read_vllm_version
from spark_vllm_docker.errors import InvalidRecipe
from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.plan.check import check_recipe
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from tests.conftest import ROOT

HEAD = (
    'recipe_version: "1"\nname: a\ncontainer: {image}\ndefaults: {{port: 8000, n: 4}}\ncommand: |\n'
)


def findings(
    flags: str, image: str = "vllm/vllm-openai:v0.20.0", model: str = "org/m"
) -> list[str]:
    text = (
        HEAD.format(image=image)
        + f"  vllm serve {model} --port {{port}} --max-num-seqs {{n}} \\\n    {flags}\n"
    )
    recipe = parse_recipe(text, Path("a.yaml"))
    return [
        f"{f.severity.value} {f.code} {f.where.line}:{f.where.column} {f.message}"
        for f in check_recipe(recipe)
        if f.where and f.code != "FLAG010"
    ]


@pytest.mark.parametrize(
    "flags",
    [
        "",
        "--max-model-len 64k",
        "--max_model_len 65536",
        "--max-model-len auto",
        "--max-model 4096",
        "--max-num-batched-tokens 1.5k",
        "-tp 2 -O3",
        "-O 2",
        "--optimization-level 3",
        "-cc.mode 3 -cc.cudagraph_mode=PIECEWISE",
        "--compilation-config.cudagraph_mode PIECEWISE",
        '--limit-mm-per-prompt \'{{"video":1,"image":1,"audio":1}}\'',
        '--speculative-config \'{{"method":"mtp","num_speculative_tokens":2}}\'',
        "--served-model-name a b c --enforce-eager",
        "--no-enable-prefix-caching",
        "--enable-auto-tool-choice --tool-call-parser qwen3_coder",
        "--attention-backend flash_attn",
        "--gpu-memory-utilization 0.92",
        "--middleware a.b --middleware c.d",
        "--override-generation-config '{{}}'",
        "--kv-cache-dtype=fp8",
        "--uvicorn-log-level warning",
        "--api-key a b",
        "--seed -1",
    ],
)
def test_what_vllm_takes_is_no_fault(flags: str) -> None:
    assert findings(flags) == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            "--max-modle-len 1",
            "error FLAG001 7:5 --max-modle-len: vLLM 0.20.0 does not have it; did you mean '--max-model-len'?",
        ),
        (
            "--swap-space 4",
            "error FLAG001 7:5 --swap-space: gone after vLLM 0.17.1, and the image has 0.20.0",
        ),
        ("--trust-request-mm-kwargs", "error FLAG001 7:5 --trust-request-mm-kwargs: new in vLLM"),
        (
            "--kv-cache-dtype fp7",
            "error FLAG002 7:22 --kv-cache-dtype expected one of auto, bfloat16",
        ),
        (
            "--max-num-batched-tokens many",
            "error FLAG002 7:30 --max-num-batched-tokens expected a whole number such as 8192 or 64K, found 'many'",
        ),
        (
            "--max-model-len 1.5K",
            "error FLAG002 7:21 --max-model-len expected a whole number such as 8192 or 64K, found '1.5K'",
        ),
        (
            "--max-logprobs 1k",
            "error FLAG002 7:20 --max-logprobs expected a whole number, found '1k'",
        ),
        (
            "--gpu-memory-utilization 108",
            "error FLAG002 7:30 --gpu-memory-utilization expected a fraction above 0, at most 1, found 108",
        ),
        (
            "--gpu-memory-utilization most",
            "error FLAG002 7:30 --gpu-memory-utilization expected a number, found 'most'",
        ),
        (
            "--limit-mm-per-prompt '{{image:2}}'",
            "error FLAG002 7:27 --limit-mm-per-prompt is not JSON",
        ),
        (
            "--compilation-config '{{\"levl\":3}}'",
            "error FLAG002 7:26 --compilation-config has no field 'levl'",
        ),
        (
            "-cc.cudagraf_mode X",
            "error FLAG002 7:5 -cc.cudagraf_mode has no field 'cudagraf_mode'; did you mean 'cudagraph_mode'?",
        ),
        ("--seed.x 1", "error FLAG002 7:5 --seed.x is no JSON flag, so '.x' has no meaning"),
        (
            "--enable-prefix-caching=false",
            "error FLAG002 7:29 --enable-prefix-caching takes no value, found 'false'; write --no-enable-prefix-caching",
        ),
        (
            "--trust-remote-code=true",
            "error FLAG002 7:25 --trust-remote-code takes no value, found 'true'",
        ),
        ("--max-logprobs", "error FLAG002 7:5 --max-logprobs needs a value"),
        (
            "--enable-auto-tool-choice --tool-call-parser qwen9",
            "error FLAG003 7:50 --tool-call-parser: 'qwen9' does not exist in vLLM 0.20.0",
        ),
        (
            "--reasoning-parser nemotron_v4",
            "error FLAG003 7:24 --reasoning-parser: 'nemotron_v4' does not exist in vLLM 0.20.0; did you mean 'nemotron_v3'?",
        ),
        (
            "--max-num 1",
            "error FLAG004 7:5 --max-num could be --max-num-batched-tokens, --max-num-partial-prefills",
        ),
        ("--seed 1 --seed 2", "warning FLAG005 7:14 --seed is given twice; the last one counts"),
        (
            "--enable-auto-tool-choice",
            "error FLAG006 7:5 --enable-auto-tool-choice needs --tool-call-parser",
        ),
        (
            "--enable-log-outputs",
            "error FLAG006 7:5 --enable-log-outputs needs --enable-log-requests",
        ),
    ],
)
def test_each_mistake_is_named_at_its_place(flags: str, expected: str) -> None:
    found = findings(flags)
    assert len(found) == 1, found
    assert found[0].startswith(expected)


def test_a_removed_flag_says_what_to_write_instead() -> None:
    recipe = parse_recipe(
        HEAD.format(image="vllm/vllm-openai:v0.32.0")
        + "  vllm serve m --calculate-kv-scales --port {port} --max-num-seqs {n}\n",
        Path("a.yaml"),
    )
    (finding,) = check_recipe(recipe)
    assert (
        finding.message == "--calculate-kv-scales: gone after vLLM 0.31.0, and the image has 0.32.0"
        or "gone after vLLM" in finding.message
    )
    assert finding.fix == "leave it out; scales come from the checkpoint"


def test_a_parameter_is_checked_with_its_value() -> None:
    text = HEAD.format(image="vllm/vllm-openai:v0.20.0").replace("n: 4", "n: many")
    recipe = parse_recipe(
        f"{text}  vllm serve m --port {{port}} --max-num-seqs {{n}}\n", Path("a.yaml")
    )
    (finding,) = check_recipe(recipe)
    assert finding.message == "--max-num-seqs expected a whole number, found 'many'"


def test_an_unknown_release_is_said_and_checked_loosely() -> None:
    recipe = parse_recipe(
        HEAD.format(image="vllm-node")
        + "  vllm serve m --port {port} --max-num-seqs {n} --swap-space 4 --nope 1\n",
        Path("a.yaml"),
    )
    by_code = {f.code: f for f in check_recipe(recipe)}
    assert set(by_code) == {"FLAG010", "FLAG001"}
    assert by_code["FLAG010"].severity is Severity.NOTE
    assert by_code["FLAG001"].severity is Severity.WARNING
    assert by_code["FLAG001"].message.startswith("--nope: no release of vLLM has this flag")


def test_other_findings() -> None:
    text = (
        'recipe_version: "1"\nname: a\ncontainer: vllm/vllm-openai:v0.20.0\nmodel: org/other\n'
        "defaults: {port: 1, unused: 2}\ncommand: |\n  vllm serve org/m --port {port}\n"
    )
    found = [(f.code, str(f.where)) for f in check_recipe(parse_recipe(text, Path("a.yaml")))]
    assert found == [("REC008", "a.yaml:5:21"), ("REC009", "a.yaml:7:14")]
    other = text.replace("vllm serve org/m", "uvicorn app:x").replace(", unused: 2", "")
    assert [f.code for f in check_recipe(parse_recipe(other, Path("a.yaml")))] == ["REC010"]


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.20.0", "0.20.0"),
        ("vllm/vllm-openai:v0.20.1-cu130", "0.20.1"),
        ("spark-recipe/vllm-cpu:0.32.0", "0.32.0"),
        ("localhost:5000/vllm-openai:v0.24.0@sha256:00", "0.24.0"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai", None),
        ("vllm-node", None),
        ("localhost:5000/x", None),
        ("nvcr.io/nvidia/pytorch:25.9.1", None),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
    ],
)
def test_the_release_in_an_image(image: str, version: str | None) -> None:
    assert read_vllm_version(image) == version


def test_the_shipped_recipes_have_no_fault() -> None:
    for path in (ROOT / "recipes").rglob("*.yaml"):
        recipe = load_recipe(path)
        for hardware in ("", *recipe.when):
            found = check_recipe(load_recipe(path, hardware))
            # A patched image does not tell its release.
            assert [f for f in found if f.code != "FLAG010"] == [], path


def findings_of(path: Path) -> list[Finding]:
    try:
        return check_recipe(load_recipe(path))
    except InvalidRecipe as error:
        return list(error.findings)


def test_the_corpus_has_no_false_errors() -> None:
    corpus = ROOT.parent / "shared/recipes-corpus/eugr"
    if not corpus.is_dir():
        pytest.skip("the corpus is not here")
    errors = [
        (path.name, f.message)
        for path in sorted(corpus.glob("*.yaml"))
        for f in findings_of(path)
        if f.severity is Severity.ERROR
    ]
    assert errors == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("m --enforce-eager true", "--enforce-eager takes no value, found 'true'"),
        ("m --port 1 2", "--port takes one value, found '2' after it"),
        ("m --no-enable-prefix-caching false", "takes no value, found 'false'"),
        ("--enforce-eager m", ""),
        ("m --served-model-name a b", ""),
        ("m -O3", ""),
    ],
)
def test_a_word_that_belongs_to_nothing(words: str, message: str) -> None:
    text = (
        'recipe_version: "1"\nname: a\ncontainer: vllm/vllm-openai:v0.20.0\n'
        f"command: vllm serve {words}\n"
    )
    found = [f.message for f in check_recipe(parse_recipe(text, Path("a.yaml")))]
    assert bool(found) is bool(message)
    assert message in "".join(found)
