"""How canaries ask: the paths, a question, and what a refusal means."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from spark_vllm_docker.health.answers import Answer

Ask = Callable[[str, dict[str, Any]], Answer | str]
"""Asks a path with a body: the answer, whatever its status, or in words why there is none."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RENDER = "/v1/chat/completions/render"
OK, BAD_REQUEST, NOT_FOUND, SERVER_ERROR = 200, 400, 404, 500
NAN_MARK = "Out of range float values are not JSON compliant"
NAN_FIX = (
    "the stock image that the checkpoint was made for; then another --moe-backend or "
    "--linear-backend, or --kv-cache-dtype auto; spark-recipe rules nan-logits"
)


def question(model: str, text: str, tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
    }


def has_no_chat(answer: Answer) -> bool:
    """A base model without chat template, or a server without that route (404)."""
    return answer.status == NOT_FOUND or (
        answer.status >= BAD_REQUEST
        and re.search(r"chat[ _]template", answer.text, re.IGNORECASE) is not None
    )


def is_too_long(answer: Answer) -> bool:
    """Whether question and answer together do not fit the context: a small one is no fault."""
    return answer.status == BAD_REQUEST and (
        "maximum context length" in answer.text or "max_model_len" in answer.text
    )
