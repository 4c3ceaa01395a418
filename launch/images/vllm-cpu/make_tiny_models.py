#!/usr/bin/env python3
"""Make tiny random-weight models that a real vLLM serves on a CPU. Nothing is downloaded.

    python3 make_tiny_models.py OUTDIR [tiny-llama] [tiny-nan] [tiny-omni]

tiny-llama  LlamaForCausalLM: 2 layers, 64 wide, byte-level tokenizer (token 0 is "!"), context
8192.
tiny-nan    the same with one NaN weight matrix, so that every logit is NaN: the healthy-looking
            server that answers "!!!!". It stands for a checkpoint that an image breaks.
tiny-omni   Qwen2.5-Omni (its "thinker"): text, image, video and sound in, text out. Its token
            counts are real, its answers mean nothing.

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


def save_tokenizer(
    out: Path,
    template: str = CHAT_TEMPLATE,
    pad: str = END,
    extra: tuple[str, ...] = (),
    named: dict[str, str] | None = None,
) -> dict[str, int]:
    """Save a tokenizer with one token per byte (ids 0-255); return the ids of its special tokens.

    `named` are attributes of the tokenizer, such as `audio_token`, that a processor reads.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = dict.fromkeys((START, END, pad, *extra))
    raw.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in special])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token=START,
        eos_token=END,
        pad_token=pad,
        model_max_length=CONTEXT_TOKENS,
    )
    fast.chat_template = template
    fast.save_pretrained(out)
    # Newer transformers write a class name that older ones cannot load.
    path = out / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config.pop("backend", None)
    if named:
        config |= {**named, "extra_special_tokens": named}
    write_json(path, config)
    return {name: fast.convert_tokens_to_ids(name) for name in special}


def make_llama(out: Path, *, nan: bool) -> None:
    """Save a two-layer Llama in bfloat16 with random (seed 0) weights, about 0.4 MB."""
    ids = save_tokenizer(out)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=CONTEXT_TOKENS,
        bos_token_id=ids[START],
        eos_token_id=ids[END],
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    if nan:
        with torch.no_grad():
            model.model.layers[1].mlp.down_proj.weight.fill_(float("nan"))
    model.save_pretrained(out)


OMNI_TOKENS = {
    "image_token": "<|IMAGE|>",
    "audio_token": "<|AUDIO|>",
    "video_token": "<|VIDEO|>",
    "vision_bos_token": "<|vision_bos|>",
    "vision_eos_token": "<|vision_eos|>",
    "audio_bos_token": "<|audio_bos|>",
    "audio_eos_token": "<|audio_eos|>",
}
OMNI_PAD = "<|endoftext|>"
# A list of parts is what makes vLLM send them to the template one by one.
OMNI_TEMPLATE = (
    "{% for m in messages %}"
    + START
    + "{{ m['role'] }}\n"
    + "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
    + "{% if c['type'] == 'image' %}<|vision_bos|><|IMAGE|><|vision_eos|>"
    + "{% elif c['type'] == 'video' %}<|vision_bos|><|VIDEO|><|vision_eos|>"
    + "{% elif c['type'] == 'audio' %}<|audio_bos|><|AUDIO|><|audio_eos|>"
    + "{% elif 'text' in c %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
    + END
    + "\n{% endfor %}{% if add_generation_prompt %}"
    + START
    + "assistant\n{% endif %}"
)
PIXELS = {
    "min_pixels": 3136,
    "max_pixels": 50176,
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "do_resize": True,
    "do_rescale": True,
    "do_normalize": True,
    "do_convert_rgb": True,
    "rescale_factor": 1 / 255,
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def omni_parts() -> dict:
    """The three configurations inside Qwen2.5-Omni's thinker, each as small as it can be."""
    audio = {
        "num_mel_bins": 128,
        "encoder_layers": 2,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 64,
        "d_model": 32,
        "max_source_positions": 1500,
        "n_window": 100,
        "output_dim": 64,
    }
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "in_channels": 3,
        "in_chans": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "spatial_patch_size": 14,
        "temporal_patch_size": 2,
        "window_size": 112,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
        "tokens_per_second": 25,
    }
    text = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": {"mrope_section": [4, 6, 6], "rope_type": "default", "type": "default"},
        "tie_word_embeddings": False,
    }
    return {"audio_config": audio, "vision_config": vision, "text_config": text}


