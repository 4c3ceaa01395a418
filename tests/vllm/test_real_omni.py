"""`ask`, `watch` and `gateway` against a real vLLM that serves a tiny Qwen2.5-Omni."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import openai
import pytest

from spark_vllm_docker.media.refusals import explain_refusal
from tests.conftest import ROOT, CommandLine, free_port
from tests.media_files import ffmpeg, make_picture, make_speech, make_video

pytestmark = [pytest.mark.vllm, pytest.mark.docker, pytest.mark.timeout(900)]
NAME = "sr-test-omni"


@dataclass(frozen=True)
class Omni:
    cli: CommandLine
    endpoint: str

    def ask(self, *arguments: str, code: int = 0) -> dict[str, object]:
        done = self.cli("ask", NAME, "What is this?", "--max-tokens", "4", "--json", *arguments)
        assert done.code == code, done.err
        return json.loads(done.out) if done.out else {"error": done.err}


@pytest.fixture(scope="module")
def omni(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Omni]:
    home = tmp_path_factory.mktemp("omni")
    cli = CommandLine(home)
    speech = make_speech(home / "speech.wav")
    make_video(home / "loud.mp4", 4, sound=speech)
    make_video(home / "silent.mp4", 4)
    make_video(home / "minute.mp4", 50, sound=speech)
    make_video(home / "long.mp4", 400, sound=speech, rate=2)
    make_picture(home / "picture.png")
    make_video(home / "h264.mp4", 3)
    source = ("-i", str(home / "loud.mp4"))
    ffmpeg(
        *source, *("-c:v", "libaom-av1", "-cpu-used", "8", "-c:a", "copy"), str(home / "av1.mp4")
    )
    ffmpeg(*source, "-vn", *("-c:a", "copy"), str(home / "sound.mp4"))
    whole = (home / "h264.mp4").read_bytes()
    (home / "cut.mp4").write_bytes(whole[: len(whole) // 3])
    text = (ROOT / "recipes/tiny-omni-cpu.yaml").read_text(encoding="utf-8")
    text = re.sub(r"port: \d+", f"port: {free_port()}", text)
    (home / "r.yaml").write_text(text.replace("name: tiny-omni-cpu", f"name: {NAME}"))
    up = cli("up", "r.yaml", "-d", timeout=600)
    assert up.code == 0, up.err
    yield Omni(cli, up.out.strip())
    cli("down", NAME, "--grace", "0")


def test_the_sound_of_a_video_is_heard(omni: Omni) -> None:
    loud = omni.ask("--video", "loud.mp4", "--strict")
    assert loud["sound"] == "heard"
    without = omni.ask("--video", "loud.mp4", "--no-sound")
    assert without["sound"] == "no sound"
    assert int(str(loud["prompt_tokens"])) > int(str(without["prompt_tokens"])) + 40


def test_every_canary_proves_what_it_says(omni: Omni) -> None:
    done = omni.cli("health", NAME, "--deep", timeout=300)
    assert done.code == 0, done.out
    assert re.search(r"audio: in the prompt \d+ tokens of audio \(the formula gives 50\)", done.out)
    assert re.search(r"video with sound: .* \d+ tokens \(the formula gives 52\)", done.out)
    assert "two sounds with the same frames are answered differently" in done.out


def test_a_video_without_a_sound_track_is_asked_without_the_flag(omni: Omni) -> None:
    assert omni.ask("--video", "silent.mp4", "--strict")["sound"] == "no sound"


@pytest.mark.parametrize("files", [("--audio", "speech.wav"), ("--image", "picture.png")])
def test_sound_and_picture_alone(omni: Omni, files: tuple[str, str]) -> None:
    assert int(str(omni.ask(*files)["prompt_tokens"])) > 40


def test_what_cannot_have_the_flag_has_its_sound_beside(omni: Omni) -> None:
    """A picture and a video with the flag end the engine; a silent video with it is refused."""
    for other in (("--image", "picture.png"), ("--video", "silent.mp4")):
        assert omni.ask("--video", "loud.mp4", *other, "--strict")["sound"] == "heard"
    assert omni.cli("health", NAME).code == 0


def test_a_video_that_is_too_long_gets_fewer_frames(omni: Omni) -> None:
    found = omni.ask("--video", "minute.mp4", "--strict")
    assert found["sound"] == "heard"


def test_a_video_whose_sound_does_not_fit_is_cut(omni: Omni) -> None:
    cut = omni.cli("ask", NAME, "What?", "--video", "long.mp4", "--max-tokens", "4", timeout=600)
    assert (cut.code, "it is cut, and each part is asked" in cut.err) == (0, True)
    watched = omni.cli(
        "watch", "long.mp4", "--recipe", NAME, "--max-tokens", "16", "--html", "n.html", timeout=600
    )
    assert watched.code == 0, watched.err
    text = (omni.cli.home / "long.notes.md").read_text()
    assert text.count("\n## ") >= 3
    assert '<img src="data:image/jpeg;base64,' in (omni.cli.home / "n.html").read_text()
    assert not (omni.cli.home / "long.notes.md.parts").exists()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("av1.mp4", "its OpenCV does not know the codec"),
        ("sound.mp4", "the server cannot open the video"),
        ("cut.mp4", "the server cannot open the video"),
        ("http://127.0.0.1:9/x.mp4", "the server cannot reach 127.0.0.1:9"),
        ("http://no-host.invalid/x.mp4", "the server cannot reach no-host.invalid"),
    ],
)
def test_what_the_server_cannot_see_is_one_clear_line(
    omni: Omni, gateway: str, name: str, told: str
) -> None:
    """Its words, directly and through the gateway, as `ask` reads them."""
    url = name
    if not name.startswith("http"):
        data = base64.b64encode((omni.cli.home / name).read_bytes()).decode()
        url = f"data:video/mp4;base64,{data}"
    part = {"type": "video_url", "video_url": {"url": url}}
    body = {
        "model": "tiny-omni",
        "max_tokens": 2,
        "messages": [{"role": "user", "content": [part]}],
    }
    for address in (omni.endpoint, gateway):
        answer = httpx.post(f"{address}/chat/completions", json=body, timeout=120)
        assert answer.status_code >= 400
        refused = explain_refusal(answer.status_code, answer.text)
        assert told in refused.message, refused.words


def test_what_is_asked_about_is_looked_at_first(omni: Omni) -> None:
    assert "does not know the codec" in str(omni.ask("--video", "av1.mp4", code=1)["error"])
    assert "is sound alone" in str(omni.ask("--video", "sound.mp4", code=1)["error"])
    assert "cut off or damaged" in str(omni.ask("--video", "cut.mp4", code=1)["error"])


def test_more_videos_than_are_allowed(omni: Omni) -> None:
    three = ("--video", "loud.mp4") * 3
    error = str(omni.ask(*three, code=1)["error"])
    assert "the server takes 2 videos at most" in error


@pytest.fixture
def gateway(omni: Omni) -> Iterator[str]:
    port = free_port()
    process = omni.cli.start("gateway", "--port", str(port))
    address = f"http://127.0.0.1:{port}"
    for _ in range(100):
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5) as answer:
                assert answer.status == 200
            break
        except OSError:
            time.sleep(0.1)
    yield f"{address}/v1"
    process.terminate()
    process.communicate(timeout=30)


def test_an_openai_client_that_knows_nothing_of_the_flag_is_heard(omni: Omni, gateway: str) -> None:
    data = base64.b64encode((omni.cli.home / "loud.mp4").read_bytes()).decode()
    part = {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{data}"}}
    message = {"role": "user", "content": [part, {"type": "text", "text": "What?"}]}
    tokens = {}
    for address in (gateway, omni.endpoint):
        client = openai.OpenAI(base_url=address, api_key="none")
        assert "tiny-omni" in [model.id for model in client.models.list()]
        answer = client.chat.completions.with_raw_response.create(
            model="tiny-omni",
            messages=[message],  # type: ignore[list-item]
            max_tokens=2,
        )
        tokens[address] = answer.parse().usage.prompt_tokens  # type: ignore[union-attr]
        if address == gateway:
            assert answer.headers["x-spark-recipe-sound"] == "added"
    assert tokens[gateway] > tokens[omni.endpoint] + 40
    picture = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
    }
    client = openai.OpenAI(base_url=gateway, api_key="none", max_retries=0)
    with pytest.raises(openai.BadRequestError, match="end the engine of some models"):
        client.chat.completions.create(
            model="tiny-omni",
            messages=[{"role": "user", "content": [picture, part]}],  # type: ignore[list-item, misc]
            extra_body={"mm_processor_kwargs": {"use_audio_in_video": True}},
        )
    with pytest.raises(openai.NotFoundError, match="did you mean 'tiny-omni'"):
        client.chat.completions.create(
            model="tiny-omin", messages=[{"role": "user", "content": "x"}]
        )
    stream = client.chat.completions.create(
        model="tiny-omni", messages=[{"role": "user", "content": "Hi"}], max_tokens=8, stream=True
    )
    assert sum(1 for _ in stream) > 4


def test_the_server_is_killed_while_a_video_is_watched(omni: Omni) -> None:
    """Last: the server does not come back. What was done is kept and never asked again."""
    process = omni.cli.start(
        *("watch", "long.mp4", "--recipe", NAME, "--segment", "40s", "--max-tokens", "16"),
        *("--out", "killed.md"),
    )
    assert process.stderr is not None
    for line in process.stderr:
        if " done" in line:
            break
    subprocess.run(["docker", "kill", NAME], capture_output=True, check=True)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 5, err
    parts = omni.cli.home / "killed.md.parts"
    done = {path.name for path in parts.glob("part-*.json")}
    assert done
    assert "failed: " in (omni.cli.home / "killed.md").read_text()
