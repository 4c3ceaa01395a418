"""Questions that only a server that really works answers as it should.

`/health` is 200 while every logit is NaN, and a video without its sound is answered with 200. Each
canary says what it proved. Sources: recordings of vLLM 0.20.0 and 0.32.0.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spark_vllm_docker.health.answers import Answer, Canary, Wanted
from spark_vllm_docker.health.clips import load_clip

Ask = Callable[[str, dict[str, Any]], Answer | str]
"""Asks a path with a body: the answer, whatever its status, or in words why there is none."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RENDER = "/v1/chat/completions/render"
OK, BAD_REQUEST, NOT_FOUND = 200, 400, 404
TEXT_TOKENS = 32
_REPEATED = 8
_NAN = "Out of range float values are not JSON compliant"
NAN_FIX = (
    "the stock image that the checkpoint was made for; then another --moe-backend or "
    "--linear-backend, or --kv-cache-dtype auto; spark-recipe rules nan-logits"
)
AUDIO_FIX = 'setup: [pip install -q "vllm[audio]"] in the recipe'
TRUST_FIX = "serve: {trust-request-mm-kwargs: true} in the recipe"


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
        yield _try_pooling(ask, model, tasks)
        return
    numbers = try_numbers(ask, model)
    if numbers is not None:
        yield numbers
    yield try_text(ask, model, numbers_are_known=numbers is not None)
    for name in ("image", "audio", "video"):
        if name in wanted.modalities:
            yield try_media(ask, model, name, with_sound="audio" in wanted.modalities)
    if wanted.tools:
        yield try_tools(ask, model)
    if wanted.structured:
        yield try_structured(ask, model)


def try_numbers(ask: Ask, model: str) -> Canary | None:
    """One token with its log probability: NaN is answered 400, or null. None when the server does
    not give log probabilities: nothing is known then.
    """
    body: dict[str, Any] = _question(model, "Say hello.", 1)
    answer = ask(CHAT, {**body, "logprobs": True, "top_logprobs": 1})
    if isinstance(answer, Answer) and _has_no_chat(answer):
        prompt = {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
        answer = ask(COMPLETIONS, {**prompt, "logprobs": 1})
    if isinstance(answer, str):
        return Canary("numbers", answer, failed=True)
    if _NAN in answer.text:
        return Canary("numbers", f"the model computes NaN ({answer.words})", True, NAN_FIX)
    if answer.status >= 500:
        return Canary("numbers", answer.words, failed=True)
    found = answer.read(_read_logprobs) if answer.status == OK else None
    if not found:
        return None
    if any(not isinstance(value, (int, float)) or not math.isfinite(value) for value in found):
        text = "the model computes NaN: its log probabilities are no numbers"
        return Canary("numbers", text, True, NAN_FIX)
    return Canary("numbers", f"finite (log probability {found[0]:.2f})")


def try_text(ask: Ask, model: str, *, numbers_are_known: bool) -> Canary:
    """A short question. The answer is read from content or reasoning, whichever there is."""
    answer = ask(CHAT, _question(model, "What is two plus three? One word.", TEXT_TOKENS))
    if isinstance(answer, Answer) and _has_no_chat(answer):
        body = {"model": model, "prompt": "Two plus three is", "max_tokens": 8, "temperature": 0}
        answer = ask(COMPLETIONS, body)
    if isinstance(answer, str):
        return Canary("text", answer, failed=True)
    if answer.status != OK:
        return Canary("text", answer.words, failed=True)
    found = answer.read(_read_generation)
    if found is None:
        return Canary("text", f"the answer has no tokens in it: {answer.text[:200]}", failed=True)
    tokens, content, reasoning, finish = found
    if tokens < 1:
        return Canary("text", "the model generated no token", failed=True)
    text = content or reasoning
    repeats = len(text) >= _REPEATED and len(set(text.strip())) == 1
    if repeats and not numbers_are_known:
        words = f"nothing but {text.strip()[0]!r}: NaN, or a kernel that is broken"
        return Canary("text", words, True, NAN_FIX)
    plural = "s" if tokens > 1 else ""
    shown = f"{tokens} token{plural} in {answer.seconds:.2f} s: {text[:80]!r}"
    if not content and reasoning and finish == "length":
        shown += " (reasoning took all of them: clients need a larger max_tokens)"
    return Canary("text", shown)


def try_media(ask: Ask, model: str, name: str, *, with_sound: bool) -> Canary:
    """A clip, and proof that it went into the prompt: the tokens that `/render` puts there, else
    those by which the prompt grew.
    """
    clip = {"image": "picture.png", "audio": "speech.wav", "video": "video.mp4"}[name]
    part = {"type": f"{name}_url", f"{name}_url": {"url": load_clip(clip)}}
    text = {"type": "text", "text": "What is this? One word."}
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": [part, text]}],
        "max_tokens": 1,
        "temperature": 0,
    }
    sound = name == "video" and with_sound
    if sound:
        body["mm_processor_kwargs"] = {"use_audio_in_video": True}
    title = "video with sound" if sound else name
    answer = ask(CHAT, body)
    if isinstance(answer, str):
        return Canary(title, answer, failed=True)
    if answer.status != OK:
        return Canary(title, answer.words, True, _mend_media(answer.text, name))
    needed = (name, "audio") if sound else (name,)
    counts = _count_placeholders(ask, body)
    if counts is None:
        return _compare_prompts(ask, model, body, answer, title, sound=sound)
    for kind in needed:
        if not counts.get(kind):
            what = "its sound was dropped in silence" if kind != name else "it was not taken in"
            fix = AUDIO_FIX if kind == "audio" else ""
            return Canary(title, f"answered 200, and {what}", True, fix)
    if sound and counts["audio"] == counts["video"]:  # one range for both, as in Qwen's models
        return Canary(title, f"{counts['video']:,} tokens of video and sound in the prompt")
    words = " and ".join(f"{counts[kind]:,} tokens of {kind}" for kind in needed)
    return Canary(title, f"{words} in the prompt")


