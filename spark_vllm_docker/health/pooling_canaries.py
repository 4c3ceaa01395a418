"""What models that do not generate are asked: for embeddings, scores and classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from spark_vllm_docker.health.answers import Answer, Canary
from spark_vllm_docker.health.questions import NAN_FIX, NAN_MARK, OK, Ask

_PAIR = {"text_1": "What is red?", "text_2": ["A rose is red."]}
Look = Callable[[Any], Any]
_POOLING: tuple[tuple[str, str, dict[str, Any], Look], ...] = (
    (
        "embed",
        "/v1/embeddings",
        {"input": "Hello", "encoding_format": "float"},
        lambda data: data["data"][0]["embedding"],
    ),
    ("score", "/v1/score", _PAIR, lambda data: [data["data"][0]["score"]]),
    ("classify", "/classify", {"input": ["Hello"]}, lambda data: data["data"][0]["probs"]),
)


def try_pooling(ask: Ask, model: str, tasks: Sequence[str]) -> Canary:
    """Embeddings, scores and classes of models that do not generate."""
    for task, path, body, look in _POOLING:
        if task not in tasks:
            continue
        return _judge(task, ask(path, {"model": model, **body}), look)
    return Canary("tasks", f"not asked: no short question is known for {', '.join(tasks)}")


def try_unnamed_pooling(ask: Ask, model: str) -> Canary | None:
    """A server whose tasks are not known and that has neither chat nor completions."""
    for task, path, body, look in _POOLING:
        answer = ask(path, {"model": model, **body})
        if isinstance(answer, Answer) and answer.status == OK:
            return _judge(task, answer, look)
    return None


def _judge(task: str, answer: Answer | str, look: Look) -> Canary:
    """Whether an answer holds the numbers that it should."""
    if isinstance(answer, str):
        return Canary(task, answer, failed=True)
    if answer.status != OK:
        fix = NAN_FIX if NAN_MARK in answer.text else ""
        return Canary(task, answer.words, True, fix)
    numbers = answer.read(look)
    if not numbers:
        return Canary(task, f"the answer has no numbers in it: {answer.text[:200]}", True)
    if not all(isinstance(n, (int, float)) and math.isfinite(n) for n in numbers):
        return Canary(task, "the model computes NaN", True, NAN_FIX)
    if task != "embed":
        return Canary(task, "a score")
    if not any(numbers):
        return Canary(task, "the embedding is nothing but zeros", True, NAN_FIX)
    return Canary(task, f"an embedding of {len(numbers)} numbers")
