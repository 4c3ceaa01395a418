"""Where a GPU's memory goes, and the nearest settings with which a recipe fits.

Weights, KV cache and state are counted; activations and what is outside of PyTorch are a range,
because they are measured by vLLM only while it starts. The range holds the measured start: 1.33
GiB for Nemotron 3 Nano with a budget of 8192 tokens on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor

from spark_vllm_docker.catalog.hardware import Hardware
from spark_vllm_docker.catalog.model_shapes import ModelShape
from spark_vllm_docker.plan.engine_settings import AUTO, EngineSettings
from spark_vllm_docker.plan.kv_cache import KVCache, bytes_for, count_kv_cache, wanted_length
from spark_vllm_docker.plan.mamba_block import attention_block_size, good_budget

GIB = 1 << 30
GRAPHS_GIB = 0.25
"""CUDA graphs: 0.08 to 0.11 GiB in the measured starts, with room."""
_ACTIVATIONS_GIB = (0.5, 1.5)
_PER_1024_TOKENS_GIB = (0.05, 0.25)
_MULTIMODAL_GIB = (1.0, 5.0)
_STEP = 0.01


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """GiB on one GPU; `low` and `high` are the ends of a range.

    `available_*` is what is left for the KV cache when activations take most and least. `cache` is
    what fits with the least, `optimist` with the most.
    """

    total_gib: float
    requested_gib: float
    weights_gib: float
    activations_gib: tuple[float, float]
    graphs_gib: float
    available_gib: tuple[float, float]
    cache: KVCache
    optimist: KVCache
    length: int

    @property
    def needed_gib(self) -> float:
        """Weights, graphs, activations at least, and the cache."""
        taken = self.weights_gib + self.graphs_gib + self.activations_gib[0]
        return taken + max(0.0, self.available_gib[0])

    @property
    def fits(self) -> bool:
        """One request of the full length fits, also when activations take most."""
        return self.cache.longest >= self.length

    @property
    def may_fit(self) -> bool:
        """It fits if activations take least."""
        return self.optimist.longest >= self.length


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change of flags with which the recipe fits, and what comes of it."""

    flags: tuple[tuple[str, str], ...]
    settings: EngineSettings
    concurrency: float
    length: int

    @property
    def text(self) -> str:
        """`--max-model-len 32768: 4.1 requests of 32,768 tokens`."""
        words = " ".join(f"{flag} {value}" for flag, value in self.flags)
        return f"{words}: {self.concurrency:.1f} requests of {self.length:,} tokens"


def plan_memory(
    shape: ModelShape, settings: EngineSettings, hardware: Hardware, *, multimodal: bool
) -> MemoryPlan | None:
    """The memory of one GPU; None where the size of the GPU or of the weights is not known."""
    if hardware.total_gib <= 0 or shape.weights_gib <= 0 or settings.weights_changed_by:
        return None
    ranks = settings.tensor_parallel * settings.pipeline_parallel
    weights = shape.weights_gib / ranks
    requested = hardware.total_gib * settings.utilization
    activations = _activations(settings, multimodal=multimodal)
    left = tuple(
        settings.kv_cache_bytes / GIB
        if settings.kv_cache_bytes
        else requested - weights - GRAPHS_GIB - taken
        for taken in reversed(activations)
    )
    length = wanted_length(shape, settings)
    least, most = (count_kv_cache(shape, settings, int(gib * GIB), length) for gib in left)
    if settings.max_model_len == AUTO:
        # What fits, at least a token: vLLM refuses to start with less.
        length = max(1, min(length, least.longest))
        least, most = (count_kv_cache(shape, settings, int(gib * GIB), length) for gib in left)
    return MemoryPlan(
        total_gib=hardware.total_gib,
        requested_gib=requested,
        weights_gib=weights,
        activations_gib=activations,
        graphs_gib=GRAPHS_GIB,
        available_gib=(left[0], left[1]),
        cache=least,
        optimist=most,
        length=length,
    )


def propose(
    shape: ModelShape,
    settings: EngineSettings,
    hardware: Hardware,
    *,
    multimodal: bool,
    free_gib: float | None,
) -> list[Proposal]:
    """The nearest single changes with which one request of the full length fits.

    Each is planned again before it is told: a proposal that does not fit is none.
    """
    candidates = [
        _shorter(shape, settings, hardware, multimodal=multimodal),
        _larger_share(shape, settings, hardware, multimodal=multimodal, free_gib=free_gib),
        _smaller_cache(settings),
    ]
    proposals = []
    for found in candidates:
        if found is None:
            continue
        flags, changed = found
        flags, changed = _keep_budget(shape, flags, changed)
        plan = plan_memory(shape, changed, hardware, multimodal=multimodal)
        if plan is not None and plan.fits and plan.length > 0:
            proposals.append(Proposal(flags, changed, plan.cache.concurrency, plan.length))
    return proposals


