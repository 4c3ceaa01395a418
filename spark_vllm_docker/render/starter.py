"""A model's name → the text of a recipe to start from."""

from __future__ import annotations

import re

from spark_vllm_docker.catalog.flags import load_versions
from spark_vllm_docker.catalog.model_families import find_family_flags
from spark_vllm_docker.errors import UsageError
from spark_vllm_docker.recipe.schema import FILE_NAME
from spark_vllm_docker.render.recipe_text import SCHEMA_LINE, dump_entry

_WHY = {
    "gpu-memory-utilization": "The part of the memory that vLLM takes; its own default never fits "
    "on a DGX Spark.",
    "max-model-len": "Prompt and answer together, in tokens: one such request must fit in the KV "
    "cache.",
    "max-num-seqs": "Requests at the same time; more of them wait.",
    "reasoning-parser": "The parsers that go with this family of models.",
}


def starter_name(model: str) -> str:
    """A recipe's name from a model's: `org/Qwen3-8B-FP8` → `qwen3-8b-fp8`.

    Raises:
        UsageError: it is no name of a model.
    """
    if not re.fullmatch(r"[A-Za-z0-9/][A-Za-z0-9._/-]*", model) or model.endswith("/"):
        raise UsageError(
            f"'{model}' is no name of a model", hint="such as Qwen/Qwen3-8B, or a folder: /models/x"
        )
    return model.rpartition("/")[2].lower()


def render_starter(model: str, name: str, image: str | None) -> str:
    """A structured recipe that serves the model on one machine."""
    release = next(reversed(load_versions()))
    family = find_family_flags(model)
    serve = {
        "served-model-name": name,
        "host": "0.0.0.0",  # noqa: S104 - inside the container; published on loopback
        "port": 8000,
        "gpu-memory-utilization": 0.8,
        "max-model-len": 32768,
        "max-num-seqs": 16,
        **family,
    }
    head = {
        "name": name,
        "model": model,
        "container": image or f"vllm/vllm-openai:v{release}",
    }
    rows = [f"{SCHEMA_LINE}{FILE_NAME}"]
    for key, value in head.items():
        rows += dump_entry(key, value)
    rows.append("serve:")
    for key, value in serve.items():
        if key in _WHY:
            rows.append(f"  # {_WHY[key]}")
        rows += [f"  {row}" for row in dump_entry(key, value)]
    if not family:
        rows += [
            "  # A reasoning model, or one that calls tools, needs the parsers of its family too:",
            "  # reasoning-parser, tool-call-parser with enable-auto-tool-choice.",
        ]
    return "\n".join(rows) + "\n"
