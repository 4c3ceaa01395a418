"""The layers of a model that keep something of each sequence, from its `config.json`: full
attention, attention within a window, recurrent state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_vllm_docker.findings import printable

Config = Mapping[str, Any]
StateKind = Literal["mamba-1", "mamba-2", "gated-delta-net"]

QWEN_OMNI = {"Qwen2_5OmniModel", "Qwen2_5OmniForConditionalGeneration"}
# Decoders with the same full attention in every layer, whose KV cache is layers x heads.
_PLAIN = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen2MoeForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    *QWEN_OMNI,
    "GraniteForCausalLM",
    "OlmoForCausalLM",
    "Olmo2ForCausalLM",
}
# Full attention in some layers, a window in the others (vLLM's gemma3.py, gemma4.py, gpt_oss.py).
_GEMMA_4 = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"}
_WINDOWED = {
    *_GEMMA_4,
    "Gemma3ForCausalLM",
    "Gemma3ForConditionalGeneration",
    "GptOssForCausalLM",
}
NEMOTRON = {"NemotronHForCausalLM", "NemotronH_Nano_Omni_Reasoning_V3", "NemotronH_Nano_VL_V2"}
QWEN_3_5 = {"Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"}
_MOST_LAYERS = 10_000
_LONGEST_MESSAGE = 300
_GEMMA = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
    "sliding_window_pattern": 6,
}
_QWEN = {"max_position_embeddings": 32768}
# What transformers takes where a file does not say: checkpoints leave out what equals it.
_DEFAULTS: Mapping[str, Config] = {
    "Gemma3": {**_GEMMA, "num_hidden_layers": 26, "sliding_window": 4096},
    "Gemma4": {**_GEMMA, "num_hidden_layers": 30, "sliding_window": 512, "global_head_dim": 512},
    "GptOss": {
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_hidden_layers": 36,
        "sliding_window": 128,
        "max_position_embeddings": 131072,
    },
    "Mistral": {"max_position_embeddings": 131072},
    "Qwen2": _QWEN,
    "Qwen3For": _QWEN,
    "Qwen3Moe": _QWEN,
}


class UnknownShape(ValueError):
    """The model cannot be planned; the message says why, in characters that may be shown."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message)[:_LONGEST_MESSAGE])


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
class WindowShape:
    """Layers that attend to the last `tokens` alone."""

    layers: int
    kv_heads: int
    head_dim: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Layers:
    """`attention` layers have full attention, with `kv_heads` of `head_dim`."""

    attention: int
    kv_heads: int
    head_dim: int
    state: StateShape | None = None
    window: WindowShape | None = None


def read_layers(architecture: str, text: Config) -> Layers:
    """The layers of a model; `text` is the part of the file that `find_text_config` finds.

    Raises:
        UnknownShape: the architecture is not known, or the file lacks or contradicts what is
        needed.
    """
    heads = read_count(text, "num_attention_heads")
    kv_heads = read_count(text, "num_key_value_heads", default=heads)
    head_dim = read_count(text, "head_dim", "attention_head_dim", default=0)
    head_dim = head_dim or read_count(text, "hidden_size") // heads
    if heads % kv_heads:
        raise UnknownShape(f"{kv_heads} key heads do not divide {heads} attention heads")
    if not head_dim:
        raise UnknownShape(f"a hidden size below its {heads} attention heads")
    if architecture in _WINDOWED:
        return _read_windows(architecture, text, kv_heads, head_dim)
    state, attention = _read_states(architecture, text)
    if state is not None and not state.layers:
        state = None
    if state is None and not attention:
        raise UnknownShape("its config.json has neither attention nor recurrent layers")
    return Layers(attention, kv_heads, head_dim, state)


def find_text_config(architecture: str, config: Config) -> Config:
    """The part that describes the language model of a multimodal one, with transformers' defaults
    where it does not say.
    """
    part = _find_text_part(config)
    for start, defaults in _DEFAULTS.items():
        if architecture.startswith(start):
            return {**defaults, **part}
    return part


def _find_text_part(config: Config) -> Config:
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        config = thinker
    for key in ("llm_config", "text_config", "language_config"):
        part = config.get(key)
        if isinstance(part, Mapping):
            return part
    return config


