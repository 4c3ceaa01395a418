"""Models in which some layers attend to a window: blocks and concurrency as vLLM's own functions
give them.
"""

from __future__ import annotations

from typing import Any

import pytest

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.catalog.hardware import load_hardware
from spark_vllm_docker.catalog.layers import UnknownShape
from spark_vllm_docker.catalog.model_shapes import ModelShape, read_shape
from spark_vllm_docker.findings import Where
from spark_vllm_docker.plan.engine_settings import EngineSettings, UnknownSetting, read_settings
from spark_vllm_docker.plan.kv_cache import bytes_for, count_kv_cache
from spark_vllm_docker.plan.window_block import block_sizes, check_windows
from spark_vllm_docker.recipe.arguments import read_arguments
from spark_vllm_docker.recipe.command import Argument

GIB = 1 << 30
FIVE_TO_ONE = ["sliding_attention"] * 5 + ["full_attention"]
GEMMA_4_26B: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {
        "dtype": "bfloat16",
        "num_hidden_layers": 30,
        "layer_types": FIVE_TO_ONE * 5,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 1024,
        "max_position_embeddings": 262144,
        "num_kv_shared_layers": 0,
    },
}
GEMMA_4_31B = {
    **GEMMA_4_26B,
    "text_config": {
        **GEMMA_4_26B["text_config"],
        "num_hidden_layers": 60,
        "layer_types": FIVE_TO_ONE * 10,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "num_global_key_value_heads": 4,
    },
}
GPT_OSS_20B = {
    "architectures": ["GptOssForCausalLM"],
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "sliding_window": 128,
    "max_position_embeddings": 131072,
}
GEMMA_3_27B = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "torch_dtype": "bfloat16",
    "text_config": {
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "max_position_embeddings": 131072,
    },
}
MODELS = {
    "gemma-4-26b": GEMMA_4_26B,
    "gemma-4-31b": GEMMA_4_31B,
    "gpt-oss-20b": GPT_OSS_20B,
    "gemma-3-27b": GEMMA_3_27B,
}
LONG, SHORT = (131072, 8192, 40), (32768, 2048, 10)
"""`max_model_len`, `max_num_batched_tokens`, GiB for the cache."""

# What get_kv_cache_groups, get_max_concurrency_for_kv_cache_config and the line of the log of the
# released wheels make of these layers: groups, blocks, tokens of both blocks, concurrency in 0.24.0
# and in 0.26.0 (0.32.0 agrees where all tokens are of one size), tokens that 0.20.0 prints.
MEASURED = [
    ("gemma-4-26b", "bf16", LONG, 6, 65536, (32, 16), 9.387766795588025, 6.868881668588198, 174752),
    ("gemma-4-26b", "bf16", SHORT, 6, 16384, (32, 16), 8.237305178481648, 6.2320273868391025, 43680),
    ("gemma-4-26b", "fp8", LONG, 6, 131072, (32, 16), 18.77553359117605, 13.737763337176396, 349520),
    ("gemma-4-31b", "bf16", LONG, 6, 16384, (32, 16), 2.346941698897006, 1.7172204171470495, 43680),
    ("gemma-4-31b", "fp8", SHORT, 6, 8192, (32, 16), 4.118652589240824, 3.1160136934195513, 21840),
    ("gpt-oss-20b", "bf16", LONG, 2, 109226, (16, 16), 12.535980718466659, 11.840216802168023, 873808),
    ("gpt-oss-20b", "fp8", SHORT, 2, 54613, (16, 16), 24.994508009153318, 23.611327280587982, 436896),
    ("gemma-3-27b", "bf16", LONG, 7, 32768, (16, 16), 2.8117384588982324, 2.22517995382317, 74896),
    ("gemma-3-27b", "fp8", SHORT, 7, 16384, (16, 16), 5.110417966313163, 4.122798188223452, 37440),
]  # fmt: skip


def settings_of(shape: ModelShape, flags: str, version: str = "0.24.0") -> EngineSettings:
    words = [Argument(Where("a"), word) for word in flags.split()]
    arguments = read_arguments(words, find_release(version).flags)
    settings = read_settings(arguments, shape, version, load_hardware()["h200"])
    check_windows(shape, settings)
    return settings


