"""Block sizes, KV blocks and concurrency are the numbers that vLLM prints."""

from __future__ import annotations

import re
from dataclasses import replace
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.catalog.hardware import load_hardware
from spark_vllm_docker.catalog.model_shapes import ModelShape, find_known_shape
from spark_vllm_docker.findings import Where
from spark_vllm_docker.plan.engine_settings import EngineSettings, parse_human, read_settings
from spark_vllm_docker.plan.kv_cache import count_kv_cache
from spark_vllm_docker.plan.mamba_block import attention_block_size, state_bytes
from spark_vllm_docker.recipe.arguments import read_arguments
from spark_vllm_docker.recipe.command import Argument
from tests.conftest import ROOT

NANO = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"
OMNI = "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-BF16"
SUPER = "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"
H200_LOGS = ROOT.parent / "shared/recordings/h200-0.20.0"


def shape_of(model: str) -> ModelShape:
    shape = find_known_shape(model)
    assert shape is not None
    return replace(shape, kv_cache="")


def settings_of(
    shape: ModelShape, flags: str, version: str = "0.20.0", hardware: str = "h200"
) -> EngineSettings:
    words = [Argument(Where("a"), word) for word in flags.split()]
    arguments = read_arguments(words, find_release(version).flags)
    return read_settings(arguments, shape, version, load_hardware()[hardware])


def block_of(model: str, flags: str) -> int:
    shape = shape_of(model)
    return attention_block_size(shape, settings_of(shape, flags))


ALIGN = "--enable-prefix-caching --mamba-cache-mode align"
TABLE = [
    # model, default state: bf16 and fp8 KV, mode all of both (0: the class has none), other state
    (NANO, (2096, 4176), (2176, 4224), "bfloat16", (1072, 2128)),
    (OMNI, (1072, 2128), None, "float32", (2096, 4176)),
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", (1312, 2608), (1408, 2688), "float16", (672, 1328)),
    (SUPER, (4160, 8320), (4224, 8320), "float16", (2112, 4224)),
    ("Qwen/Qwen3-Next-80B-A3B-Instruct", (544, 1072), None, "float32", (1056, 2096)),
    ("Qwen/Qwen3.5-35B-A3B", (1056, 2096), None, "bfloat16", (544, 1072)),
    ("Qwen/Qwen3.5-27B", (784, 1568), None, "bfloat16", (400, 800)),
    ("Qwen/Qwen3.5-9B", (528, 1056), None, "bfloat16", (272, 544)),
    ("Qwen/Qwen3.5-122B-A10B", (2096, 4176), None, "bfloat16", (1072, 2128)),
    ("ibm-granite/granite-4.0-h-small", (528, 1056), (768, 1280), "float32", (1040, 2080)),
    ("ibm-granite/granite-4.0-h-tiny", (400, 800), (512, 1024), "float32", (784, 1568)),
    ("tiiuae/Falcon-H1-34B-Instruct", (1040, 2080), (1152, 2176), "float32", (2064, 4128)),
    ("tiiuae/Falcon-H1-7B-Instruct", (1568, 3120), (1664, 3200), "float32", (3104, 6192)),
    ("ai21labs/Jamba-v0.1", (80, 160), (2048, 2048), "float32", (144, 288)),
]


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_block_sizes_are_those_of_the_facts(
    row: tuple[str, tuple[int, int], tuple[int, int] | None, str, tuple[int, int]],
) -> None:
    model, default, all_mode, other, with_other = row
    for index, kv in enumerate(("auto", "fp8")):
        flags = f"--kv-cache-dtype {kv}"
        assert block_of(model, f"{flags} {ALIGN}") == default[index]
        assert block_of(model, flags) == default[index]
        assert (
            block_of(model, f"{flags} {ALIGN} --mamba-ssm-cache-dtype {other}") == with_other[index]
        )
        asked_all = f"{flags} --enable-prefix-caching --mamba-cache-mode all"
        assert block_of(model, asked_all) == (all_mode or default)[index]


