"""Parameters of plain decoders, against the counts on the model cards."""

from __future__ import annotations

import pytest

from spark_vllm_docker.catalog.model_shapes import read_shape
from spark_vllm_docker.catalog.parameters import count_parameters, weights_gib

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
QWEN2_7B = {
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
}  # fmt: skip
QWEN3_06B = {
    "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "head_dim": 128,
    "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936,
    "tie_word_embeddings": True,
}  # fmt: skip
QWEN3_30B = {
    "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768,
    "num_experts": 128, "num_hidden_layers": 48, "head_dim": 128, "num_attention_heads": 32,
    "num_key_value_heads": 4, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "config", "count"),
    [
        ("LlamaForCausalLM", LLAMA_8B, 8_030_261_248),
        ("Qwen2ForCausalLM", QWEN2_7B, 7_615_616_512),
        ("Qwen3ForCausalLM", QWEN3_06B, 596_049_920),
        ("Qwen3MoeForCausalLM", QWEN3_30B, 30_532_122_624),
    ],
)
def test_the_counts_of_the_model_cards(
    architecture: str, config: dict[str, object], count: int
) -> None:
    assert count_parameters(architecture, config) == count


def test_a_shape_has_its_weights_from_its_parameters() -> None:
    shape = read_shape("org/llama", LLAMA_8B)
    assert shape.weights_gib == pytest.approx(8_030_261_248 * 2 / (1 << 30))
    assert shape.weights_from == "parameters x bfloat16"


@pytest.mark.parametrize(
    "change",
    [
        {"quantization_config": {"quant_method": "awq"}},
        {"torch_dtype": "int5"},
        {"vocab_size": None},
        {"intermediate_size": "many"},
    ],
)
def test_what_is_not_known_is_not_counted(change: dict[str, object]) -> None:
    shape = read_shape("org/llama", LLAMA_8B | change)
    assert (shape.weights_gib, shape.weights_from) == (0.0, "")


def test_other_architectures_are_not_counted() -> None:
    assert weights_gib("OlmoForCausalLM", LLAMA_8B, "bfloat16") == 0.0
    assert count_parameters("LlamaForCausalLM", {"num_attention_heads": 0} | LLAMA_8B) > 0
