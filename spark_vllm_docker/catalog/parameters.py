"""How many parameters a plain decoder has, from its `config.json`.

Only for architectures whose layers are known to the last norm; the counts are those on the model
cards (Llama 3.1 8B: 8,030,261,248; Qwen3 30B-A3B: 30,532,122,624).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_QKV_BIAS = {"Qwen2ForCausalLM"}
_QK_NORM = {"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"}
_EXPERTS = {"Qwen3MoeForCausalLM"}
_COUNTED = {"LlamaForCausalLM", "MistralForCausalLM"} | _QKV_BIAS | _QK_NORM
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_GIB = 1 << 30


def count_parameters(architecture: str, config: Mapping[str, Any]) -> int:
    """All parameters; 0 where the architecture is not counted or the file lacks a number.

    Embeddings (and the head, unless tied), and per layer: q, k, v, o, the gated feed-forward
    (hidden x intermediate, three times, for each expert, with a router), and the norms.
    """
    if architecture not in _COUNTED:
        return 0
    try:
        hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
        heads = int(config["num_attention_heads"])
        kv_heads = int(config.get("num_key_value_heads") or heads)
        head_dim = int(config.get("head_dim") or hidden // heads)
        vocabulary = int(config["vocab_size"])
        if architecture in _EXPERTS:
            experts = int(config["num_experts"])
            feed_forward = experts * 3 * hidden * int(config["moe_intermediate_size"])
            feed_forward += hidden * experts
        else:
            feed_forward = 3 * hidden * int(config["intermediate_size"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return 0
    attention = head_dim * hidden * (2 * heads + 2 * kv_heads)
    if architecture in _QKV_BIAS or (
        config.get("attention_bias") and architecture == "LlamaForCausalLM"
    ):
        attention += head_dim * (heads + 2 * kv_heads)
    if config.get("attention_bias") and architecture == "LlamaForCausalLM":
        attention += hidden
    norms = 2 * hidden + (2 * head_dim if architecture in _QK_NORM else 0)
    tables = 1 if config.get("tie_word_embeddings") else 2
    return tables * vocabulary * hidden + layers * (attention + feed_forward + norms) + hidden


def weights_gib(architecture: str, config: Mapping[str, Any], dtype: str) -> float:
    """Parameters x bytes of the dtype; 0 where one is not known or the checkpoint is quantized."""
    if config.get("quantization_config"):
        return 0.0
    return count_parameters(architecture, config) * _BYTES.get(dtype, 0) / _GIB