@pytest.mark.parametrize(
    ("model", "flags", "drafts", "block"),
    [
        (OMNI, "--kv-cache-dtype fp8", 1, 2144),
        (OMNI, "--kv-cache-dtype fp8", 2, 2176),
        (OMNI, "--kv-cache-dtype fp8", 3, 2192),
        (SUPER, "--kv-cache-dtype fp8", 1, 8352),
        (SUPER, "--kv-cache-dtype fp8", 3, 8432),
        (SUPER, "--kv-cache-dtype fp8", 5, 8512),
    ],
)
def test_drafts_make_the_state_larger(model: str, flags: str, drafts: int, block: int) -> None:
    config = f'--speculative-config {{"num_speculative_tokens":{drafts}}}'
    assert block_of(model, f"{flags} {config} {ALIGN}") == block


def test_ranks_do_not_change_the_block_while_there_is_a_head_for_each() -> None:
    fp8 = "--kv-cache-dtype fp8 --mamba-ssm-cache-dtype float16"
    assert block_of(NANO, f"{fp8} -tp 2") == block_of(NANO, fp8) == 2128
    assert block_of(NANO, f"{fp8} -tp 4") == 1072


@pytest.mark.parametrize(
    ("model", "mib_16", "mib_32", "kv_bf16"),
    [
        (NANO, 23.8, 46.8, 6144),
        ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 69.4, 136.9, 16384),
        (SUPER, 82.3, 162.3, 8192),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 37.7, 73.7, 24576),
        ("Qwen/Qwen3.5-35B-A3B", 31.4, 61.4, 20480),
        ("Qwen/Qwen3.5-122B-A10B", 74.5, 146.5, 24576),
        ("ibm-granite/granite-4.0-h-small", 73.7, 145.7, 16384),
        ("tiiuae/Falcon-H1-34B-Instruct", 146.1, 290.1, 147456),
    ],
)
def test_states_and_tokens_have_the_sizes_of_the_facts(
    model: str, mib_16: float, mib_32: float, kv_bf16: int
) -> None:
    shape = shape_of(model)
    assert shape.state is not None
    for dtype, mib in (("bfloat16", mib_16), ("float32", mib_32)):
        settings = settings_of(shape, f"--mamba-ssm-cache-dtype {dtype}")
        assert shape.state.layers * state_bytes(shape, settings) / (1 << 20) == pytest.approx(
            mib, abs=0.06
        )
        cache = count_kv_cache(shape, settings, 1 << 34, 4096)
        assert cache.bytes_per_token == kv_bf16


def test_a_measured_start_nano_full() -> None:
    shape = shape_of(NANO)
    flags = f"--kv-cache-dtype fp8 {ALIGN} --max-model-len 65536 --max-num-seqs 8"
    settings = settings_of(shape, flags)
    cache = count_kv_cache(shape, settings, int(51.51 * (1 << 30)), 65536)
    assert (cache.blocks, cache.block_tokens, cache.groups) == (4311, 4176, 5)
    assert cache.logged_tokens == 3_599_712
    assert floor(cache.concurrency * 100) / 100 == 179.62


