"""What decides a model's memory, from its `config.json`: layers, lengths, dtypes, quantization.

A model whose architecture is not known here is said to be unknown; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from spark_vllm_docker.catalog.layers import (
    NEMOTRON,
    QWEN_3_5,
    Config,
    StateShape,
    UnknownShape,
    WindowShape,
    find_text_config,
    read_count,
    read_layers,
)
from spark_vllm_docker.catalog.parameters import weights_gib
from spark_vllm_docker.catalog.yaml_data import read_data

# Where vLLM's mode `all` exists (0.20.0: models/config.py:338-406, SupportsMambaPrefixCaching).
_MODE_ALL = {
    "BambaForCausalLM",
    "FalconH1ForCausalLM",
    "GraniteMoeHybridForCausalLM",
    "JambaForCausalLM",
    "MambaForCausalLM",
    "Mamba2ForCausalLM",
    "NemotronHForCausalLM",
    "Zamba2ForCausalLM",
}
_NEMOTRON_FP32 = {"NemotronHForCausalLM", "NemotronHPuzzleForCausalLM", "NemotronH_Nano_VL_V2"}
_SPECULATIVE = {*NEMOTRON, *QWEN_3_5, "Qwen3NextForCausalLM"}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as the planner sees it.

    `attention_layers` have full attention, with `kv_heads` of `head_dim`; `window` and `state` are
    the other layers. `dtype` is the checkpoint's, `ssm_dtype` what it says of its recurrent state
    (empty if nothing); `follows_ssm_dtype` whether vLLM reads that for this architecture, and
    `ssm_dtype_default` what it takes when the file says nothing. `weights_gib` is 0 where it is not
    known; `weights_from` says what it was taken from. `video` names the processor whose video
    tokens are known.
    """

    model: str
    architecture: str
    dtype: str
    attention_layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    state: StateShape | None
    window: WindowShape | None
    chunk_size: int
    ssm_dtype: str
    follows_ssm_dtype: bool
    ssm_dtype_default: str
    supports_mode_all: bool
    counts_speculation: bool
    max_position: int
    longest_position: int = 0
    quantization: str = ""
    kv_cache: str = ""
    weights_gib: float = 0.0
    weights_from: str = ""
    video: str = ""
    source: str = ""


def read_shape(model: str, config: Config, source: str = "") -> ModelShape:
    """The shape of a model from its `config.json`.

    Raises:
        UnknownShape: the architecture is not known, or the file lacks or contradicts what is
        needed.
    """
    names = config.get("architectures")
    architecture = str(names[0]) if isinstance(names, list) and names else ""
    if not architecture:
        raise UnknownShape("its config.json names no architecture")
    text = find_text_config(architecture, config)
    layers = read_layers(architecture, text)
    position = read_count(text, "max_position_embeddings", default=0)
    quantization, kv_cache = _read_quantization(config)
    dtypes = (part.get(key) for key in ("torch_dtype", "dtype") for part in (config, text))
    dtype = str(next((dtype for dtype in dtypes if dtype), "")).removeprefix("torch.")
    weights = weights_gib(architecture, config, dtype)
    return ModelShape(
        model=model,
        architecture=architecture,
        dtype=dtype,
        attention_layers=layers.attention,
        attention_heads=read_count(text, "num_attention_heads"),
        kv_heads=layers.kv_heads,
        head_dim=layers.head_dim,
        state=layers.state,
        window=layers.window,
        chunk_size=read_count(text, "chunk_size", "mamba_chunk_size", default=0) or 2048,
        ssm_dtype=str(text.get("mamba_ssm_cache_dtype") or text.get("mamba_ssm_dtype") or ""),
        follows_ssm_dtype=architecture in _NEMOTRON_FP32 | QWEN_3_5,
        ssm_dtype_default="float32" if architecture in _NEMOTRON_FP32 else "",
        supports_mode_all=architecture in _MODE_ALL,
        counts_speculation=architecture in _SPECULATIVE,
        max_position=position,
        longest_position=_longest_position(config, text, position),
        quantization=quantization,
        kv_cache=kv_cache,
        weights_gib=weights,
        weights_from=f"parameters x {dtype}" if weights else "",
        video="nano_nemotron_vl" if architecture == "NemotronH_Nano_Omni_Reasoning_V3" else "",
        source=source,
    )


@cache
def load_known_models() -> dict[str, Any]:
    """The entries of `data/models.yaml`, by model."""
    entries: dict[str, Any] = read_data("models.yaml")
    return entries


def find_known_shape(model: str) -> ModelShape | None:
    """The shape of a model of the catalogue; None for one that is not in it."""
    entry = load_known_models().get(model)
    if entry is None:
        return None
    shape = read_shape(model, entry["config"], entry["source"])
    return replace(
        shape,
        weights_gib=float(entry.get("weights_gib", shape.weights_gib)),
        weights_from="the catalogue" if "weights_gib" in entry else shape.weights_from,
        quantization=entry.get("quantization", shape.quantization),
        kv_cache=entry.get("kv_cache", shape.kv_cache),
    )


def _longest_position(config: Config, text: Config, position: int) -> int:
    """The longest `max_model_len` that no release refuses (config/model.py,
    `_get_and_verify_max_len`): positions times the factor of RoPE scaling, where YaRN counts from
    its original length until 0.29 and not at all from 0.30 on; or `model_max_length`.
    """
    longest = position
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    for part in (scaling, *(scaling.values() if isinstance(scaling, Mapping) else ())):
        factor = part.get("factor") if isinstance(part, Mapping) else None
        if isinstance(factor, (int, float)) and 0 < factor < 1 << 20:
            longest = max(longest, int(position * factor))
    for holder in (config, text):
        length = holder.get("model_max_length")
        if isinstance(length, int) and 0 < length < 1 << 40 and position:
            longest = max(longest, length)
    return longest


def _read_quantization(config: Config) -> tuple[str, str]:
    """The method as vLLM names it, and `fp8` where the checkpoint says so of the cache."""
    quantization = config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return "", ""
    inner = quantization.get("quantization")
    if isinstance(inner, Mapping):  # as in hf_quant_config.json
        quantization = {**quantization, **inner}
    method = str(quantization.get("quant_method") or "")
    if method.startswith("modelopt") or "quant_algo" in quantization:
        algorithm = str(quantization.get("quant_algo") or "").upper()
        method = {
            "NVFP4": "modelopt_fp4",
            "FP4": "modelopt_fp4",
            "MXFP8": "modelopt_mxfp8",
            "MIXED_PRECISION": "modelopt_mixed",
        }.get(algorithm, "modelopt")
    algorithm = str(quantization.get("kv_cache_quant_algo") or "").upper()
    scheme = quantization.get("kv_cache_scheme")
    is_fp8 = algorithm == "FP8" or (isinstance(scheme, Mapping) and scheme.get("num_bits") == 8)
    return method, "fp8" if is_fp8 else ""
