"""The block size that vLLM gives the attention layers of a hybrid model, and what must hold for it.

Source: `Platform.update_block_size_for_backend` (0.20.0 platforms/interface.py:463-635), state
sizes of `model_executor/layers/mamba/mamba_utils.py` (150-237); checked against the logs of three
starts.
"""

from __future__ import annotations

from math import ceil, lcm

from spark_vllm_docker.catalog.flags import version_key
from spark_vllm_docker.catalog.layers import StateShape
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.plan.engine_settings import EngineSettings
from spark_vllm_docker.plan.window_block import KERNEL_BLOCK, block_sizes, heads_bytes


def token_bytes(shape: ModelShape, settings: EngineSettings) -> int:
    """Bytes of keys and values of one token in one attention layer on one rank."""
    return heads_bytes(shape.kv_heads, shape.head_dim, settings)


def state_bytes(shape: ModelShape, settings: EngineSettings) -> int:
    """Bytes of the recurrent state of one sequence in one layer on one rank; 0 without any."""
    state = shape.state
    if state is None:
        return 0
    drafts = settings.speculative_tokens if shape.counts_speculation else 0
    conv, ssm = _elements(state, settings.tensor_parallel, drafts)
    return conv * settings.conv_bytes + ssm * settings.ssm_bytes


def attention_block_size(shape: ModelShape, settings: EngineSettings) -> int:
    """Tokens in one block of the layers with full attention."""
    if shape.window is not None:
        return block_sizes(shape, settings)[0]
    align = max(KERNEL_BLOCK, settings.block_size)
    if shape.state is None:
        return align
    token, page = token_bytes(shape, settings), state_bytes(shape, settings)
    if settings.mamba_cache_mode == "all":
        step = lcm(settings.mamba_block_size or shape.chunk_size, align)
        return step * ceil(ceil(page / token) / step)
    return align * ceil(page / (align * token))


def asserts_budget(version: str) -> bool:
    """Whether this release asserts that a block fits in the budget: 0.17.0 to 0.26.0, as their
    wheels show. 0.16.0 hangs in silence instead; from 0.27.0 on the scheduler handles larger
    blocks. An unknown release is taken to assert.
    """
    return not version or version_key("0.16.0") < version_key(version) < version_key("0.27.0")


def hangs_instead(version: str) -> bool:
    """0.16.0 does not assert: a block above the budget makes its scheduler wait forever."""
    return bool(version) and version_key(version) <= version_key("0.16.0")


def good_budget(block: int, wanted: int) -> int:
    """The smallest multiple of the block that is at least `wanted`: a prefill step is cut to whole
    blocks (v1/core/sched/scheduler.py:302-350), so what is above the last one is never used.
    """
    return block * max(1, ceil(wanted / block))


def _elements(state: StateShape, tensor_parallel: int, drafts: int) -> tuple[int, int]:
    """Elements of the convolution's and of the recurrent state, on one rank."""
    width = state.kernel - 1 + drafts
    if state.kind == "mamba-2":
        groups = state.groups if state.groups % tensor_parallel == 0 else tensor_parallel
        inner = state.heads * state.head_dim
        conv = (inner + 2 * groups * state.state) // tensor_parallel * width
        return conv, inner * state.state // tensor_parallel
    if state.kind == "gated-delta-net":
        channels = 2 * state.state * state.key_heads + state.head_dim * state.heads
        conv = channels // tensor_parallel * width
        return conv, state.heads * state.head_dim * state.state // tensor_parallel
    inner = state.head_dim // tensor_parallel
    return inner * (state.kernel - 1), inner * state.state
