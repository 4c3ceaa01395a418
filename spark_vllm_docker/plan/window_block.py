"""Blocks of models in which some layers attend to a window alone.

One pool of blocks serves all layers, so all blocks take the same bytes, and those of the layers
with smaller tokens hold more tokens (`unify_kv_cache_spec_page_size`). A request keeps its window
and what is in flight (`SlidingWindowSpec.max_admission_blocks_per_request`). Source: vLLM 0.20.0 to
0.32.0, `v1/core/kv_cache_utils.py` and `v1/kv_cache_interface.py`; compared with the numbers that
those functions give.
"""

from __future__ import annotations

from math import ceil

from spark_vllm_docker.catalog.flags import version_key
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.plan.engine_settings import EngineSettings, UnknownSetting

KERNEL_BLOCK = 16
"""The smallest block of FLASH_ATTN, FLASHINFER and TRITON_ATTN, in tokens."""
_PACKS_SINCE = "0.29.0"


def heads_bytes(kv_heads: int, head_dim: int, settings: EngineSettings) -> int:
    """Bytes of keys and values of one token in one layer on one rank."""
    return 2 * max(1, kv_heads // settings.tensor_parallel) * head_dim * settings.kv_bytes


def block_sizes(shape: ModelShape, settings: EngineSettings) -> tuple[int, int]:
    """Tokens in one block of the layers with full attention, and of those with a window."""
    full, windowed = _token_bytes(shape, settings)
    least = max(KERNEL_BLOCK, settings.block_size)
    page = max(full, windowed)
    return least * (page // full), least * (page // windowed)


def blocks_of_window(shape: ModelShape, settings: EngineSettings, length: int) -> int:
    """Blocks that a request of so many tokens holds in one table of the layers with a window; one
    more than its tokens fill, since a window may begin inside a block.
    """
    assert shape.window is not None  # noqa: S101 - asked for such models alone
    in_flight = settings.batches_in_flight * settings.max_num_batched_tokens
    tokens = min(shape.window.tokens - 1 + in_flight, length)
    return ceil(tokens / block_sizes(shape, settings)[1]) + 1


def check_windows(shape: ModelShape, settings: EngineSettings) -> None:
    """What of windows cannot be counted.

    Raises:
        UnknownSetting: says why.
    """
    if shape.window is None:
        return
    full, windowed = sorted(_token_bytes(shape, settings))
    if full == windowed:
        return
    if windowed % full:
        raise UnknownSetting(f"tokens of {full} and {windowed} bytes in one pool are not planned")
    if not settings.version or version_key(settings.version) >= version_key(_PACKS_SINCE):
        raise UnknownSetting(
            f"from vLLM {_PACKS_SINCE} on the attention backend decides how blocks of {full} and "
            f"{windowed} bytes a token are packed"
        )


def _token_bytes(shape: ModelShape, settings: EngineSettings) -> tuple[int, int]:
    assert shape.window is not None  # noqa: S101 - asked for such models alone
    window = shape.window
    return (
        heads_bytes(shape.kv_heads, shape.head_dim, settings),
        heads_bytes(window.kv_heads, window.head_dim, settings),
    )