@pytest.mark.parametrize(
    ("dtype", "block", "tokens", "concurrency"),
    [("float32", 4176, 26_246_160, 942.85), ("bfloat16", 2128, 26_248_880, 1057.29)],
)
def test_measured_starts_of_five_layers(
    dtype: str, block: int, tokens: int, concurrency: float
) -> None:
    whole = shape_of(NANO)
    assert whole.state is not None
    shape = replace(whole, attention_layers=1, state=replace(whole.state, layers=2))
    flags = f"--kv-cache-dtype fp8 {ALIGN} --mamba-ssm-cache-dtype {dtype}"
    settings = settings_of(shape, flags)
    # "37.55 GiB" is rounded: any size that prints so gives the blocks within its rounding.
    pool = block * 512
    blocks = {int(gib * (1 << 30)) // pool for gib in (37.545, 37.5549)}
    cache = count_kv_cache(shape, settings, max(blocks) * pool, 65536)
    assert cache.groups == 3
    wanted = tokens // block * 3
    assert min(blocks) <= wanted + 2 <= max(blocks) + 2
    exact = [
        count_kv_cache(shape, settings, count * pool, 65536) for count in range(wanted, wanted + 3)
    ]
    assert any(
        (found.logged_tokens, round(found.concurrency, 2)) == (tokens, concurrency)
        for found in exact
    )


def test_a_plain_model_has_512_bytes_for_a_token() -> None:
    shape = shape_of("/models/tiny-llama")
    settings = settings_of(shape, "--max-model-len 8192")
    cache = count_kv_cache(shape, settings, 2 << 20, 8192)
    assert (cache.bytes_per_token, cache.longest, cache.blocks) == (512, 4096, 256)


def test_the_example_of_the_facts() -> None:
    shape = shape_of(OMNI)
    flags = f"--kv-cache-dtype fp8 {ALIGN}"
    for version, tokens in (("0.20.0", 1_398_096), ("0.24.0", 6.15e6)):
        settings = settings_of(shape, flags, version)
        cache = count_kv_cache(shape, settings, 20 << 30, 131072)
        assert cache.blocks == 3285
        assert round(cache.concurrency, 1) == 46.9
        assert cache.logged_tokens == pytest.approx(tokens, rel=1e-3)


@pytest.mark.skipif(not H200_LOGS.is_dir(), reason="the recordings are not here")
@pytest.mark.parametrize(("log", "dtype"), [("mamba-fp32", "float32"), ("mamba-bf16", "bfloat16")])
def test_the_logs_say_the_same_block(log: str, dtype: str) -> None:
    text = (H200_LOGS / f"{log}.log").read_text(errors="replace")
    printed = int(re.findall(r"Setting attention block size to (\d+)", text)[0])
    assert printed == block_of(
        NANO, f"--kv-cache-dtype fp8 {ALIGN} --mamba-ssm-cache-dtype {dtype}"
    )


@given(
    more=st.integers(0, 1 << 38),
    memory=st.integers(0, 1 << 38),
    length=st.integers(1, 1 << 20),
    model=st.sampled_from([row[0] for row in TABLE]),
    kv=st.sampled_from(["auto", "fp8"]),
)
def test_more_memory_never_gives_less(
    more: int, memory: int, length: int, model: str, kv: str
) -> None:
    shape = shape_of(model)
    settings = settings_of(shape, f"--kv-cache-dtype {kv}")
    less = count_kv_cache(shape, settings, memory, length)
    greater = count_kv_cache(shape, settings, memory + more, length)
    assert greater.blocks >= less.blocks
    assert greater.concurrency >= less.concurrency
    assert greater.longest >= less.longest


@pytest.mark.parametrize(
    ("hardware", "version", "tokens", "seqs"),
    [
        ("dgx-spark", "0.20.0", 2048, 256),
        ("h100", "0.20.0", 8192, 1024),
        ("a100", "0.20.0", 2048, 256),
        ("l40s", "0.20.0", 2048, 256),
        ("b200", "0.20.0", 8192, 1024),
        ("b200", "0.32.0", 16384, 1024),
    ],
)
def test_the_batch_defaults_of_each_hardware(
    hardware: str, version: str, tokens: int, seqs: int
) -> None:
    settings = settings_of(shape_of(NANO), "", version, hardware)
    assert (settings.max_num_batched_tokens, settings.max_num_seqs) == (tokens, seqs)


@pytest.mark.parametrize(
    ("text", "value"),
    [("64K", 65536), ("64k", 64000), ("1M", 1 << 20), ("1.5k", 1500), ("auto", -1), ("-1", -1)],
)
def test_numbers_as_vllm_reads_them(text: str, value: int) -> None:
    assert parse_human(text) == value
    for bad in ("1.5K", "k", "", "1e3", "0x10"):
        with pytest.raises(ValueError, match="is not a number"):
            parse_human(bad)