def make_omni(out: Path) -> None:
    """Save a Qwen2.5-Omni thinker in bfloat16 with random (seed 0) weights, about 0.6 MB.

    The weights have unit gain instead of the usual 0.02, so that the sound reaches the answer.
    """
    from safetensors.torch import save_file
    from transformers import Qwen2_5OmniConfig, Qwen2_5OmniThinkerForConditionalGeneration

    extra = (*OMNI_TOKENS.values(), "<|vision_start|>", "<|vision_end|>")
    ids = save_tokenizer(out, OMNI_TEMPLATE, pad=OMNI_PAD, extra=extra, named=OMNI_TOKENS)
    parts = omni_parts()
    ends = {"bos_token_id": ids[START], "eos_token_id": ids[END]}
    parts["text_config"] |= ends
    tokens = {
        "audio_token_index": ids["<|AUDIO|>"],
        "image_token_index": ids["<|IMAGE|>"],
        "video_token_index": ids["<|VIDEO|>"],
        "audio_start_token_id": ids["<|audio_bos|>"],
        "audio_end_token_id": ids["<|audio_eos|>"],
        "vision_start_token_id": ids["<|vision_bos|>"],
        "vision_end_token_id": ids["<|vision_eos|>"],
        "position_id_per_seconds": 25,
        "seconds_per_chunk": 2,
        "pad_token_id": ids[OMNI_PAD],
    }
    config = Qwen2_5OmniConfig(enable_audio_output=False, thinker_config={**parts, **tokens})
    torch.manual_seed(0)
    model = Qwen2_5OmniThinkerForConditionalGeneration(config.thinker_config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_tokens" in name:
                weight.normal_(0.0, 1.0)
            elif weight.ndim >= 2:
                gain = 4.0 if ".conv1." in name or ".conv2." in name else 1.0
                weight.normal_(0.0, gain * weight[0].numel() ** -0.5)
    weights = model.to(torch.bfloat16).state_dict()
    tensors = {name_in_checkpoint(name): w.contiguous().clone() for name, w in weights.items()}
    save_file(tensors, str(out / "model.safetensors"), metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    types = {"audio_config": "audio_encoder", "vision_config": "vision_encoder"}
    thinker = {
        key: {"model_type": f"qwen2_5_omni_{types.get(key, 'text')}", **part}
        for key, part in parts.items()
    }
    write_json(
        out / "config.json",
        {
            "architectures": ["Qwen2_5OmniModel"],
            "model_type": "qwen2_5_omni",
            "torch_dtype": "bfloat16",
            "enable_audio_output": False,
            "thinker_config": {**tokens, "model_type": "qwen2_5_omni_thinker", **thinker},
        },
    )
    write_json(
        out / "generation_config.json",
        {"bos_token_id": ids[START], "eos_token_id": [ids[END]], "do_sample": False},
    )
    sound = {
        "feature_size": 128,
        "sampling_rate": 16000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480000,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "dither": 0.0,
        "return_attention_mask": True,
    }
    classes = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "Qwen2_5OmniProcessor",
    }
    write_json(out / "preprocessor_config.json", {**classes, **PIXELS, **sound})
    sizes = {"shortest_edge": PIXELS["min_pixels"], "longest_edge": PIXELS["max_pixels"]}
    kind = {"video_processor_type": "Qwen2VLVideoProcessor", "do_sample_frames": False}
    write_json(out / "video_preprocessor_config.json", {**kind, "size": sizes, **PIXELS})


def name_in_checkpoint(name: str) -> str:
    """Newer transformers renamed modules in memory; checkpoints keep the old names."""
    renamed = {"model.audio_tower.": "audio_tower.", "model.visual.": "visual."}
    for new, old in {**renamed, "model.language_model.": "model."}.items():
        if name.startswith(new):
            return f"thinker.{old}{name[len(new) :]}"
    return f"thinker.{name}"


def write_json(path: Path, data: dict) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


MODELS = {
    "tiny-llama": lambda out: make_llama(out, nan=False),
    "tiny-nan": lambda out: make_llama(out, nan=True),
    "tiny-omni": make_omni,
}


def main(argv: list[str]) -> int:
    names = argv[2:] or list(MODELS)
    if len(argv) < 2 or argv[1].startswith("-") or any(name not in MODELS for name in names):
        print(__doc__, file=sys.stderr)
        return 2
    for name in names:
        out = Path(argv[1]) / name
        out.mkdir(parents=True, exist_ok=True)
        MODELS[name](out)
        print(name, sum(f.stat().st_size for f in out.iterdir()), "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
