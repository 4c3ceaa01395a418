"""What decides a model's memory, from its `config.json`: layers, heads, recurrent state.

A model whose architecture is not known here is said to be unknown; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

from spark_vllm_docker.catalog.parameters import weights_gib
from spark_vllm_docker.catalog.yaml_data import read_data

Config = Mapping[str, Any]
StateKind = Literal["mamba-1", "mamba-2", "gated-delta-net"]

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
# Decoders with the same full attention in every layer, whose KV cache is layers x heads.
_PLAIN = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "GraniteForCausalLM",
    "OlmoForCausalLM",
    "Olmo2ForCausalLM",
}
_NEMOTRON = {"NemotronHForCausalLM", "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2"}
_NEMOTRON_FP32 = {"NemotronHForCausalLM", "NemotronHPuzzleForCausalLM", "NemotronH_Nano_VL_V2"}
_QWEN_3_5 = {"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"}
_MOST_LAYERS = 10_000
_SPECULATIVE = {*_NEMOTRON, *_QWEN_3_5, "Qwen3NextForCausalLM"}


class UnknownShape(ValueError):
    """The model cannot be planned; the message says why."""


@dataclass(frozen=True, slots=True)
class StateShape:
    """The recurrent state of one layer.

    Mamba-2: `heads` of `head_dim` with `state` numbers each and `groups`; a gated delta net:
    `heads` value heads of `head_dim`, `key_heads` of `state`; Mamba-1: `heads` x `head_dim` inner
    channels. `kernel` is the width of the convolution.
    """

    kind: StateKind
    layers: int
    heads: int
    head_dim: int
    state: int
    groups: int
    key_heads: int
    kernel: int


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model as the planner sees it.

    `dtype` is the checkpoint's, `ssm_dtype` what it says of its recurrent state (empty if nothing);
    `follows_ssm_dtype` whether vLLM reads that for this architecture, and `ssm_dtype_default` what
    it takes when the file says nothing. `weights_gib` is 0 where it is not known;
    `weights_from` says what it was taken from. `video` names the processor whose video tokens are
    known.
    """

    model: str
    architecture: str
    dtype: str
    attention_layers: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    state: StateShape | None
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
    text = _text_config(config)
    state, attention = _read_layers(architecture, text)
    heads = _count(text, "num_attention_heads")
    kv_heads = _count(text, "num_key_value_heads", default=heads)
    head_dim = _count(text, "head_dim", "attention_head_dim", default=0)
    head_dim = head_dim or _count(text, "hidden_size") // heads
    if heads % kv_heads:
        raise UnknownShape(f"{kv_heads} key heads do not divide {heads} attention heads")
    if not head_dim:
        raise UnknownShape(f"a hidden size below its {heads} attention heads")
    if state is not None and not state.layers:
        state = None
    if state is None and not attention:
        raise UnknownShape("its config.json has neither attention nor recurrent layers")
    position = _count(text, "max_position_embeddings", default=0)
    quantization, kv_cache = _read_quantization(config)
    dtypes = (part.get(key) for key in ("torch_dtype", "dtype") for part in (config, text))
    dtype = str(next((dtype for dtype in dtypes if dtype), "")).removeprefix("torch.")
    weights = weights_gib(architecture, config, dtype)
    return ModelShape(
        model=model,
        architecture=architecture,
        dtype=dtype,
        attention_layers=attention,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        state=state,
        chunk_size=_count(text, "chunk_size", "mamba_chunk_size", default=0) or 2048,
        ssm_dtype=str(text.get("mamba_ssm_cache_dtype") or text.get("mamba_ssm_dtype") or ""),
        follows_ssm_dtype=architecture in _NEMOTRON_FP32 | _QWEN_3_5,
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


def _text_config(config: Config) -> Config:
    """The part that describes the language model of a multimodal one."""
    for key in ("llm_config", "text_config", "language_config"):
        part = config.get(key)
        if isinstance(part, Mapping):
            return part
    return config


def _count(config: Config, *names: str, default: int | None = None) -> int:
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 40:
            raise UnknownShape(f"{name} of its config.json is {value!r}")
        return value
    if default is None:
        raise UnknownShape(f"its config.json has no {names[0]}")
    return default


def _count_all_layers(text: Config) -> int:
    layers = _count(text, "num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise UnknownShape(f"num_hidden_layers of its config.json is {layers}")
    return layers


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


def _read_layers(architecture: str, text: Config) -> tuple[StateShape | None, int]:
    """The recurrent layers, and the number of attention layers."""
    if architecture in _PLAIN:
        if text.get("sliding_window") and text.get("use_sliding_window", True):
            raise UnknownShape("sliding-window attention is not planned")
        return None, _count_all_layers(text)
    if architecture in _NEMOTRON:
        mamba, attention = _count_layers(text, "M", "*")
        return _mamba_2(text, mamba, _NEMOTRON_NAMES), attention
    if architecture in _QWEN_3_5 or architecture == "Qwen3NextForCausalLM":
        return _read_gated_delta_net(text)
    if architecture == "GraniteMoeHybridForCausalLM":
        mamba, attention = _count_layers(text, "mamba", "attention")
        return _mamba_2(text, mamba, _MAMBA_NAMES), attention
    if architecture == "FalconH1ForCausalLM":
        layers = _count_all_layers(text)
        return _mamba_2(text, layers, _MAMBA_NAMES), layers
    if architecture == "JambaForCausalLM":
        layers = _count_all_layers(text)
        period = _count(text, "attn_layer_period")
        offset = _count(text, "attn_layer_offset") if text.get("attn_layer_offset") else 0
        attention = sum(1 for layer in range(layers) if layer % period == offset)
        inner = _count(text, "hidden_size") * _count(text, "mamba_expand", default=2)
        state = _count(text, "mamba_d_state", default=16)
        kernel = _count(text, "mamba_d_conv", default=4)
        return StateShape("mamba-1", layers - attention, 1, inner, state, 0, 0, kernel), attention
    raise UnknownShape(f"the architecture {architecture} is not known")


_NEMOTRON_NAMES = {
    "heads": ("mamba_num_heads",),
    "head_dim": ("mamba_head_dim",),
    "state": ("ssm_state_size",),
    "groups": ("n_groups",),
    "kernel": ("conv_kernel",),
}
_MAMBA_NAMES = {
    "heads": ("mamba_n_heads",),
    "head_dim": ("mamba_d_head",),
    "state": ("mamba_d_state",),
    "groups": ("mamba_n_groups",),
    "kernel": ("mamba_d_conv",),
}


def _mamba_2(text: Config, layers: int, names: Mapping[str, tuple[str, ...]]) -> StateShape:
    inner = _count(text, "mamba_d_ssm", default=0)
    return StateShape(
        kind="mamba-2",
        layers=layers,
        heads=_count(text, *names["heads"], default=1 if inner else None),
        head_dim=inner
        if inner and names["heads"][0] not in text
        else _count(text, *names["head_dim"]),
        state=_count(text, *names["state"]),
        groups=_count(text, *names["groups"]),
        key_heads=0,
        kernel=_count(text, *names["kernel"]),
    )


def _read_gated_delta_net(text: Config) -> tuple[StateShape, int]:
    layers = _count_all_layers(text)
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        attention = kinds.count("full_attention")
    else:
        attention = layers // _count(text, "full_attention_interval", default=4)
    state = StateShape(
        kind="gated-delta-net",
        layers=layers - attention,
        heads=_count(text, "linear_num_value_heads"),
        head_dim=_count(text, "linear_value_head_dim"),
        state=_count(text, "linear_key_head_dim"),
        groups=0,
        key_heads=_count(text, "linear_num_key_heads"),
        kernel=_count(text, "linear_conv_kernel_dim"),
    )
    return state, attention


def _count_layers(text: Config, recurrent: str, attention: str) -> tuple[int, int]:
    """From a pattern, a list of layer types, or the catalogue's own counts."""
    counted = text.get("layers")
    if isinstance(counted, Mapping):
        return _count(counted, "mamba"), _count(counted, "attention")
    pattern = text.get("hybrid_override_pattern") or text.get("layer_types")
    if isinstance(pattern, list):
        kinds = pattern
    elif isinstance(pattern, str):
        kinds = list(pattern)
    else:
        raise UnknownShape("its config.json does not say which layer is of which kind")
    return kinds.count(recurrent), kinds.count(attention)


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
