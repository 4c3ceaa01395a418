"""What a server says when it refuses a request → one clear line and what to do.

Sources: answers of vLLM 0.20.0 and 0.32.0 to right and wrong requests (recorded). Some mistakes of
a client are answered 500.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from spark_vllm_docker.errors import RequestRefused

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SECRET = re.compile(r"Bearer \S+")
TOO_LONG = "too-long"
NO_KWARGS = "no-kwargs"
NO_SOUND = "no-sound"
OUT_OF_CACHE = "processor-cache"
ENGINE_DIED = "engine-died"
NOBODY, BROKE, TOO_LATE = "nobody", "broke", "too-late"
"""Kinds of no answer at all."""


@dataclass(frozen=True, slots=True)
class _Known:
    pattern: re.Pattern[str]
    text: str
    hint: str
    kind: str = ""


def _known(pattern: str, text: str, hint: str = "", kind: str = "") -> _Known:
    return _Known(re.compile(pattern, re.DOTALL), text, hint, kind)


_KNOWN = (
    _known(
        r"maximum context length|exceeds model's maximum|longer than the maximum model length"
        r"|max_model_len=",
        "the prompt and its answer are longer than the server's context",
        "fewer frames, a shorter video, a smaller --max-tokens, or a larger max-model-len",
        TOO_LONG,
    ),
    _known(
        r"exceeds the pre-allocated encoder cache size",
        "one picture or video is larger than the server's encoder cache",
        "fewer frames, or a larger max-num-batched-tokens in the recipe",
        TOO_LONG,
    ),
    _known(
        r"trust-request-mm-kwargs|mm_processor_kwargs.*not (?:allowed|trusted)",
        "the server takes no mm_processor_kwargs and no media_io_kwargs from a request",
        "serve: {trust-request-mm-kwargs: true} in the recipe",
        NO_KWARGS,
    ),
    _known(
        r"Invalid or unsupported audio file|No audio stream found",
        "the server finds no sound in the file: it has none, or the image lacks vllm[audio]",
        "without its sound: --no-sound; or setup: [pip install -q 'vllm[audio]'] in the recipe",
        NO_SOUND,
    ),
    _known(
        r"Failed to apply \w+ on data=.*shape=\(0,|max\(\) arg is an empty sequence"
        r"|\d+ video items, but instead found 0 prompt placeholders",
        "the server could read no frame of the video: its OpenCV does not know the codec (AV1?)",
        "ffmpeg -i FILE -c:v libx264 -c:a copy readable.mp4",
    ),
    _known(
        r"total number of .* tokens in the prompts? should be the same",
        "the image's transformers is newer than its vLLM: sound in videos is broken there",
        "an image whose transformers is of vLLM's own time",
    ),
    _known(
        r"Failed to apply \w+ on data=|doesn't have audio track with `?audio_in_video",
        "the server's processor failed: it has the sound of an earlier request in its cache, with "
        "other frames",
        "--mm-processor-cache-gb 0 in the recipe, or the same frames as before",
        OUT_OF_CACHE,
    ),
    _known(
        r"At most 0 audio",
        "the server takes no sound",
        "--no-sound; or serve: {limit-mm-per-prompt: {audio: 1}} in the recipe",
    ),
    _known(
        r"At most (\d+) (\w+)\(s\) may be provided",
        "the server takes {0} {1}s at most in a request",
        "fewer of them (a page of a PDF is an image), or serve: {{limit-mm-per-prompt: {{{1}: more "
        "than {0}}}}} in the recipe",
    ),
    _known(
        r"is not a multimodal model",
        "the model takes text alone",
        "a recipe with the modality: spark-recipe list --modality video",
    ),
    _known(r"Could not open video stream", "the server cannot open the video: damaged, or none"),
    _known(r"cannot identify image file", "the server cannot read the picture"),
    _known(r"model `?([^`']+?)`? does not exist", "the server has no model {0}"),
    _known(
        r"Cannot load local files without",
        "the server may read no local files",
        "serve: {allowed-local-media-path: /folder} in the recipe, and the folder as a volume",
    ),
    _known(r"must be a subpath of", "the file is outside of the folder that the server may read"),
    _known(r"Cannot connect to host (\S+)", "the server cannot reach {0}, where the file is"),
    _known(r"Name or service not known|\[Errno -2\]", "the server cannot find the host of the URL"),
    _known(r"^404, message", "the URL of the file answers 404"),
    _known(
        r"EngineDeadError|EngineCore encountered an issue|Engine loop is not running",
        "the server's engine has died",
        "spark-recipe diagnose tells why; up starts it again",
        ENGINE_DIED,
    ),
    _known(
        r"No module named 'torchaudio'",
        "the image lacks torchaudio, and so takes sound of 16 kHz alone",
        "ffmpeg -i FILE -ar 16000 -ac 1 sound.wav",
    ),
    _known(r"shape mismatch", "the server's engine died on this mix of picture and video"),
)


def explain_refusal(status: int, body: str) -> RequestRefused:
    """The error of an HTTP answer that is none of 2xx."""
    words = _SECRET.sub("Bearer ********", " ".join(_CONTROL.sub(" ", _find_words(body)).split()))
    if status in (401, 403) and "Scale-out" not in words:
        hint = "--api-key KEY, or VLLM_API_KEY in the environment"
        return RequestRefused("the server wants an API key", hint=hint, status=status, words=words)
    for known in _KNOWN:
        found = known.pattern.search(words)
        if found:
            return RequestRefused(
                known.text.format(*found.groups()),
                hint=known.hint.format(*found.groups()) if found.groups() else known.hint,
                status=status,
                words=words[:300],
                kind=known.kind,
            )
    if status == 404:
        return RequestRefused(f"the server has no such path ({words[:200]})", status=status)
    if not words:
        words = "no word; a file's URL that does not answer looks like that"
    told = f"the server answered {status}: {words[:300]}"
    return RequestRefused(told, status=status, words=words)


def read_limits(words: str) -> tuple[int, int] | None:
    """Tokens that there were and tokens that fit, as a refusal of a long prompt tells them."""
    for pattern in (
        r"Input length \((\d+)\) exceeds model's maximum context length \((\d+)\)",
        r"prompt \(length (\d+)\) is longer than the maximum model length of (\d+)",
        r"with (\d+) embedding tokens, which exceeds the pre-allocated encoder cache size (\d+)",
    ):
        if found := re.search(pattern, words):
            return int(found[1]), int(found[2])
    limit = re.search(r"maximum context length is (\d+) tokens", words)
    there = re.search(r"prompt contains (?:at least )?(\d+) input tokens", words)
    return (int(there[1]), int(limit[1])) if limit and there else None


def _find_words(body: str) -> str:
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        title = re.search(r"<title>(.*?)</title>", body, re.DOTALL | re.IGNORECASE)
        return title[1] if title else body[:2000]
    if isinstance(data, dict):
        error = data.get("error", data.get("detail", data.get("message", data)))
        if isinstance(error, dict):
            return str(error.get("message", error))
        return str(error)
    return str(data)
