"""Clips, and the proof that picture and sound went into the prompt."""

from __future__ import annotations

import re
from typing import Any

from spark_vllm_docker.health.answers import Answer, Canary
from spark_vllm_docker.health.clips import load_clip
from spark_vllm_docker.health.questions import CHAT, OK, RENDER, Ask, question

AUDIO_FIX = 'setup: [pip install -q "vllm[audio]"] in the recipe'
TRUST_FIX = "serve: {trust-request-mm-kwargs: true} in the recipe"


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
    if not answer.read(lambda data: data["choices"]):
        words = f"answered 200 without an answer: {answer.text[:200]}"
        return Canary(title, words, failed=True)
    needed = (name, "audio") if sound else (name,)
    counts = _count_placeholders(ask, body)
    if counts is not None and name != "audio" and name not in counts:
        # Some models name what they see otherwise.
        counts[name] = sum(count for kind, count in counts.items() if kind != "audio")
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
        without |= question(model, "What is this? One word.", 1)
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
    if re.search(r"context length|model length|encoder cache|max_model_len", text):
        return "a larger max-model-len and max-num-batched-tokens in the recipe"
    if "At most 0" in text:
        return f"serve: {{limit-mm-per-prompt: {{{name}: 1}}}} in the recipe"
    return ""
