"""A plan as text and as data."""

from __future__ import annotations

from spark_vllm_docker.catalog.hardware_names import CPU
from spark_vllm_docker.plan.engine_settings import AUTO, as_mapping
from spark_vllm_docker.plan.mamba_block import good_budget
from spark_vllm_docker.plan.memory import MemoryPlan
from spark_vllm_docker.plan.report import PlanReport

Row = tuple[str, str]


def plan_rows(report: PlanReport) -> list[Row]:
    """What is known, in the order in which it is used."""
    shape, settings = report.surroundings.shape, report.settings
    hardware = report.surroundings.hardware
    rows = [("hardware", _say_hardware(report))]
    rows += report.surroundings.image.rows() if report.surroundings.image else []
    if shape is None or settings is None:
        return rows
    layers = f"{shape.attention_layers} attention layers"
    if shape.window is not None:
        window = shape.window
        layers += f", {window.layers} layers with a window of {window.tokens:,} tokens"
    if shape.state is not None:
        layers += f", {shape.state.layers} {shape.state.kind} layers"
    rows.append(("model", f"{shape.architecture}: {layers}   ({shape.source})"))
    if shape.quantization:
        rows.append(("checkpoint", shape.quantization))
    if shape.state is not None:
        budget = settings.max_num_batched_tokens
        given = "" if settings.batched_tokens_given else ", by default"
        rows.append(("cache mode", settings.mamba_cache_mode))
        state = {1: "8-bit", 2: "16-bit", 4: "32-bit"}.get(settings.ssm_bytes, "?")
        rows.append(
            (
                "block size",
                f"{report.block_tokens:,} tokens ({state} state, {settings.kv_dtype} KV)",
            )
        )
        text = f"{budget:,} tokens in a step{given}"
        if settings.mamba_cache_mode == "align" and report.block_tokens <= budget:
            used = budget // report.block_tokens * report.block_tokens
            if used != budget:
                better = good_budget(report.block_tokens, budget)
                text += f"; a prefill step takes {used:,} of them ({better:,} would be taken whole)"
        rows.append(("budget", text))
    if report.memory is not None and hardware is not None:
        rows += _memory_rows(report.memory, report)
    elif hardware is None:
        rows.append(("memory", "not planned: the hardware is not known (--hardware)"))
    elif hardware.name == CPU:
        rows.append(("memory", "not planned: vLLM takes a CPU's memory by other rules"))
    elif settings.weights_changed_by:
        why = f"{settings.weights_changed_by} changes what the weights take"
        rows.append(("memory", f"not planned: {why}"))
    elif shape.weights_gib <= 0:
        rows.append(("memory", "not planned: the size of the weights is not known"))
    return rows


def _say_hardware(report: PlanReport) -> str:
    hardware = report.surroundings.hardware
    if hardware is None:
        return "unknown: --hardware says which"
    free = report.surroundings.free_gib
    text = hardware.name
    if hardware.total_gib:
        text += f", {hardware.total_gib:.1f} GiB"
    return text if free is None else f"{text}, {free:.1f} GiB free now"


def _say_weights(memory: MemoryPlan, report: PlanReport) -> str:
    shape = report.surroundings.shape
    source = f"   ({shape.weights_from})" if shape and shape.weights_from else ""
    return f"{memory.weights_gib:.1f} GiB{source}"


def _memory_rows(memory: MemoryPlan, report: PlanReport) -> list[Row]:
    settings = report.settings
    assert settings is not None  # noqa: S101 - there is no memory plan without settings
    low, high = memory.activations_gib
    least, most = memory.available_gib
    cache, optimist = memory.cache, memory.optimist
    share = f"{settings.utilization:g} of {memory.total_gib:.1f} GiB"
    rows = [
        ("asked for", f"{memory.requested_gib:.1f} GiB ({share})"),
        ("weights", _say_weights(memory, report)),
        (
            "activations",
            f"{low:.1f} to {high:.1f} GiB, estimated; CUDA graphs {memory.graphs_gib:.2f}",
        ),
        (
            "KV cache",
            (
                f"{max(0.0, least):.1f} to {max(0.0, most):.1f} GiB: "
                f"{cache.blocks:,} to {optimist.blocks:,} blocks of {cache.block_tokens:,} tokens"
            ),
        ),
        ("one token", f"{cache.bytes_per_token:,} bytes of KV"),
    ]
    if cache.state_bytes_per_sequence:
        rows.append(
            ("one sequence", f"{cache.state_bytes_per_sequence / (1 << 20):.1f} MiB of state")
        )
    if cache.window_bytes_per_sequence:
        rows.append(
            (
                "one sequence",
                f"{cache.window_bytes_per_sequence / (1 << 20):.1f} MiB of windows at most",
            )
        )
    length = "what fits" if settings.max_model_len == AUTO else f"{memory.length:,} tokens"
    rows.append(
        (
            "concurrency",
            f"{cache.concurrency:.1f} to {optimist.concurrency:.1f} requests of {length}",
        )
    )
    return rows


def plan_document(report: PlanReport) -> dict[str, object]:
    """The plan as data."""
    memory = report.memory
    shape = report.surroundings.shape
    return {
        "recipe": report.recipe.name,
        "file": str(report.recipe.file),
        "hardware": report.surroundings.hardware.name if report.surroundings.hardware else None,
        "free_gib": report.surroundings.free_gib,
        "architecture": shape.architecture if shape else None,
        "model_facts": shape.source if shape else None,
        "settings": dict(as_mapping(report.settings)) if report.settings else None,
        "block_tokens": report.block_tokens or None,
        "memory": _memory_document(memory) if memory else None,
        "proposals": [
            {
                "flags": dict(proposal.flags),
                "concurrency": round(proposal.concurrency, 2),
                "max_model_len": proposal.length,
            }
            for proposal in report.proposals
        ],
        "findings": [finding.to_json() for finding in report.findings],
        "fixes": dict(report.fixes),
    }


def _memory_document(memory: MemoryPlan) -> dict[str, object]:
    def range_of(values: tuple[float, float]) -> list[float]:
        return [round(value, 3) for value in values]

    return {
        "total_gib": memory.total_gib,
        "requested_gib": round(memory.requested_gib, 3),
        "weights_gib": round(memory.weights_gib, 3),
        "activations_gib": range_of(memory.activations_gib),
        "graphs_gib": memory.graphs_gib,
        "available_gib": range_of(memory.available_gib),
        "blocks": [memory.cache.blocks, memory.optimist.blocks],
        "block_tokens": memory.cache.block_tokens,
        "concurrency": range_of((memory.cache.concurrency, memory.optimist.concurrency)),
        "longest_tokens": [memory.cache.longest, memory.optimist.longest],
        "fits": memory.fits,
    }