@pytest.mark.parametrize(
    ("model", "dtype", "start", "groups", "blocks", "tokens", "until_25", "from_26", "printed"),
    MEASURED,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_blocks_and_concurrency_are_those_of_vllm(
    model: str,
    dtype: str,
    start: tuple[int, int, int],
    groups: int,
    blocks: int,
    tokens: tuple[int, int],
    until_25: float,
    from_26: float,
    printed: int,
) -> None:
    shape = read_shape(model, MODELS[model])
    length, budget, gib = start
    flags = f"--max-model-len {length} --max-num-batched-tokens {budget}"
    flags += " --kv-cache-dtype fp8" if dtype == "fp8" else ""
    for version, wanted in (("0.24.0", until_25), ("0.26.0", from_26)):
        settings = settings_of(shape, flags, version)
        cache = count_kv_cache(shape, settings, gib * GIB, length)
        assert (cache.groups, cache.blocks) == (groups, blocks)
        assert block_sizes(shape, settings) == tokens
        assert cache.concurrency == pytest.approx(wanted, rel=1e-12)
        assert cache.logged_tokens == int(wanted * length)
    old = count_kv_cache(shape, settings_of(shape, flags, "0.20.0"), gib * GIB, length)
    assert old.logged_tokens == printed
    assert count_kv_cache(shape, settings, bytes_for(shape, settings, length, 1), length).blocks


def test_tokens_of_two_sizes_are_packed_by_the_backend_from_0_29_on() -> None:
    shape = read_shape("gemma", GEMMA_4_26B)
    for version in ("0.29.0", "0.32.0", ""):
        with pytest.raises(UnknownSetting, match="decides how blocks of 4096 and 8192 bytes"):
            settings_of(shape, "", version)
    same = settings_of(read_shape("m", GPT_OSS_20B), "--max-model-len 32768", "0.32.0")
    cache = count_kv_cache(read_shape("m", GPT_OSS_20B), same, 10 * GIB, 32768)
    assert cache.blocks == 27306


def test_waiting_for_a_step_takes_less_room() -> None:
    shape = read_shape("m", GPT_OSS_20B)
    flags = "--max-model-len 131072 --max-num-batched-tokens 8192"
    asynchronous = count_kv_cache(shape, settings_of(shape, flags, "0.32.0"), GIB, 131072)
    synchronous = settings_of(shape, f"{flags} --no-async-scheduling", "0.32.0")
    cache = count_kv_cache(shape, synchronous, GIB, 131072)
    assert cache.concurrency > asynchronous.concurrency


@pytest.mark.parametrize("flag", ["--disable-hybrid-kv-cache-manager", "--kv-transfer-config {}"])
def test_another_manager_of_the_cache_is_not_planned(flag: str) -> None:
    shape = read_shape("m", GPT_OSS_20B)
    with pytest.raises(UnknownSetting, match="changes how windows are kept"):
        settings_of(shape, flag)
    settings_of(shape, "--no-disable-hybrid-kv-cache-manager")


def test_layers_that_share_a_cache_have_none() -> None:
    text = GEMMA_4_26B["text_config"] | {"num_kv_shared_layers": 12}
    shape = read_shape("m", GEMMA_4_26B | {"text_config": text})
    assert shape.window is not None
    assert (shape.attention_layers, shape.window.layers) == (3, 15)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"layer_types": FIVE_TO_ONE}, "6 layer_types for 30 layers"),
        ({"layer_types": ["sliding_attention"] * 30}, "its layer_types are not"),
        (
            {"layer_types": ["full_attention"] * 29 + ["linear_attention"]},
            "its layer_types are not",
        ),
        ({"layer_types": ["full_attention"] * 29 + [{}]}, "its layer_types are not"),
        ({"sliding_window": None}, "has no sliding_window"),
        ({"sliding_window": -1}, "sliding_window of its config.json is -1"),
        ({"num_kv_shared_layers": 30}, "30 of its 30 layers share"),
        ({"num_kv_shared_layers": "x"}, "num_kv_shared_layers of its config.json is 'x'"),
        ({"global_head_dim": 0}, "global_head_dim of its config.json is 0"),
        ({"num_global_key_value_heads": 2.5}, "num_global_key_value_heads of its config.json is"),
        ({"per_layer_config": {}}, "a per_layer_config is not planned"),
    ],
)
def test_files_that_contradict_themselves(change: dict[str, Any], told: str) -> None:
    text = GEMMA_4_26B["text_config"] | change
    with pytest.raises(UnknownShape, match=told):
        read_shape("m", GEMMA_4_26B | {"text_config": text})


