"""Flags that change what vLLM takes by default, and starts that it accepts or refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_vllm_docker.catalog.hardware import load_hardware
from spark_vllm_docker.catalog.layers import UnknownShape
from spark_vllm_docker.catalog.model_shapes import (
    ModelShape,
    find_known_shape,
    load_known_models,
    read_shape,
)
from spark_vllm_docker.findings import Severity
from spark_vllm_docker.plan.report import PlanReport, Surroundings, build_plan
from spark_vllm_docker.plan.video import BadVideo, parse_video
from spark_vllm_docker.plan.video_plan import read_video_settings
from spark_vllm_docker.recipe.load import parse_recipe

OMNI = "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4"
BF16 = "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16"
TEXT = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
ALIGN = "enable-prefix-caching: true, mamba-cache-mode: align"
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}  # fmt: skip


def plan(
    serve: str,
    model: str = OMNI,
    hardware: str = "dgx-spark",
    image: str = "v0.20.0",
    shape: ModelShape | None = None,
    more: str = "",
    free: float | None = None,
) -> PlanReport:
    text = f"model: {model}\ncontainer: vllm/vllm-openai:{image}\n{more}serve: {{{serve}}}\n"
    recipe = parse_recipe(text, Path("a.yaml"))
    around = Surroundings(load_hardware().get(hardware), shape or find_known_shape(model), "", free)
    return build_plan(recipe, recipe.command.text, around)


def codes(report: PlanReport) -> list[str]:
    return [finding.code for finding in report.findings if finding.code[:2] != "MM"]


def llama(weights: float = 16.0, **more: Any) -> ModelShape:
    return replace(read_shape("org/llama", LLAMA | more), weights_gib=weights)


@pytest.mark.parametrize("image", ["v0.17.0", "v0.20.0", "v0.25.1", "v0.26.0"])
def test_releases_that_assert_the_block(image: str) -> None:
    assert "MAMBA001" in [f.code for f in plan(ALIGN, image=image).errors]


@pytest.mark.parametrize("image", ["v0.27.0", "v0.28.0", "v0.32.0"])
def test_releases_that_do_not(image: str) -> None:
    assert [f.code for f in plan(ALIGN, image=image).errors if f.code[:2] != "MM"] == []


@pytest.mark.parametrize("image", ["nightly", "latest"])
def test_an_unknown_release_is_only_warned_of(image: str) -> None:
    report = plan(ALIGN, image=image)
    (finding,) = [f for f in report.findings if f.code == "MAMBA001"]
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("serve", "hardware", "image", "tokens", "sequences"),
    [
        ("", "dgx-spark", "v0.20.0", 2048, 256),
        ("performance-mode: throughput", "dgx-spark", "v0.20.0", 4096, 512),
        ("performance-mode: throughput, max-num-seqs: 8", "dgx-spark", "v0.20.0", 4096, 8),
        ("tensor-parallel-size: 2", "cpu", "v0.20.0", 4096, 256),
        ("", "cpu", "v0.20.0", 2048, 128),
        ("enable-chunked-prefill: false, max-model-len: 30000", "h100", "v0.20.0", 30000, 1024),
        ("max-num-batched-tokens: 128", "h200", "v0.20.0", 128, 128),
        ("max-num-batched-tokens: 128, max-num-seqs: 200", "h200", "v0.20.0", 128, 200),
        ("", "b200", "v0.27.1", 8192, 1024),
        ("", "b200", "v0.28.0", 16384, 1024),
        ("max-num-seqs: 2, max-model-len: 1000", "h200", "v0.20.0", 2000, 2),
    ],
)
def test_the_sizes_of_a_batch(
    serve: str, hardware: str, image: str, tokens: int, sequences: int
) -> None:
    settings = plan(serve, hardware=hardware, image=image).settings
    assert settings is not None
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (tokens, sequences)


@pytest.mark.parametrize(
    ("image", "caching", "mode"),
    [
        ("v0.20.0", "", "none"),
        ("v0.25.1", "", "none"),
        ("v0.26.0", "", "all"),
        ("v0.28.0", "", "align"),
        ("v0.31.0", "mamba-cache-mode: all", "all"),
        ("v0.32.0", "mamba-cache-mode: all", "align"),
        ("v0.20.0", "enable-prefix-caching: true", "all"),
        ("v0.26.0", "enable-prefix-caching: false", "none"),
    ],
)
def test_the_cache_mode_of_each_release(image: str, caching: str, mode: str) -> None:
    settings = plan(caching, TEXT, "h200", image).settings
    assert settings is not None
    assert settings.mamba_cache_mode == mode


@pytest.mark.parametrize(
    ("scaling", "length", "found"),
    [
        ({}, 8192, False),
        ({}, 8193, True),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 32768, False),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 32769, True),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, 16384, False),
        ({"rope_parameters": {"full": {"factor": 2}}}, 16384, False),
        ({"rope_scaling": {"factor": "x"}}, 8193, True),
        ({"model_max_length": 20000}, 20000, False),
        ({"max_position_embeddings": None}, 1 << 20, False),
    ],
)
def test_the_length_that_the_model_allows(
    scaling: dict[str, Any], length: int, found: bool
) -> None:
    report = plan(f"max-model-len: {length}", hardware="h200", shape=llama(**scaling))
    assert ("CTX001" in codes(report)) is found


def test_a_longer_context_can_be_allowed() -> None:
    shape = llama()
    more = 'env: {VLLM_ALLOW_LONG_MAX_MODEL_LEN: "1"}\n'
    report = plan("max-model-len: 9000", hardware="h200", shape=shape, more=more)
    (finding,) = [f for f in report.findings if f.code == "CTX001"]
    assert finding.severity is Severity.WARNING
    assert report.fixes == ()
    overridden = "max-model-len: 9000, hf-overrides: {max_position_embeddings: 9000}"
    assert "CTX001" not in codes(plan(overridden, hardware="h200", shape=shape))


def test_a_given_cache_size_makes_the_share_unimportant() -> None:
    given = "gpu-memory-utilization: 0.3, kv-cache-memory-bytes: 10G"
    assert "MEM004" not in codes(plan(given, BF16))
    assert "MEM004" in codes(plan("gpu-memory-utilization: 0.3", BF16))
    huge = "kv-cache-memory-bytes: 200G, max-model-len: 65536"
    (finding,) = plan(huge, BF16).errors
    assert (finding.code, "the GPU has 121.7 GiB" in finding.message) == ("MEM006", True)
    assert "MEM003" in codes(plan(given, BF16, free=20.0))


@pytest.mark.parametrize(
    "flag",
    ["cpu-offload-gb: 40", "quantization: fp8", "enable-expert-parallel: true"],
)
def test_weights_that_a_flag_changes_are_not_planned(flag: str) -> None:
    report = plan(f"{flag}, max-model-len: 8192", BF16, "l40s")
    assert report.memory is None
    assert not [code for code in codes(report) if code.startswith("MEM")]
    assert plan("cpu-offload-gb: 0", BF16, "l40s").memory is not None


@pytest.mark.parametrize(
    "serve",
    ["enforce-eager: true", "compilation-config: {cudagraph_mode: PIECEWISE}", "-O0: true"],
)
def test_sequences_without_a_block_matter_only_to_full_graphs(serve: str) -> None:
    many = "max-num-seqs: 5000, gpu-memory-utilization: 0.3, max-model-len: 4096"
    assert "MEM005" in codes(plan(many))
    if serve.startswith("-O0"):
        recipe = parse_recipe(
            f"model: {OMNI}\ncontainer: vllm/vllm-openai:v0.20.0\nserve: {{{many}}}\n",
            Path("a.yaml"),
        )
        around = Surroundings(load_hardware()["dgx-spark"], find_known_shape(OMNI))
        report = build_plan(recipe, recipe.command.text + " -O0", around)
    else:
        report = plan(f"{many}, {serve}")
    assert "MEM005" not in codes(report)


@pytest.mark.parametrize("weights", [40.0, 60.0])
def test_an_automatic_length_needs_room_for_one_token(weights: float) -> None:
    report = plan("max-model-len: auto", hardware="l40s", shape=llama(weights))
    assert {"MEM001", "MEM002", "MEM004"} & set(codes(report))


def test_an_automatic_length_serves_at_least_one_request() -> None:
    shape = llama(30.0, max_position_embeddings=1_000_000)
    memory = plan("max-model-len: auto", hardware="l40s", shape=shape).memory
    assert memory is not None
    assert memory.fits
    assert memory.cache.concurrency >= 1
    assert memory.length % memory.cache.block_tokens == 0


def test_a_checkpoint_without_a_longest_position_is_taken_for_2048() -> None:
    report = plan("", hardware="h200", shape=llama(max_position_embeddings=None))
    assert report.settings is not None
    assert report.settings.max_model_len == 2048


@pytest.mark.parametrize(
    ("serve", "image", "block"),
    [
        ("speculative-config: {method: mtp, num_speculative_tokens: 3}", "v0.24.0", 2192),
        ("spec-method: mtp, spec-tokens: 3", "v0.24.0", 2192),
        ("", "v0.24.0", 2128),
    ],
)
def test_drafts_count_however_they_are_written(serve: str, image: str, block: int) -> None:
    assert plan(f"{ALIGN}, {serve}", image=image).block_tokens == block


def test_drafts_that_nobody_counts_are_not_planned() -> None:
    report = plan("speculative-config: {method: mtp}")
    assert codes(report) == ["PLAN001"]
    assert "the draft decides" in report.findings[-1].message


@pytest.mark.parametrize(
    ("serve", "found"),
    [
        ("long-prefill-token-threshold: 1024", True),
        ("long-prefill-token-threshold: 2128", False),
        ("disable-chunked-mm-input: true", True),
        ("enable-chunked-prefill: false", True),
        ("enable-chunked-prefill: true", False),
    ],
)
def test_what_else_mode_align_needs(serve: str, found: bool) -> None:
    report = plan(f"{ALIGN}, max-num-batched-tokens: 8512, {serve}")
    assert ("MAMBA003" in [f.code for f in report.errors]) is found


@pytest.mark.parametrize(
    ("heads", "kv_heads", "parallel", "found"),
    [(40, 8, 5, ["TP002"]), (40, 8, 4, []), (32, 2, 8, []), (32, 8, 3, ["TP001"])],
)
def test_heads_that_cannot_be_split(
    heads: int, kv_heads: int, parallel: int, found: list[str]
) -> None:
    shape = llama(num_attention_heads=heads, num_key_value_heads=kv_heads, hidden_size=heads * 128)
    report = plan(f"tensor-parallel-size: {parallel}", hardware="h200", shape=shape)
    assert [code for code in codes(report) if code.startswith("TP")] == found


def test_key_heads_of_windows_that_cannot_be_split() -> None:
    shape = find_known_shape("nvidia/Gemma-4-26B-A4B-NVFP4")
    assert shape is not None
    assert shape.window is not None
    odd = replace(shape, window=replace(shape.window, kv_heads=6))
    report = plan("tensor-parallel-size: 4", hardware="h200", shape=odd, image="v0.24.0")
    assert [code for code in codes(report) if code.startswith("TP")] == ["TP002"]


def test_recurrent_heads_that_cannot_be_split() -> None:
    shape = find_known_shape(TEXT)
    assert shape is not None
    assert shape.state is not None
    odd = replace(shape, state=replace(shape.state, heads=63))
    assert "TP003" in codes(plan("tensor-parallel-size: 2", TEXT, "h200", shape=odd))


@pytest.mark.parametrize(
    "serve",
    [
        "tensor-parallel-size: 0",
        "pipeline-parallel-size: 0",
        "tensor-parallel-size: -2",
        "max-num-seqs: -1",
        "max-num-batched-tokens: -8",
        f"max-model-len: {'9' * 400}.5k",
        f"max-model-len: '{'9' * 5000}'",
        f"max-num-seqs: '{'9' * 40}'",
        f"kv-cache-memory-bytes: '{'9' * 30}'",
    ],
)
def test_absurd_numbers_are_said_and_nothing_is_planned_with_them(serve: str) -> None:
    report = plan(serve)
    assert codes(report) == ["PLAN001"]
    assert report.memory is None


def test_a_proposal_keeps_the_block_within_the_budget() -> None:
    serve = f"{ALIGN}, kv-cache-memory-bytes: 1G, max-model-len: 262144, max-num-seqs: 4"
    report = plan(serve, BF16)
    flags = [dict(proposal.flags) for proposal in report.proposals]
    assert {"--kv-cache-dtype": "fp8", "--max-num-batched-tokens": "2128"} in flags


def test_missing_memory_is_not_mended_with_less_than_the_weights() -> None:
    (finding,) = [f for f in plan("", BF16, free=30.0).findings if f.code == "MEM003"]
    assert "--gpu-memory-utilization" not in finding.fix


def test_the_longest_request_of_mode_all_takes_its_states_along() -> None:
    config = load_known_models()[TEXT]["config"] | {"hybrid_override_pattern": "MEM*E"}
    shape = replace(read_shape("m", config), weights_gib=1.0)
    serve = "enable-prefix-caching: true, kv-cache-memory-bytes: 200M, max-num-seqs: 4"
    memory = plan(f"{serve}, max-model-len: 262144", TEXT, "h200", shape=shape).memory
    assert memory is not None
    short = plan(f"{serve}, max-model-len: 32768", TEXT, "h200", shape=shape).memory
    assert short is not None
    assert memory.cache.longest == short.cache.longest > 32768


def test_dotted_settings_of_media_are_nested() -> None:
    report = plan("media-io-kwargs.video.fps: 2, media-io-kwargs.video.num_frames: 512")
    whole = plan("media-io-kwargs: {video: {fps: 2, num_frames: 512}}")
    assert read_video_settings(report) == read_video_settings(whole)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"torch_dtype": None, "text_config": {**LLAMA, "dtype": "bfloat16"}}, "bfloat16"),
        ({"torch_dtype": "torch.float16"}, "float16"),
    ],
)
def test_where_the_dtype_stands(change: dict[str, Any], expected: str) -> None:
    config = {**LLAMA, **change}
    if "text_config" in change:
        config["text_config"] = {**LLAMA, "torch_dtype": None, "dtype": "bfloat16"}
    assert read_shape("m", config).dtype == expected


@pytest.mark.parametrize("dtype", ["float32", None])
def test_a_float32_checkpoint_is_served_in_16_bit(dtype: str | None) -> None:
    settings = plan("", hardware="h200", shape=llama(torch_dtype=dtype)).settings
    assert settings is not None
    assert settings.kv_bytes == 2


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "NONE"}, ("modelopt_fp4", "")),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": None}, ("modelopt_fp4", "")),
        (
            {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}},
            ("modelopt", "fp8"),
        ),
        ({"quant_method": "x", "kv_cache_scheme": {"num_bits": 8}}, ("x", "fp8")),
        ({"quant_method": "x", "kv_cache_scheme": {"num_bits": 16}}, ("x", "")),
        ({"quant_method": "x", "kv_cache_scheme": "fp8"}, ("x", "")),
    ],
)
def test_what_a_checkpoint_says_of_its_cache(
    quantization: dict[str, Any], expected: tuple[str, str]
) -> None:
    shape = read_shape("m", {**LLAMA, "quantization_config": quantization})
    assert (shape.quantization, shape.kv_cache) == expected


def test_a_hybrid_without_recurrent_layers_is_none() -> None:
    config = {
        **LLAMA, "architectures": ["GraniteMoeHybridForCausalLM"], "mamba_n_heads": 48,
        "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4,
        "layer_types": ["attention"] * 40,
    }  # fmt: skip
    shape = read_shape("m", config)
    assert (shape.state, shape.attention_layers) == (None, 40)


JAMBA = {
    "architectures": ["JambaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    "attn_layer_period": 8, "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        {**LLAMA, "hidden_size": 1},
        {**LLAMA, "num_attention_heads": 10**11, "num_key_value_heads": 10**11},
        {**load_known_models()[TEXT]["config"], "hybrid_override_pattern": "EEE"},
        {**JAMBA, "attn_layer_offset": "x"},
        {**JAMBA, "num_hidden_layers": 10**11},
        {**LLAMA, "num_hidden_layers": 10**11},
    ],
)
def test_an_absurd_config_is_unknown(config: dict[str, Any]) -> None:
    with pytest.raises(UnknownShape):
        read_shape("m", config)


@pytest.mark.parametrize("text", ["9" * 5000 + "m", "9" * 400 + "h", "1." + "0" * 400 + "s"])
def test_an_absurd_duration_is_no_video(text: str) -> None:
    with pytest.raises(BadVideo):
        parse_video(text)
