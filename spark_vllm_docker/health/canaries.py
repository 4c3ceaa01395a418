"""Questions that only a server that really works answers as it should.

`/health` is 200 while every logit is NaN, and a video without its sound is answered with 200. Each
canary says what it proved. Sources: recordings of vLLM 0.20.0 and 0.32.0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from spark_vllm_docker.health.answers import Answer, Canary, Wanted
from spark_vllm_docker.health.media_canaries import try_media, try_two_sounds
from spark_vllm_docker.health.pooling_canaries import try_pooling, try_unnamed_pooling
from spark_vllm_docker.health.questions import (
    CHAT,
    COMPLETIONS,
    NAN_FIX,
    NAN_MARK,
    NOT_FOUND,
    OK,
    Ask,
    has_no_chat,
    is_too_long,
    question,
)

TEXT_TOKENS = 32
NUMBER_TOKENS = 8
_REPEATED = 8
_LONGEST_UNIT = 8
_BROKEN = ("error", "abort")
"""Reasons to finish that only a server in trouble gives."""


def run_canaries(ask: Ask, model: str, tasks: Sequence[str], wanted: Wanted) -> Iterator[Canary]:
    """Every canary that fits the server, up to the first that fails.

    `tasks` are those of vLLM's log line "Supported tasks"; empty means not known.
    """
    for canary in _choose(ask, model, tasks, wanted):
        yield canary
        if canary.failed:
            return


def _choose(ask: Ask, model: str, tasks: Sequence[str], wanted: Wanted) -> Iterator[Canary]:
    if tasks and "generate" not in tasks:
        yield try_pooling(ask, model, tasks)
        return
    numbers = try_numbers(ask, model)
    if numbers is not None:
        yield numbers
    text = try_text(ask, model, numbers_are_known=numbers is not None)
    if not tasks and text.failed and f"{COMPLETIONS} answered {NOT_FOUND}" in text.text:
        yield try_unnamed_pooling(ask, model) or text
        return
    yield text
    hears = "audio" in wanted.modalities
    for name in ("image", "audio", "video"):
        if name in wanted.modalities:
            yield try_media(ask, model, name, with_sound=hears, expected=wanted.clip_tokens)
    if hears:
        yield try_two_sounds(ask, model, "video" if "video" in wanted.modalities else "audio")
    if wanted.tools:
        yield try_tools(ask, model)
    if wanted.structured:
        yield try_structured(ask, model)


def try_numbers(ask: Ask, model: str) -> Canary | None:
    """A few tokens with their log probabilities: NaN is answered 400, or null. The first is of the
    prefill and the others of decoding, whose kernels are others. None when the server does not give
    log probabilities: nothing is known then.
    """
    answer: Answer | str = ""
    for tokens in (NUMBER_TOKENS, 1):
        body: dict[str, Any] = question(model, "Say hello.", tokens)
        answer = ask(CHAT, {**body, "logprobs": True, "top_logprobs": 1})
        if isinstance(answer, Answer) and has_no_chat(answer):
            prompt = {"model": model, "prompt": "Hello", "max_tokens": tokens, "temperature": 0}
            answer = ask(COMPLETIONS, {**prompt, "logprobs": 1})
        if isinstance(answer, str) or not is_too_long(answer):
            break
    if isinstance(answer, str):
        return Canary("numbers", answer, failed=True)
    if NAN_MARK in answer.text:
        return Canary("numbers", f"the model computes NaN ({answer.words})", True, NAN_FIX)
    found = answer.read(_read_logprobs) if answer.status == OK else None
    if not found:
        return None  # also after a 5xx: the text tells whether it can answer at all
    if not all(map(_is_log_probability, found)):
        text = "the model computes NaN: its log probabilities are no numbers"
        return Canary("numbers", text, True, NAN_FIX)
    return Canary("numbers", f"finite (log probability {found[0]:.2f})")


def try_text(ask: Ask, model: str, *, numbers_are_known: bool) -> Canary:
    """A short question. The answer is read from content or reasoning, whichever there is."""
    answer = _ask_for_text(ask, model)
    if isinstance(answer, str):
        return Canary("text", answer, failed=True)
    if is_too_long(answer):
        return Canary("text", f"its context is shorter than a short question ({answer.words})")
    if answer.status != OK:
        return Canary("text", answer.words, failed=True)
    found = answer.read(_read_generation)
    if found is None:
        return Canary("text", f"the answer has no tokens in it: {answer.text[:200]}", failed=True)
    tokens, content, reasoning, finish = found
    if tokens < 1 or finish in _BROKEN:
        words = f"the server ended the answer with {finish!r}"
        return Canary("text", words if tokens else "the model generated no token", failed=True)
    text = content if content.strip() else reasoning or content
    unit = _find_repeated(text)
    if unit and not numbers_are_known:
        words = f"nothing but {unit!r}: NaN, or a kernel that is broken"
        return Canary("text", words, True, NAN_FIX)
    if not text and tokens >= _REPEATED and not numbers_are_known:
        words = f"{tokens} tokens and not one letter: NaN, or special tokens alone"
        return Canary("text", words, True, NAN_FIX)
    plural = "s" if tokens > 1 else ""
    shown = f"{tokens} token{plural} in {answer.seconds:.2f} s: {text[:80]!r}"
    if unit:
        shown += " (the same again and again)"
    if not content and reasoning and finish == "length":
        shown += " (reasoning took all of them: clients need a larger max_tokens)"
    return Canary("text", shown)


def _ask_for_text(ask: Ask, model: str) -> Answer | str:
    """By chat or, of a base model, by completions; in one token where the context is small."""
    answer: Answer | str = ""
    for limit in (TEXT_TOKENS, 1):
        answer = ask(CHAT, question(model, "What is two plus three? One word.", limit))
        if isinstance(answer, Answer) and has_no_chat(answer):
            body = {"model": model, "prompt": "Two plus three is", "temperature": 0}
            answer = ask(COMPLETIONS, {**body, "max_tokens": min(limit, 8)})
        if isinstance(answer, str) or not is_too_long(answer):
            break
    return answer


def try_tools(ask: Ask, model: str) -> Canary:
    """A request with a tool, left to the model: a server without a parser answers 400."""
    tool = {
        "type": "function",
        "function": {
            "name": "get_time",
            "description": "The time of a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    body = question(model, "What time is it in Paris?", TEXT_TOKENS)
    answer = ask(CHAT, {**body, "tools": [tool], "tool_choice": "auto"})
    if isinstance(answer, str):
        return Canary("tools", answer, failed=True)
    if answer.status != OK:
        fix = "serve: {enable-auto-tool-choice: true, tool-call-parser: …} in the recipe"
        return Canary("tools", answer.words, True, fix)
    if not answer.read(lambda data: data["choices"][0]["message"]):
        words = f"answered 200 without an answer: {answer.text[:200]}"
        return Canary("tools", words, failed=True)
    calls = answer.read(lambda data: data["choices"][0]["message"].get("tool_calls"))
    return Canary("tools", "called" if calls else "accepted; the model did not call one")


def try_structured(ask: Ask, model: str) -> Canary:
    """An answer in a given form: what comes back must be of it, unless it was cut off."""
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "canary", "schema": schema}}
    body = question(model, "Is water wet? Answer as JSON.", TEXT_TOKENS)
    answer = ask(CHAT, {**body, "response_format": form})
    if isinstance(answer, str):
        return Canary("structured output", answer, failed=True)
    if answer.status != OK:
        return Canary("structured output", answer.words, failed=True)
    found = answer.read(_read_generation)
    content, finish = (found[1] or found[2], found[3]) if found else ("", "")
    try:
        data = json.loads(content)
        whole = isinstance(data, dict) and isinstance(data.get("a"), bool)
        begun = False
    except ValueError:
        whole, begun = False, finish == "length" and content.lstrip()[:1] in ("", "{")
    if not whole and not begun:
        return Canary("structured output", f"not of the form: {content[:80]!r}", failed=True)
    return Canary("structured output", "of the form" if whole else "taken; the answer was cut off")


def judge_metrics(text: str) -> Canary | None:
    """The server's own count of answers with NaN, where VLLM_COMPUTE_NANS_IN_LOGITS makes it keep
    one (v1/metrics/loggers.py).
    """
    found = re.findall(
        r"^vllm:corrupted_requests_total(?:\{.*\})?[ \t]+([0-9.eE+]+)(?:[ \t]+\d+)?\r?$",
        text,
        re.MULTILINE,
    )
    counts = []
    for count in found:
        with suppress(ValueError):
            counts.append(float(count))
    if not counts:
        return None
    if sum(counts) > 0:
        words = f"the server counts {sum(counts):.0f} answers with NaN in them"
        return Canary("corrupted requests", words, True, NAN_FIX)
    return Canary("corrupted requests", "none counted")


def _is_log_probability(value: object) -> bool:
    """VLLM writes -9999.0 for minus infinity, which the chosen token cannot have."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) and -9000 < value < 0.01


def _find_repeated(text: str) -> str:
    """What a text is made of, when it is one short piece at least eight times; else nothing."""
    for length in range(1, _LONGEST_UNIT + 1):
        unit = text[:length]
        times = len(text) // length + 1
        if len(text) >= _REPEATED * length and (unit * times).startswith(text):
            return unit
    return ""


def _read_logprobs(data: Any) -> list[Any]:
    logprobs = data["choices"][0]["logprobs"]
    if logprobs.get("content"):
        return [token["logprob"] for token in logprobs["content"]]
    values = list(logprobs["token_logprobs"])
    return values[1:] if len(values) > 1 and values[0] is None else values


def _read_generation(data: Any) -> tuple[int, str, str, str]:
    choice = data["choices"][0]
    message = choice.get("message") or {}
    content = message.get("content") or choice.get("text") or ""
    reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
    tokens = int(data["usage"]["completion_tokens"])
    return tokens, str(content), str(reasoning), str(choice.get("finish_reason") or "")
