"""What a real server answered (recorded) → one clear line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_vllm_docker.errors import RequestRefused
from spark_vllm_docker.media.refusals import explain_refusal, read_limits

RECORDED = Path(__file__).resolve().parent.parent / "data/http"
TOLD = {
    "omni-ready.m-audio-only-mp4-as-video": "the server cannot open the video",
    "omni-ready.m-codec-av1": "does not know the codec (AV1?)",
    "omni-ready.m-file-url-without-allowed-path": "the server may read no local files",
    "omni-ready.m-garbage-audio": "the server finds no sound in the file",
    "omni-ready.m-garbage-image": "the server cannot read the picture",
    "omni-ready.m-prompt-plus-max_tokens-too-long": "longer than the server's context",
    "omni-ready.m-three-images-limit-two": "the server takes 2 images at most in a request",
    "omni-ready.m-too-long-prompt": "longer than the server's context",
    "omni-ready.m-truncated-mp4": "the server cannot open the video",
    "omni-ready.m-video-exceeds-encoder-cache": "longer than the server's context",
    "omni-ready.m-video-too-long-prompt": "longer than the server's context",
    "omni-ready.m-video-url-404": "the URL of the file answers 404",
    "omni-ready.m-video-url-connection-refused": "the server cannot reach 127.0.0.1:9",
    "omni-ready.m-video-url-unknown-host": "the server cannot reach no-such-host.invalid:80",
    "omni-ready.m-wrong-model-name": "the server has no model no-such-model",
    "omni-no-limit-flag-apikey.no-api-key": "the server wants an API key",
    "omni-no-limit-flag-apikey.video-exceeds-encoder-cache": "larger than the server's encoder cache",
    "omni-no-limit-flag-apikey.file-url-outside-allowed": "outside of the folder",
    "omni-mm-cache-partial-hit.3": "with other frames",
    "omni-slow-media-url": "no word; a file's URL that does not answer",
    "omni-without-vllm-audio-extra.video-flag-true": "or the image lacks vllm[audio]",
    "ok-tiny-llama-eager.video-to-a-text-only-model": "the model takes text alone",
    "omni-engine-crash": "the server's engine has died",
}


def refuse(name: str) -> RequestRefused:
    data = json.loads((RECORDED / f"cpu-0.20.0.{name}.json").read_text())
    return explain_refusal(data["status"], json.dumps(data["response"]))


@pytest.mark.parametrize("name", TOLD)
def test_a_recorded_refusal_is_one_clear_line(name: str) -> None:
    refused = refuse(name)
    assert TOLD[name] in refused.message
    assert "\n" not in refused.message + refused.hint
    assert "{" not in refused.message


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("omni-ready.m-video-exceeds-encoder-cache", (17968, 8192)),
        ("omni-ready.m-too-long-prompt", (8189, 8192)),
        ("omni-no-limit-flag-apikey.video-exceeds-encoder-cache", (4480, 2048)),
        ("omni-ready.m-garbage-image", None),
    ],
)
def test_how_long_it_was_and_may_be(name: str, limits: tuple[int, int] | None) -> None:
    assert read_limits(refuse(name).words) == limits


@pytest.mark.parametrize(
    "body",
    [
        "",
        "<html><head><title>502 Bad Gateway</title>",
        "null",
        '"x"',
        "[1]",
        '{"detail": {"a": 1}}',
    ],
)
def test_any_body_is_explained(body: str) -> None:
    assert explain_refusal(502, body).message.startswith("the server answered 502")