def test_tokens_that_do_not_divide_each_other() -> None:
    text = GEMMA_4_26B["text_config"] | {"global_head_dim": 384}
    with pytest.raises(UnknownSetting, match="3072 and 8192 bytes in one pool"):
        settings_of(read_shape("m", GEMMA_4_26B | {"text_config": text}), "")


def test_what_a_file_leaves_out_is_transformers_default() -> None:
    """Checkpoints leave out what equals the default of their class: Gemma 3 12B has no head_dim."""
    text = {
        "hidden_size": 3840,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_hidden_layers": 48,
        "sliding_window": 1024,
    }
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": text}
    shape = read_shape("m", config)
    assert shape.window is not None
    assert (shape.head_dim, shape.max_position, shape.window.head_dim) == (256, 131072, 256)
    assert (shape.attention_layers, shape.window.layers) == (8, 40)
    qwen = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 2, "hidden_size": 64}
    assert read_shape("m", {**qwen, "num_attention_heads": 2}).max_position == 32768


def test_gpt_oss_takes_every_other_layer() -> None:
    without = {key: value for key, value in GPT_OSS_20B.items() if key != "layer_types"}
    shape = read_shape("m", without)
    assert shape.window is not None
    assert (shape.attention_layers, shape.window.layers) == (12, 12)
    with pytest.raises(UnknownShape, match="not every other one"):
        read_shape("m", {**GPT_OSS_20B, "layer_types": ["full_attention"] * 24})


@pytest.mark.parametrize(
    "flags",
    [
        "--disable-sliding-window",
        "--kv-cache-dtype-skip-layers sliding_window",
        "--decode-context-parallel-size 2",
        '--speculative-config {"method":"ngram","num_speculative_tokens":2}',
        "--pipeline-parallel-size 2",
    ],
)
def test_what_changes_windows_is_not_planned(flags: str) -> None:
    with pytest.raises(UnknownSetting, match="changes how windows are kept"):
        settings_of(read_shape("m", GPT_OSS_20B), flags, "0.26.0")


# As vLLM groups all layers and hands each rank its share of every group
# (kv_cache_utils.py, get_kv_cache_configs).
@pytest.mark.parametrize(("model", "pipeline"), [("gemma-3-27b", 2), ("gemma-4-26b", 2)])
def test_ranks_of_a_pipeline_share_groups_of_all_layers(model: str, pipeline: int) -> None:
    shape = read_shape(model, MODELS[model])
    flags = "--max-model-len 131072 --max-num-batched-tokens 8192"
    alone = settings_of(shape, flags)
    ranks = settings_of(shape, f"{flags} --pipeline-parallel-size {pipeline}")
    assert shape.window is not None
    half = -(-shape.attention_layers // pipeline) / shape.attention_layers
    whole = bytes_for(shape, alone, 131072, 1)
    assert bytes_for(shape, ranks, 131072, 1) == whole * half


@pytest.mark.parametrize("name", ["\ud800", "\x1b[31mX\n", "a" * 5000])
def test_a_foreign_name_is_shown_in_characters_that_may_be_shown(name: str) -> None:
    with pytest.raises(UnknownShape) as caught:
        read_shape("m", {"architectures": [name], "num_attention_heads": 2, "hidden_size": 4})
    told = str(caught.value)
    assert told.isprintable()
    assert len(told) <= 300
