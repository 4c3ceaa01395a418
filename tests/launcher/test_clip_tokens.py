"""What the clips of the canaries cost, by the formulas, and the clips themselves."""

from __future__ import annotations

import json
from pathlib import Path

import av
import pytest

from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.health import clips
from spark_vllm_docker.launcher.clip_tokens import expect_clips
from spark_vllm_docker.render.spec import LABEL

OMNI = "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4"
FOLDER = Path(clips.__file__).parent / "data/clips"


def deployed(script: str, *modalities: str) -> Deployed:
    labels = {f"{LABEL}.modalities": json.dumps(["text", *modalities])}
    return Deployed("1", "n", "vllm/vllm-openai:v0.20.0", "running", labels, script=script)


def expect(script: str, *modalities: str) -> dict[str, int]:
    return expect_clips(deployed(script, *modalities), {})


def test_nemotrons_formula() -> None:
    # Eight frames in four tubelets of 252 tokens; labels of 24 and their digits; 12.5 in a second.
    wanted = {"audio": 27, "video": 4 * 252 + 4 * 24 + 8 + 8 - 1, "sound": 27}
    assert expect(f"vllm serve {OMNI}", "audio", "video") == wanted


def test_the_servers_settings_count() -> None:
    flags = '--media-io-kwargs \'{"video": {"fps": 1, "num_frames": 64}}\''
    found = expect(f"vllm serve {OMNI} {flags}", "audio", "video")
    assert found["video"] == 252 + 24 + 2 + 2 - 1
    pruned = expect(f"vllm serve {OMNI} --video-pruning-rate 0.5", "audio", "video")
    assert pruned["video"] < 4 * 252


def test_qwens_sound() -> None:
    found = expect("vllm serve /models/tiny-omni", "audio", "video")
    assert found == {"audio": 50, "sound": 52}


@pytest.mark.parametrize(
    ("script", "modalities"),
    [
        ("vllm serve some/model", ("audio",)),
        ("vllm serve /models/tiny-llama", ("audio",)),
        (f"vllm serve {OMNI}", ()),
        ("", ("audio",)),
        ("sleep 1", ("audio",)),
        (f"vllm serve {OMNI} --media-io-kwargs", ("audio",)),
    ],
)
def test_where_no_formula_is_known_nothing_is_expected(
    script: str, modalities: tuple[str, ...]
) -> None:
    assert expect(script, *modalities).keys() <= {"audio", "video", "sound"}
    if "media-io" not in script:
        assert expect(script, *modalities) == {}


def test_the_clips_are_as_long_as_it_is_said() -> None:
    for name in ("video.mp4", "video-tone.mp4", "speech.wav", "tone.wav"):
        with av.open(FOLDER / name) as file:
            for stream in file.streams:
                assert stream.duration is not None
                assert stream.time_base is not None
                seconds = float(stream.duration * stream.time_base)
                assert seconds == pytest.approx(clips.SECONDS, abs=0.05)


def read_frames(name: str) -> list[bytes]:
    with av.open(FOLDER / name) as file:
        return [bytes(packet) for packet in file.demux(video=0) if packet.size]


def test_both_videos_have_the_same_frames() -> None:
    frames = read_frames("video.mp4")
    assert len(frames) == clips.SECONDS * clips.FRAMES_PER_S
    assert frames == read_frames("video-tone.mp4")
    with av.open(FOLDER / "video.mp4") as file:
        stream = file.streams.video[0]
        assert stream.width / stream.height == clips.ASPECT
