"""Clips, and the proof that picture and sound went into the prompt, and sound into the answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from spark_vllm_docker.health.answers import Answer, Canary
from spark_vllm_docker.health.clips import load_clip
from spark_vllm_docker.health.questions import (
    CHAT,
    NAN_FIX,
    NAN_MARK,
    OK,
    RENDER,
    SERVER_ERROR,
    Ask,
    question,
)

AUDIO_FIX = 'setup: [pip install -q "vllm[audio]"] in the recipe'
TRUST_FIX = "serve: {trust-request-mm-kwargs: true} in the recipe"
TWO_SOUNDS = "two sounds"
SOUND = "sound"
"""The key, among expected tokens, of the sound of the video."""
_CLIPS = {"image": "picture.png", "audio": "speech.wav", "video": "video.mp4"}
_OTHER_SOUND = {"audio": "tone.wav", "video": "video-tone.mp4"}
_SLACK_TOKENS, _SLACK_SHARE = 4, 10
_TEXT = "What is this? One word."
_ANSWER_TOKENS = 4
_LEAST_DIFFERENCE = 1e-3
_CERTAIN = 1e-4
_Said = tuple[str, tuple[float, ...]]
"""Words, and the log probabilities of their tokens."""


def try_media(
    ask: Ask, model: str, name: str, *, with_sound: bool, expected: Mapping[str, int]
) -> Canary:
    """A clip, and proof that it went into the prompt: the tokens that `/render` puts there, else
    those by which the prompt grew; compared with `expected`, by the model's formula, where there is
    one.
    """
    sound = name == "video" and with_sound
    body = _ask_about(model, name, _CLIPS[name], sound=sound)
    title = "video with sound" if sound else name
    answer = ask(CHAT, body)
    if isinstance(answer, str):
        return Canary(title, answer, failed=True)
    if answer.status != OK:
        return Canary(title, answer.words, True, _mend_media(answer.text, name))
    if not answer.read(lambda data: data["choices"]):
        words = f"answered 200 without an answer: {answer.text[:200]}"
        return Canary(title, words, failed=True)
    counts = _count_placeholders(ask, body)
    if counts is not None and name != "audio" and name not in counts:
        # Some models name what they see otherwise.
        counts[name] = sum(count for kind, count in counts.items() if kind != "audio")
    if counts is None:
        wanted = expected.get(SOUND if sound else name, 0)
        return _compare_prompts(ask, model, body, answer, title, sound=sound, wanted=wanted)
    for kind in (name, "audio") if sound else (name,):
        if not counts.get(kind):
            what = "its sound was dropped in silence" if kind != name else "it was not taken in"
            fix = AUDIO_FIX if kind == "audio" else ""
            return Canary(title, f"answered 200, and {what}", True, fix)
    if sound and counts["audio"] == counts["video"]:  # one range for both, as in Qwen's models
        return Canary(title, f"in the prompt {counts['video']:,} tokens of video and sound")
    weighed = [_weigh(f"tokens of {name}", counts[name], expected.get(name, 0))]
    if sound:
        weighed.append(_weigh("tokens of audio", counts["audio"], expected.get(SOUND, 0)))
    words = " and ".join(text for text, _ in weighed)
    return Canary(title, f"in the prompt {words}", any(failed for _, failed in weighed))


def try_two_sounds(ask: Ask, model: str, name: str) -> Canary:
    """Two different sounds, with the same frames where it is a video. That sound is in the prompt
    does not say that the answer was made from it; that the answers differ does, and by more than
    those to the same sound asked twice. Each request has a `cache_salt` of its own: without, the
    prefix cache may answer the second with what it computed for the first (recorded, vLLM 0.20.0).
    """
    found: list[_Said] = []
    for clip in (_CLIPS[name], _CLIPS[name], _OTHER_SOUND[name]):
        body = _ask_about(model, name, clip, sound=name == "video")
        body |= {"max_tokens": _ANSWER_TOKENS, "logprobs": True, "top_logprobs": 1}
        answer = ask(CHAT, {**body, "cache_salt": token_hex(16)})
        if isinstance(answer, str):
            return Canary(TWO_SOUNDS, answer, failed=True)
        if NAN_MARK in answer.text:
            words = f"the model computes NaN when it hears ({answer.words})"
            return Canary(TWO_SOUNDS, words, True, NAN_FIX)
        if answer.status >= SERVER_ERROR:
            return Canary(TWO_SOUNDS, answer.words, failed=True)
        read = answer.read(_read_answer) if answer.status == OK else None
        if read is None:
            return Canary(TWO_SOUNDS, f"not compared: {answer.words}")
        found.append(read)
    frames = " with the same frames" if name == "video" else ""
    noise, difference = _distance(found[0], found[1]), _distance(found[0], found[2])
    if difference > max(_LEAST_DIFFERENCE, 2 * noise):
        return Canary(TWO_SOUNDS, f"two sounds{frames} are answered differently")
    if noise > _LEAST_DIFFERENCE:
        return Canary(TWO_SOUNDS, "not proved: one sound, asked twice, is answered differently")
    if all(number > -_CERTAIN for _, numbers in found for number in numbers):
        why = "the answer begins with what the model says to everything"
        return Canary(TWO_SOUNDS, f"not proved: {why if found[0][1] else 'no log probabilities'}")
    words = f"two sounds{frames} are answered alike, number for number: the model does not hear"
    return Canary(TWO_SOUNDS, words, failed=True)


def _distance(one: _Said, other: _Said) -> float:
    """How far two answers are apart: by their log probabilities, without end by their words."""
    (words, numbers), (other_words, other_numbers) = one, other
    if words != other_words or len(numbers) != len(other_numbers):
        return math.inf
    return max((abs(a - b) for a, b in zip(numbers, other_numbers, strict=True)), default=0.0)


def _ask_about(model: str, name: str, clip: str, *, sound: bool) -> dict[str, Any]:
    part = {"type": f"{name}_url", f"{name}_url": {"url": load_clip(clip)}}
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": [part, {"type": "text", "text": _TEXT}]}],
        "max_tokens": 1,
        "temperature": 0,
    }
    if sound:
        body["mm_processor_kwargs"] = {"use_audio_in_video": True}
    return body


def _compare_prompts(
    ask: Ask,
    model: str,
    body: dict[str, Any],
    answer: Answer,
    title: str,
    *,
    sound: bool,
    wanted: int,
) -> Canary:
    """Without `/render` (404, or an old release): the prompt must be longer than one without."""
    without = {key: value for key, value in body.items() if key != "mm_processor_kwargs"}
    if not sound:
        without |= question(model, _TEXT, 1)
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
    words, failed = _weigh("tokens", grown, wanted)
    return Canary(title, f"the prompt grew by {words}", failed)


def _weigh(what: str, found: int, wanted: int) -> tuple[str, bool]:
    """Tokens in words, and whether most of what the model's formula gives is missing. Marks and
    the end of a compressed sound make a few more or less.
    """
    words = f"{found:,} {what}"
    if not wanted:
        return words, False
    if abs(found - wanted) <= max(_SLACK_TOKENS, wanted // _SLACK_SHARE):
        return f"{words} (the formula gives {wanted:,})", False
    if 2 * found < wanted:
        return f"{words}, but the model's formula gives {wanted:,}: most was dropped", True
    return f"{words} (unlike the {wanted:,} of the formula)", False


def _read_prompt(data: Any) -> int:
    return int(data["usage"]["prompt_tokens"])


def _read_answer(data: Any) -> _Said:
    choice = data["choices"][0]
    message = choice.get("message") or {}
    said = f"{message.get('content') or ''}{message.get('reasoning') or ''}"
    content = (choice.get("logprobs") or {}).get("content") or ()
    return said, tuple(float(token["logprob"]) for token in content)


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
    if re.search(r"context length|model length|encoder cache|max_model_len", text):
        return "a larger max-model-len and max-num-batched-tokens in the recipe"
    if "At most 0" in text:
        return f"serve: {{limit-mm-per-prompt: {{{name}: 1}}}} in the recipe"
    return ""