def read_count(config: Config, *names: str, default: int | None = None) -> int:
    """The first of these keys that is there, a number above 0.

    Raises:
        UnknownShape: none is there and there is no default, or it is no such number.
    """
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
    layers = read_count(text, "num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise UnknownShape(f"num_hidden_layers of its config.json is {layers}")
    return layers


def _read_windows(architecture: str, text: Config, kv_heads: int, head_dim: int) -> Layers:
    """Layers with full attention and with a window; the last ones of Gemma 4 may use the cache of
    earlier ones, and then have none.
    """
    if "per_layer_config" in text:
        raise UnknownShape("a per_layer_config is not planned")
    kinds = _read_kinds(architecture, text)
    shared = text.get("num_kv_shared_layers") or 0
    if shared:
        shared = read_count(text, "num_kv_shared_layers")
        if shared >= len(kinds):
            raise UnknownShape(f"{shared} of its {len(kinds)} layers share the cache of others")
    kinds = kinds[: len(kinds) - shared]
    full, windowed = kinds.count("full_attention"), kinds.count("sliding_attention")
    if full + windowed != len(kinds) or not full:
        raise UnknownShape("its layer_types are not full_attention and sliding_attention")
    tokens = read_count(text, "sliding_window")
    window = WindowShape(windowed, kv_heads, head_dim, tokens) if windowed else None
    if architecture in _GEMMA_4:
        head_dim = read_count(text, "global_head_dim")
        if text.get("attention_k_eq_v"):
            kv_heads = read_count(text, "num_global_key_value_heads", default=kv_heads)
    return Layers(full, kv_heads, head_dim, window=window)


def _read_kinds(architecture: str, text: Config) -> Sequence[object]:
    """The kind of each layer; where the file has a period instead, the last of each is full. In
    gpt-oss vLLM takes every other layer, whatever the file says (gpt_oss.py, 0.20.0:136).
    """
    layers = _count_all_layers(text)
    kinds = text.get("layer_types")
    if architecture == "GptOssForCausalLM":
        found = [("sliding_attention", "full_attention")[layer % 2] for layer in range(layers)]
        if kinds is not None and kinds != found:
            raise UnknownShape("its layer_types are not every other one")
        return found
    if isinstance(kinds, list):
        if len(kinds) != layers:
            raise UnknownShape(f"{len(kinds)} layer_types for {layers} layers")
        return kinds
    period = read_count(text, "sliding_window_pattern")
    return [
        "sliding_attention" if (layer + 1) % period else "full_attention" for layer in range(layers)
    ]


def _read_states(architecture: str, text: Config) -> tuple[StateShape | None, int]:
    """The recurrent layers, and the number of attention layers."""
    if architecture in _PLAIN:
        if text.get("sliding_window") and text.get("use_sliding_window", True):
            raise UnknownShape("sliding-window attention is not planned")
        return None, _count_all_layers(text)
    if architecture in NEMOTRON:
        mamba, attention = _count_layers(text, "M", "*")
        return _mamba_2(text, mamba, _NEMOTRON_NAMES), attention
    if architecture in QWEN_3_5 or architecture == "Qwen3NextForCausalLM":
        return _read_gated_delta_net(text)
    if architecture == "GraniteMoeHybridForCausalLM":
        mamba, attention = _count_layers(text, "mamba", "attention")
        return _mamba_2(text, mamba, _MAMBA_NAMES), attention
    if architecture == "FalconH1ForCausalLM":
        layers = _count_all_layers(text)
        return _mamba_2(text, layers, _MAMBA_NAMES), layers
    if architecture == "JambaForCausalLM":
        layers = _count_all_layers(text)
        period = read_count(text, "attn_layer_period")
        offset = read_count(text, "attn_layer_offset") if text.get("attn_layer_offset") else 0
        attention = sum(1 for layer in range(layers) if layer % period == offset)
        inner = read_count(text, "hidden_size") * read_count(text, "mamba_expand", default=2)
        state = read_count(text, "mamba_d_state", default=16)
        kernel = read_count(text, "mamba_d_conv", default=4)
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
    inner = read_count(text, "mamba_d_ssm", default=0)
    return StateShape(
        kind="mamba-2",
        layers=layers,
        heads=read_count(text, *names["heads"], default=1 if inner else None),
        head_dim=inner
        if inner and names["heads"][0] not in text
        else read_count(text, *names["head_dim"]),
        state=read_count(text, *names["state"]),
        groups=read_count(text, *names["groups"]),
        key_heads=0,
        kernel=read_count(text, *names["kernel"]),
    )


def _read_gated_delta_net(text: Config) -> tuple[StateShape, int]:
    layers = _count_all_layers(text)
    kinds = text.get("layer_types")
    if isinstance(kinds, list):
        attention = kinds.count("full_attention")
    else:
        attention = layers // read_count(text, "full_attention_interval", default=4)
    state = StateShape(
        kind="gated-delta-net",
        layers=layers - attention,
        heads=read_count(text, "linear_num_value_heads"),
        head_dim=read_count(text, "linear_value_head_dim"),
        state=read_count(text, "linear_key_head_dim"),
        groups=0,
        key_heads=read_count(text, "linear_num_key_heads"),
        kernel=read_count(text, "linear_conv_kernel_dim"),
    )
    return state, attention


def _count_layers(text: Config, recurrent: str, attention: str) -> tuple[int, int]:
    """From a pattern, a list of layer types, or the catalogue's own counts."""
    counted = text.get("layers")
    if isinstance(counted, Mapping):
        return read_count(counted, "mamba"), read_count(counted, "attention")
    pattern = text.get("hybrid_override_pattern") or text.get("layer_types")
    if isinstance(pattern, list):
        kinds = pattern
    elif isinstance(pattern, str):
        kinds = list(pattern)
    else:
        raise UnknownShape("its config.json does not say which layer is of which kind")
    return kinds.count(recurrent), kinds.count(attention)