Change = tuple[tuple[tuple[str, str], ...], EngineSettings]


def _keep_budget(
    shape: ModelShape, flags: tuple[tuple[str, str], ...], changed: EngineSettings
) -> Change:
    """A change of the cache's dtype changes the block, which must still fit in the budget."""
    block, budget = attention_block_size(shape, changed), changed.max_num_batched_tokens
    if changed.mamba_cache_mode != "align" or block <= budget:
        return flags, changed
    better = good_budget(block, budget)
    changed = replace(changed, max_num_batched_tokens=better, batched_tokens_given=True)
    return (*flags, ("--max-num-batched-tokens", str(better))), changed


def _shorter(
    shape: ModelShape, settings: EngineSettings, hardware: Hardware, *, multimodal: bool
) -> Change | None:
    """The longest request that fits, as a multiple of 1024 where it is longer than that."""
    plan = plan_memory(shape, settings, hardware, multimodal=multimodal)
    if plan is None or plan.cache.longest <= 0:
        return None
    longest = min(plan.cache.longest, shape.longest_position or plan.cache.longest)
    length = longest // 1024 * 1024 or longest
    return (("--max-model-len", str(length)),), replace(settings, max_model_len=length)


def _larger_share(
    shape: ModelShape,
    settings: EngineSettings,
    hardware: Hardware,
    *,
    multimodal: bool,
    free_gib: float | None,
) -> Change | None:
    """The smallest utilisation with which it fits, below what is free."""
    ranks = settings.tensor_parallel * settings.pipeline_parallel
    length = wanted_length(shape, settings)
    needed = shape.weights_gib / ranks + GRAPHS_GIB
    needed += _activations(settings, multimodal=multimodal)[1]
    needed += bytes_for(shape, settings, length, 1) / GIB
    share = ceil(needed / hardware.total_gib / _STEP + 1e-9) * _STEP
    most = (
        0.95
        if free_gib is None
        else min(0.95, floor(free_gib / hardware.total_gib / _STEP) * _STEP)
    )
    if settings.kv_cache_bytes or not settings.utilization < share <= most:
        return None
    value = f"{share:.2f}"
    return (("--gpu-memory-utilization", value),), replace(settings, utilization=float(value))


def _smaller_cache(settings: EngineSettings) -> Change | None:
    if settings.kv_bytes == 1:
        return None
    changed = replace(settings, kv_dtype="fp8", kv_bytes=1)
    return (("--kv-cache-dtype", "fp8"),), changed


def needed_share(
    shape: ModelShape,
    settings: EngineSettings,
    hardware: Hardware,
    *,
    multimodal: bool,
    requests: int,
) -> float:
    """The utilisation with which so many requests of the full length fit, rounded up to 0.01."""
    ranks = settings.tensor_parallel * settings.pipeline_parallel
    length = wanted_length(shape, settings)
    needed = shape.weights_gib / ranks + GRAPHS_GIB
    needed += _activations(settings, multimodal=multimodal)[1]
    needed += bytes_for(shape, settings, length, requests) / GIB
    return ceil(needed / hardware.total_gib / _STEP) * _STEP


def blocks_for_sequences(shape: ModelShape, settings: EngineSettings, plan: MemoryPlan) -> bool:
    """Whether each of `max_num_seqs` sequences can have its state ; vLLM asks
    only where it captures whole decode steps (0.20.0 config/compilation.py:1427-1436).
    """
    if shape.state is None or not settings.full_graphs:
        return True
    return plan.optimist.blocks >= settings.max_num_seqs


def block_of(shape: ModelShape, settings: EngineSettings) -> int:
    """Tokens in one block."""
    return attention_block_size(shape, settings)


def _activations(settings: EngineSettings, *, multimodal: bool) -> tuple[float, float]:
    thousands = settings.max_num_batched_tokens / 1024
    low, high = (
        base + each * thousands
        for base, each in zip(_ACTIVATIONS_GIB, _PER_1024_TOKENS_GIB, strict=True)
    )
    if multimodal:
        low, high = low + _MULTIMODAL_GIB[0], high + _MULTIMODAL_GIB[1]
    return low, high
