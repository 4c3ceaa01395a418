"""The body of a request: right at every place, and of the length that was said."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.errors import BadMedia
from spark_vllm_docker.media.request import Attachment, Body, Question, find_salt
from spark_vllm_docker.media.snippets import write_curl, write_python
from tests.stand_in.http_server import say, serve


def attach(
    path: Path, part: str = "video_url", mime: str = "video/mp4", url: str = ""
) -> Attachment:
    return Attachment(part, mime, path, path.stat().st_size, url)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, (3 << 16) - 1, 3 << 16, (3 << 16) + 1, 700_001])
def test_the_body_is_what_was_meant_and_as_long_as_was_said(tmp_path: Path, size: int) -> None:
    path = tmp_path / 'odd "name" ü.mp4'
    path.write_bytes(bytes(number % 251 for number in range(size)))
    question = Question(
        "m", 'say "hi" \x1a ü', (attach(path), attach(path, "audio_url")), "be kind"
    )
    body = Body(question)
    raw = b"".join(body)
    assert len(raw) == body.length
    data = json.loads(raw)
    first, second, text = data["messages"][1]["content"]
    assert base64.b64decode(first["video_url"]["url"].partition("base64,")[2]) == path.read_bytes()
    assert second["audio_url"]["url"].startswith("data:video/mp4;base64,")
    assert text == {"type": "text", "text": 'say "hi"  ü'}
    assert data["messages"][0] == {"role": "system", "content": "be kind"}


@given(st.text())
def test_any_text_is_asked(text: str) -> None:
    body = Body(Question("m", text))
    raw = b"".join(body)
    assert len(raw) == body.length
    assert json.loads(raw)["messages"][0]["content"] == text.replace("\x1a", "")


def test_the_flag_is_at_the_top_and_both_frame_settings_are_given(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(b"x")
    question = Question("m", "?", (attach(path),), with_sound_flag=True, frames=(1.5, 9))
    data = json.loads(b"".join(Body(question)))
    assert data["mm_processor_kwargs"] == {"use_audio_in_video": True}
    assert data["media_io_kwargs"] == {"video": {"fps": 1.5, "num_frames": 9}}
    assert "use_audio_in_video" not in json.dumps(data["messages"])


def test_a_file_that_shrinks_while_it_is_sent_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(b"x" * 1000)
    body = Body(Question("m", "?", (attach(path),)))
    path.write_bytes(b"x" * 10)
    with pytest.raises(BadMedia, match="became shorter"):
        b"".join(body)
    path.unlink()
    with pytest.raises(BadMedia, match="no such file"):
        b"".join(body)


def test_the_salt_follows_the_content(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    one.write_bytes(b"x" * 5000)
    other.write_bytes(b"x" * 4999 + b"y")
    assert find_salt([attach(one)]) == find_salt([attach(one)])
    assert find_salt([attach(one)]) != find_salt([attach(other)])


def test_the_python_that_is_shown_runs(tmp_path: Path) -> None:
    path = tmp_path / "it's.mp4"
    path.write_bytes(b"video bytes")
    question = Question("m", 'what\'s "this"?', (attach(path),), with_sound_flag=True)
    with serve(lambda *_: say("two words")) as stand_in:
        shown = Body(question).show_with_names()
        (tmp_path / "p.py").write_text(write_python(shown, stand_in.address))
        (tmp_path / "c.sh").write_text(write_curl(shown, stand_in.address))
        for command in ([sys.executable, "p.py"], ["bash", "c.sh"]):
            done = subprocess.run(
                command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, done.stderr
            assert "two" in done.stdout
        sent = json.loads(b"".join(Body(question)))
        assert stand_in.chats() == [sent, sent]


def test_what_is_shown_is_short(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    path.write_bytes(b"x" * 100_000)
    shown = json.dumps(Body(Question("m", "?", (attach(path),))).show())
    assert len(shown) < 600
    assert "(100,000 bytes)" in shown