def _compare_prompts(
    ask: Ask, model: str, body: dict[str, Any], answer: Answer, title: str, *, sound: bool
) -> Canary:
    """Without `/render` (404, or an old release): the prompt must be longer than one without."""
    without = {key: value for key, value in body.items() if key != "mm_processor_kwargs"}
    if not sound:
        without |= _question(model, "What is this? One word.", 1)
    plain = ask(CHAT, without)
    if isinstance(plain, str):
        return Canary(title, plain, failed=True)
    with_it, without_it = answer.read(_read_prompt), plain.read(_read_prompt)
    if not with_it or not without_it:
        return Canary(title, "answered; the server does not say how long the prompt was")
    grown = with_it - without_it
    if grown <= 0:
        what = "its sound was dropped in silence" if sound else "it was not taken in"
        return Canary(title, f"answered 200, and {what}", True, AUDIO_FIX if sound else "")
    return Canary(title, f"the prompt grew by {grown:,} tokens")


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
    body = _question(model, "What time is it in Paris?", TEXT_TOKENS)
    answer = ask(CHAT, {**body, "tools": [tool], "tool_choice": "auto"})
    if isinstance(answer, str):
        return Canary("tools", answer, failed=True)
    if answer.status != OK:
        fix = "serve: {enable-auto-tool-choice: true, tool-call-parser: …} in the recipe"
        return Canary("tools", answer.words, True, fix)
    calls = answer.read(lambda data: data["choices"][0]["message"].get("tool_calls"))
    return Canary("tools", "called" if calls else "accepted; the model did not call one")


def try_structured(ask: Ask, model: str) -> Canary:
    """An answer in a given form: what comes back must be of it, unless it was cut off."""
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "canary", "schema": schema}}
    body = _question(model, "Is water wet? Answer as JSON.", TEXT_TOKENS)
    answer = ask(CHAT, {**body, "response_format": form})
    if isinstance(answer, str):
        return Canary("structured output", answer, failed=True)
    if answer.status != OK:
        return Canary("structured output", answer.words, failed=True)
    found = answer.read(_read_generation)
    content, finish = (found[1], found[3]) if found else ("", "")
    try:
        whole = isinstance(json.loads(content), dict)
    except ValueError:
        whole = False
    if not whole and finish != "length":
        return Canary("structured output", f"not of the form: {content[:80]!r}", failed=True)
    return Canary("structured output", "of the form" if whole else "taken; the answer was cut off")


