"""Blocks, tokens and concurrency of the KV cache.

Sources: vLLM 0.20.0 `v1/core/kv_cache_utils.py` (696-723, 872-890, 1040-1159, 1711-1720),
`v1/kv_cache_interface.py` (540-547); equal to three measured starts on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from spark_vllm_docker.catalog.flags import version_key
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.plan.engine_settings import AUTO, EngineSettings
from spark_vllm_docker.plan.mamba_block import attention_block_size, state_bytes, token_bytes


@dataclass(frozen=True, slots=True)
class KVCache:
    """What fits in so many bytes.

    `blocks` of `block_tokens` each in one pool; `logged_tokens` is what the release prints as
    "GPU KV cache size", `concurrency` requests of `max_model_len` at the same time, `longest` the
    longest request in tokens that one block table can hold.
    """

    blocks: int
    block_tokens: int
    groups: int
    logged_tokens: int
    concurrency: float
    longest: int
    bytes_per_token: int
    state_bytes_per_sequence: int


def count_kv_cache(
    shape: ModelShape, settings: EngineSettings, available_bytes: int, max_model_len: int
) -> KVCache:
    """The KV cache of one rank that `available_bytes` hold."""
    block = attention_block_size(shape, settings)
    layers, groups = _groups(shape, settings)
    pool = block * token_bytes(shape, settings)
    blocks = max(0, available_bytes) // pool // layers
    per_request = _blocks_per_request(shape, settings, max_model_len, block, groups)
    concurrency = blocks / per_request if per_request else 0.0
    per_token = shape.attention_layers * token_bytes(shape, settings) // settings.pipeline_parallel
    state_layers = shape.state.layers if shape.state else 0
    state = state_layers * state_bytes(shape, settings) // settings.pipeline_parallel
    if _prints_per_group(settings.version):
        logged = blocks // groups * block
    else:
        logged = int(concurrency * max_model_len)
    longest = _longest(shape, settings, blocks, block, groups)
    return KVCache(blocks, block, groups, logged, concurrency, longest, per_token, state)


def bytes_for(
    shape: ModelShape, settings: EngineSettings, max_model_len: int, requests: int
) -> int:
    """Bytes that so many requests of `max_model_len` take."""
    block = attention_block_size(shape, settings)
    layers, groups = _groups(shape, settings)
    per_request = _blocks_per_request(shape, settings, max_model_len, block, groups)
    return per_request * requests * layers * block * token_bytes(shape, settings)


def wanted_length(shape: ModelShape, settings: EngineSettings) -> int:
    """`max_model_len`, and the model's own where it is auto."""
    return shape.max_position if settings.max_model_len == AUTO else settings.max_model_len


def _groups(shape: ModelShape, settings: EngineSettings) -> tuple[int, int]:
    """Layers in one group, and groups: layers of one kind share blocks in groups of equal size, the
    smaller kind's count, or the larger's where the two are near (below 1.5 times).
    """
    attention = ceil(shape.attention_layers / settings.pipeline_parallel)
    recurrent = ceil((shape.state.layers if shape.state else 0) / settings.pipeline_parallel)
    if not recurrent:
        return attention, 1
    if not attention:
        return recurrent, 1
    small, large = sorted((attention, recurrent))
    size = large if large < 1.5 * small else small
    return size, ceil(attention / size) + ceil(recurrent / size)


def _blocks_per_request(
    shape: ModelShape, settings: EngineSettings, length: int, block: int, groups: int
) -> int:
    attention = ceil(length / block)
    if shape.state is None:
        return attention
    layers, _ = _groups(shape, settings)
    recurrent = groups - ceil(ceil(shape.attention_layers / settings.pipeline_parallel) / layers)
    drafts = settings.speculative_tokens
    each = {
        "none": 1 + drafts,
        "align": 2 + drafts,
        "all": attention,  # its block becomes the attention's (platforms/interface.py:595)
    }[settings.mamba_cache_mode]
    return attention * (groups - recurrent) + recurrent * each


def _longest(
    shape: ModelShape, settings: EngineSettings, blocks: int, block: int, groups: int
) -> int:
    """The longest request in tokens, a whole number of blocks."""
    low, high = 0, blocks
    while low < high:
        middle = (low + high + 1) // 2
        taken = _blocks_per_request(shape, settings, middle * block, block, groups)
        low, high = (middle, high) if taken <= blocks else (low, middle - 1)
    return low * block


def _prints_per_group(version: str) -> bool:
    """0.20 prints blocks // groups * block; from 0.24 it is concurrency x max_model_len."""
    return bool(version) and version_key(version) < version_key("0.24.0")
