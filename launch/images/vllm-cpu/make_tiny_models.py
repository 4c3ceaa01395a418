#!/usr/bin/env python3
"""Make tiny random-weight models that a real vLLM serves on a CPU. Nothing is downloaded.

    python3 make_tiny_models.py OUTDIR [tiny-llama] [tiny-nan]

tiny-llama  LlamaForCausalLM: 2 layers, 64 wide, byte-level tokenizer (token 0 is "!"), context
8192.
tiny-nan    the same with one NaN weight matrix, so that every logit is NaN: the healthy-looking
            server that answers "!!!!". It stands for a checkpoint that an image breaks.

Needs torch, transformers, tokenizers and safetensors, so it runs where vLLM runs: in the image.
The weights are seeded: the same library versions give the same files.
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

START, END = "<|im_start|>", "<|im_end|>"
VOCAB_SIZE = 320
CONTEXT_TOKENS = 8192
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    + START
    + "{{ m['role'] }}\n{{ m['content'] }}"
    + END
    + "\n{% endfor %}{% if add_generation_prompt %}"
    + START
    + "assistant\n{% endif %}"
)


def save_tokenizer(out: Path) -> tuple[int, int]:
    """Save a tokenizer with one token per byte (ids 0-255); return the ids of start and end."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in (START, END)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=START,
        eos_token=END,
        pad_token=END,
        model_max_length=CONTEXT_TOKENS,
    )
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(out)
    # Newer transformers write a class name that older ones cannot load.
    path = out / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config.pop("backend", None)
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return fast.convert_tokens_to_ids(START), fast.convert_tokens_to_ids(END)


def make_llama(out: Path, *, nan: bool) -> None:
    """Save a two-layer Llama in bfloat16 with random (seed 0) weights, about 0.4 MB."""
    start_id, end_id = save_tokenizer(out)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=start_id,
        eos_token_id=end_id,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    if nan:
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight.fill_(float("nan"))
    model.save_pretrained(out)


MODELS = {"tiny-llama": False, "tiny-nan": True}


def main(argv: list[str]) -> int:
    names = argv[2:] or list(MODELS)
    if len(argv) < 2 or argv[1].startswith("-") or any(name not in MODELS for name in names):
        print(__doc__, file=sys.stderr)
        return 2
    for name in names:
        out = Path(argv[1]) / name
        out.mkdir(parents=True, exist_ok=True)
        make_llama(out, nan=MODELS[name])
        print(name, sum(f.stat().st_size for f in out.iterdir()), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