def judge_metrics(text: str) -> Canary | None:
    """The server's own count of answers with NaN, where VLLM_COMPUTE_NANS_IN_LOGITS makes it keep
    one (v1/metrics/loggers.py).
    """
    found = re.findall(r"^vllm:corrupted_requests_total(?:\{[^}]*\})? (\S+)$", text, re.MULTILINE)
    counts = [float(count) for count in found if re.fullmatch(r"[\d.e+]+", count)]
    if not counts:
        return None
    if sum(counts) > 0:
        words = f"the server counts {sum(counts):.0f} answers with NaN in them"
        return Canary("corrupted requests", words, True, NAN_FIX)
    return Canary("corrupted requests", "none counted")


def _try_pooling(ask: Ask, model: str, tasks: Sequence[str]) -> Canary:
    """Embeddings, scores and classes of models that do not generate."""
    for task, path, body, look in _POOLING:
        if task not in tasks:
            continue
        answer = ask(path, {"model": model, **body})
        if isinstance(answer, str):
            return Canary(task, answer, failed=True)
        if answer.status != OK:
            fix = NAN_FIX if _NAN in answer.text else ""
            return Canary(task, answer.words, True, fix)
        numbers = answer.read(look)
        if not numbers:
            return Canary(task, f"the answer has no numbers in it: {answer.text[:200]}", True)
        if not all(isinstance(n, (int, float)) and math.isfinite(n) for n in numbers):
            return Canary(task, "the model computes NaN", True, NAN_FIX)
        kind = "an embedding" if task == "embed" else "a score"
        return Canary(task, f"{kind} of {len(numbers)} numbers" if task == "embed" else kind)
    return Canary("tasks", f"not asked: no short question is known for {', '.join(tasks)}")


_PAIR = {"text_1": "What is red?", "text_2": ["A rose is red."]}
_POOLING: tuple[tuple[str, str, dict[str, Any], Callable[[Any], Any]], ...] = (
    ("embed", "/v1/embeddings", {"input": "Hello"}, lambda data: data["data"][0]["embedding"]),
    ("score", "/v1/score", _PAIR, lambda data: [data["data"][0]["score"]]),
    ("classify", "/classify", {"input": ["Hello"]}, lambda data: data["data"][0]["probs"]),
)


def _question(model: str, text: str, tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
    }


def _has_no_chat(answer: Answer) -> bool:
    """A base model without chat template (400), or a server without that route (404)."""
    return answer.status == NOT_FOUND or (
        answer.status == BAD_REQUEST and "chat template" in answer.text
    )


def _read_logprobs(data: Any) -> list[Any]:
    logprobs = data["choices"][0]["logprobs"]
    if logprobs.get("content"):
        return [token["logprob"] for token in logprobs["content"]]
    return list(logprobs["token_logprobs"])


def _read_generation(data: Any) -> tuple[int, str, str, str]:
    choice = data["choices"][0]
    message = choice.get("message") or {}
    content = message.get("content") or choice.get("text") or ""
    reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
    tokens = int(data["usage"]["completion_tokens"])
    return tokens, str(content), str(reasoning), str(choice.get("finish_reason") or "")


def _read_prompt(data: Any) -> int:
    return int(data["usage"]["prompt_tokens"])


def _count_placeholders(ask: Ask, body: dict[str, Any]) -> dict[str, int] | None:
    """Tokens of each modality in the prompt of a request; None when the server does not tell."""
    answer = ask(RENDER, body)
    if isinstance(answer, str) or answer.status != OK:
        return None
    found = answer.read(
        lambda data: {
            str(kind): sum(int(place["length"]) for place in places)
            for kind, places in (data["features"] or {}).get("mm_placeholders", {}).items()
        }
    )
    return found if isinstance(found, dict) else None


def _mend_media(text: str, name: str) -> str:
    """What to do about a refused clip."""
    if "trust" in text and "mm" in text:
        return TRUST_FIX
    if "audio" in text.lower() and ("unsupported" in text or "vllm[audio]" in text):
        return AUDIO_FIX
    if "At most 0" in text:
        return f"serve: {{limit-mm-per-prompt: {{{name}: 1}}}} in the recipe"
    return ""
