"""Blocks, tokens and concurrency of the KV cache.

Sources: vLLM 0.20.0 `v1/core/kv_cache_utils.py` (696-723, 872-890, 1040-1159, 1711-1720),
`v1/kv_cache_interface.py` (540-547); equal to three measured starts on an H200.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from spark_vllm_docker.catalog.flags import version_key
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.plan.engine_settings import AUTO, EngineSettings
from spark_vllm_docker.plan.mamba_block import attention_block_size, state_bytes, token_bytes
from spark_vllm_docker.plan.window_block import block_sizes, blocks_of_window


@dataclass(frozen=True, slots=True)
class KVCache:
    """What fits in so many bytes.

    `blocks` in one pool, of `block_tokens` each for layers with full attention; `logged_tokens` is
    what the release prints as "GPU KV cache size", `concurrency` requests of `max_model_len` at the
    same time, `longest` the longest request in tokens that one block table can hold. What one
    sequence takes besides: its recurrent state, and its windows when they are full.
    """

    blocks: int
    block_tokens: int
    groups: int
    logged_tokens: int
    concurrency: float
    longest: int
    bytes_per_token: int
    state_bytes_per_sequence: int
    window_bytes_per_sequence: int


@dataclass(frozen=True, slots=True)
class _Kind:
    """Layers that are alike; `blocks_for` says how many blocks of one table a request of so many
    tokens takes.
    """

    layers: int
    block_tokens: int
    blocks_for: Callable[[int], int]


@dataclass(frozen=True, slots=True)
class _Pool:
    """Blocks of `block_bytes`, each for as many layers as there are in a group: layers of one kind
    share blocks in groups of equal size, the smaller kind's count, or the larger's where the two
    are near (below `near` times). Groups are made of all layers, and each rank of a pipeline has
    its share of every group.
    """

    kinds: tuple[_Kind, ...]
    page_bytes: int
    pipeline_parallel: int
    near: float

    @property
    def group_layers(self) -> int:
        counts = sorted(kind.layers for kind in self.kinds)
        return counts[-1] if counts[-1] < self.near * counts[0] else counts[0]

    @property
    def block_bytes(self) -> int:
        return self.page_bytes * ceil(self.group_layers / self.pipeline_parallel)

    def groups_of(self, kind: _Kind) -> int:
        return ceil(kind.layers / self.group_layers)

    @property
    def groups(self) -> int:
        return sum(map(self.groups_of, self.kinds))

    def blocks_for(self, length: int) -> int:
        return sum(self.groups_of(kind) * kind.blocks_for(length) for kind in self.kinds)

    def find_longest(self, blocks: int, step: int) -> int:
        """The longest request in tokens, a whole number of steps."""
        low, high = 0, blocks
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.blocks_for(middle * step) <= blocks
            low, high = (middle, high) if fits else (low, middle - 1)
        return low * step


def count_kv_cache(
    shape: ModelShape, settings: EngineSettings, available_bytes: int, max_model_len: int
) -> KVCache:
    """The KV cache of one rank that `available_bytes` hold."""
    pool = _pool(shape, settings)
    block = attention_block_size(shape, settings)
    blocks = max(0, available_bytes) // pool.block_bytes
    per_request = pool.blocks_for(max_model_len)
    concurrency = blocks / per_request if per_request else 0.0
    per_token = shape.attention_layers * token_bytes(shape, settings) // settings.pipeline_parallel
    state_layers = shape.state.layers if shape.state else 0
    state = state_layers * state_bytes(shape, settings) // settings.pipeline_parallel
    if _prints_per_group(settings.version):
        logged = blocks // pool.groups * min(kind.block_tokens for kind in pool.kinds)
    else:
        logged = int(concurrency * max_model_len)
    return KVCache(
        blocks=blocks,
        block_tokens=block,
        groups=pool.groups,
        logged_tokens=logged,
        concurrency=concurrency,
        longest=pool.find_longest(blocks, block),
        bytes_per_token=per_token,
        state_bytes_per_sequence=state,
        window_bytes_per_sequence=_window_bytes(shape, settings, pool, max_model_len),
    )


def bytes_for(
    shape: ModelShape, settings: EngineSettings, max_model_len: int, requests: int
) -> int:
    """Bytes that so many requests of `max_model_len` take."""
    pool = _pool(shape, settings)
    return pool.blocks_for(max_model_len) * requests * pool.block_bytes


def wanted_length(shape: ModelShape, settings: EngineSettings) -> int:
    """`max_model_len`, and the model's own where it is auto."""
    return shape.max_position if settings.max_model_len == AUTO else settings.max_model_len


def _pool(shape: ModelShape, settings: EngineSettings) -> _Pool:
    block = attention_block_size(shape, settings)

    def for_attention(length: int) -> int:
        return ceil(length / block)

    def for_window(length: int) -> int:
        return blocks_of_window(shape, settings, length)

    def for_state(length: int) -> int:
        """In mode all its block becomes the attention's (platforms/interface.py:595)."""
        mode, drafts = settings.mamba_cache_mode, settings.speculative_tokens
        return {"none": 1 + drafts, "align": 2 + drafts, "all": for_attention(length)}[mode]

    kinds = [_Kind(shape.attention_layers, block, for_attention)]
    if shape.window is not None:
        window_block = block_sizes(shape, settings)[1]
        kinds.append(_Kind(shape.window.layers, window_block, for_window))
    if shape.state is not None:
        kinds.append(_Kind(shape.state.layers, block, for_state))
    present = tuple(kind for kind in kinds if kind.layers)
    page = block * token_bytes(shape, settings)
    near = 1.25 if _is_before(settings.version, "0.18.0") else 1.5
    return _Pool(present, page, settings.pipeline_parallel, near)


def _window_bytes(
    shape: ModelShape, settings: EngineSettings, pool: _Pool, max_model_len: int
) -> int:
    if shape.window is None:
        return 0
    blocks = blocks_of_window(shape, settings, max_model_len)
    return blocks * pool.page_bytes * shape.window.layers // settings.pipeline_parallel


def _prints_per_group(version: str) -> bool:
    """Until 0.20.2 it is blocks // groups * block; from 0.21.0 concurrency x max_model_len."""
    return _is_before(version, "0.21.0")


def _is_before(version: str, than: str) -> bool:
    return bool(version) and version_key(version) < version_key(than)
