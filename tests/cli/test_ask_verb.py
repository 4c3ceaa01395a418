"""`ask` against a server whose answers are chosen: heard, refused, broken off, and said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CommandLine, Done
from tests.media_files import make_picture, make_speech, make_video
from tests.stand_in.http_server import Answer, chunk, say, serve, slowly, usage

RENDER = "/v1/chat/completions/render"


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ask")
    speech = make_speech(folder / "speech.wav")
    make_video(folder / "loud.mp4", 4, sound=speech)
    make_video(folder / "silent.mp4", 4)
    make_picture(folder / "picture.png")
    return folder


def ask(cli: CommandLine, address: str, *arguments: str) -> Done:
    return cli("ask", "--url", address, "What?", *arguments)


def places(path: str, **counts: int) -> Answer | None:
    if path != RENDER:
        return None
    return 200, {"features": {"mm_placeholders": {k: [{"length": v}] for k, v in counts.items()}}}


def test_a_question_is_answered_and_what_it_took_is_told(cli: CommandLine) -> None:
    def answer(path: str, body: dict[str, Any]) -> Iterator[str]:
        yield chunk("", None, reasoning="let me think")
        yield from say("It is red", prompt=12)

    with serve(answer) as server:
        done = ask(cli, server.address, "--system", "Be short.")
        assert (done.code, done.out) == (0, "It is red \n")
        assert "prompt 12 tokens · answer 3 tokens" in done.err
        assert server.chats()[0]["messages"][0] == {"role": "system", "content": "Be short."}
        document = ask(cli, f"{server.address}/v1", "--json", "--no-reasoning").json()
        assert (document["answer"], document["reasoning"]) == ("It is red ", "let me think")
        assert server.chats()[1]["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_heard_sound_and_a_dropped_one(cli: CommandLine, clips: Path) -> None:
    heard = {"audio": 101, "video": 9}
    with serve(lambda path, _: places(path, **heard) or say("a")) as server:
        done = ask(cli, server.address, "--video", str(clips / "loud.mp4"), "--strict")
        assert (done.code, "sound in the prompt" in done.err) == (0, True)
        (body,) = server.chats()
        assert body["mm_processor_kwargs"] == {"use_audio_in_video": True}
        assert len(body["cache_salt"]) == 32
    del heard["audio"]
    with serve(lambda path, _: places(path, **heard) or say("a")) as server:
        done = ask(cli, server.address, "--video", str(clips / "loud.mp4"))
        assert (done.code, "did not enter the prompt" in done.err) == (0, True)
        assert ask(cli, server.address, "--video", str(clips / "loud.mp4"), "--strict").code == 1


def test_without_render_the_prompts_are_compared_when_it_is_strict(
    cli: CommandLine, clips: Path
) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        if path == RENDER:
            return 403, {"error": {"message": "Scale-out endpoints are disabled."}}
        return say("a", prompt=200 if "mm_processor_kwargs" in body else 100)

    with serve(answer) as server:
        video = str(clips / "loud.mp4")
        assert ask(cli, server.address, "--video", video, "--json").json()["sound"] == "unknown"
        strict = ask(cli, server.address, "--video", video, "--json", "--strict")
        assert (strict.code, strict.json()["sound"]) == (0, "heard")
        assert "mm_processor_kwargs" not in server.chats()[-1]


def test_a_silent_video_and_a_picture_carry_no_flag(cli: CommandLine, clips: Path) -> None:
    with serve(lambda *_: say("a")) as server:
        ask(cli, server.address, "--video", str(clips / "silent.mp4"))
        ask(cli, server.address, "--image", str(clips / "picture.png"))
        ask(cli, server.address, "--video", str(clips / "loud.mp4"), "--no-sound")
        for _, body in server.seen:
            assert "mm_processor_kwargs" not in body


def test_a_picture_beside_a_video_never_goes_with_the_flag(cli: CommandLine, clips: Path) -> None:
    files = ("--video", str(clips / "loud.mp4"), "--image", str(clips / "picture.png"))
    with serve(lambda *_: say("a")) as server:
        assert ask(cli, server.address, *files).code == 0
        body = server.chats()[0]
        assert "mm_processor_kwargs" not in body
        kinds = [part["type"] for part in body["messages"][0]["content"]]
        assert sorted(kinds) == ["audio_url", "image_url", "text", "video_url"]


def test_a_server_that_takes_no_kwargs_gets_the_sound_beside(cli: CommandLine, clips: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        if "mm_processor_kwargs" in body:
            words = "mm_processor_kwargs is only allowed with --trust-request-mm-kwargs"
            return 400, {"error": {"message": words}}
        return say("a")

    with serve(answer) as server:
        done = ask(cli, server.address, "--video", str(clips / "loud.mp4"))
        assert (done.code, "the sound is sent beside the video" in done.err) == (0, True)
        kinds = [part["type"] for part in server.chats()[-1]["messages"][0]["content"]]
        assert kinds == ["video_url", "audio_url", "text"]


def test_a_prompt_that_is_too_long_gets_fewer_frames(cli: CommandLine, clips: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        frames = body.get("media_io_kwargs", {}).get("video", {}).get("num_frames", 32)
        if frames > 12:
            words = f"Input length ({frames * 100}) exceeds model's maximum context length (1200)."
            return 400, {"error": {"message": words}}
        return places(path, audio=1) or say("a")

    with serve(answer) as server:
        done = ask(cli, server.address, "--video", str(clips / "loud.mp4"))
        assert done.code == 0, done.err
        assert "Gestures and slides may be missed, sound is not" in done.err
        settings = server.chats()[-1]["media_io_kwargs"]["video"]
        assert set(settings) == {"fps", "num_frames"}


def test_what_never_fits_is_for_watch(cli: CommandLine, clips: Path) -> None:
    words = "Input length (99999) exceeds model's maximum context length (1200)."
    with serve(lambda *_: (400, {"error": {"message": words}})) as server:
        done = ask(cli, server.address, "--video", str(clips / "loud.mp4"))
        assert (done.code, "the video does not fit" in done.err) == (1, True)


def broken_off(path: str, body: dict[str, Any]) -> Iterator[str]:
    yield chunk("a")


def error_inside(path: str, body: dict[str, Any]) -> Iterator[str]:
    yield chunk("a")
    yield json.dumps({"error": {"message": "EngineCore encountered an issue.", "code": 500}})


def garbage(path: str, body: dict[str, Any]) -> Iterator[str]:
    yield "{not json"


@pytest.mark.parametrize(
    ("answering", "told"),
    [
        (broken_off, "the server broke off in the middle of its answer"),
        (error_inside, "the server's engine has died"),
        (garbage, "the server answers garbage"),
        (lambda *_: (200, "<html>"), "the server answers garbage"),
        (lambda *_: (500, "<html><title>Oops</title>"), "the server answered 500: Oops"),
    ],
)
def test_a_server_in_trouble_is_one_line(cli: CommandLine, answering: Any, told: str) -> None:
    with serve(answering) as server:
        done = ask(cli, server.address)
        assert (done.code, f"error: {told}" in done.err) == (1, True), done.err


def test_addresses_that_are_none(cli: CommandLine) -> None:
    nobody = ask(cli, "http://127.0.0.1:9")
    assert (nobody.code, "nothing answers at" in nobody.err) == (4, True)
    assert "fix: is the address right" in nobody.err
    assert "is no URL of a server" in ask(cli, "localhost:8000").err
    assert cli("ask").code == 2
    assert cli("ask", "--url", "http://127.0.0.1:9", " ").code == 2
    assert "nothing runs" in cli("ask", "--engine", "process", "hello").err


def test_what_is_called_what_it_is_not(cli: CommandLine, clips: Path) -> None:
    with serve(lambda *_: say("a")) as server:
        done = ask(cli, server.address, "--video", str(clips / "picture.png"))
        assert f"fix: --image {clips}/picture.png" in done.err
        done = ask(cli, server.address, "--video", str(clips / "speech.wav"))
        assert "is sound alone" in done.err
        assert not server.chats()


def test_text_files_and_a_question_from_the_input(cli: CommandLine) -> None:
    (cli.home / "notes.txt").write_text("the cat is black")
    with serve(lambda *_: say("a")) as server:
        assert ask(cli, server.address, "--file", "notes.txt").code == 0
        assert server.chats()[0]["messages"][0]["content"] == (
            "notes.txt:\nthe cat is black\n\nWhat?"
        )


def test_usage_alone_and_no_content_is_an_answer(cli: CommandLine) -> None:
    def answer(path: str, body: dict[str, Any]) -> Iterator[str]:
        yield chunk("", "length")
        yield usage(5, 0)

    with serve(answer) as server:
        assert ask(cli, server.address).code == 0


def test_what_does_not_fit_is_cut_and_asked_in_parts(cli: CommandLine, tmp_path: Path) -> None:
    speech = make_speech(tmp_path / "s.wav")
    make_video(tmp_path / "long.mp4", 60, sound=speech)

    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        content = body["messages"][0]["content"]
        length = len(content[0]["video_url"]["url"]) // 1000 if isinstance(content, list) else 0
        if length > 900:
            words = f"Input length ({length}) exceeds model's maximum context length (900)."
            return 400, {"error": {"message": words}}
        return say("a part" if isinstance(content, list) else "the whole")

    with serve(answer) as server:
        done = ask(cli, server.address, "--video", str(tmp_path / "long.mp4"))
    assert done.code == 0, done.err
    assert "it is cut, and each part is asked" in done.err
    assert done.out.count("a part") >= 4
    assert done.out.strip().endswith("the whole")
    assert "Answer the question for the whole video: What?" in json.dumps(server.chats()[-1])


def test_a_video_of_a_site_comes_through_yt_dlp(cli: CommandLine, clips: Path) -> None:
    tool = cli.home / "bin/yt-dlp"
    tool.parent.mkdir()
    tool.write_text(
        '#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && o=$2; shift; done\n'
        f'cp {clips}/loud.mp4 "$(dirname "$o")/video.mp4"\n'
    )
    tool.chmod(0o755)
    with serve(lambda *_: say("a")) as server:
        page = f"{server.address}/health"
        server.page = "<!doctype html><p>A page</p>"
        done = ask(cli, server.address, "--video", page)
        assert (done.code, "is a page and no file" in done.err) == (1, True)
        assert "pip install yt-dlp" in done.err
        cli.environ["PATH"] = f"{tool.parent}:/usr/bin:/bin"
        assert ask(cli, server.address, "--video", page).code == 0
        assert "mm_processor_kwargs" in server.chats()[-1]


@pytest.mark.parametrize(
    "event",
    [
        {"choices": 5},
        {"choices": ["a"]},
        {"usage": "x"},
        {"usage": {"prompt_tokens": "many", "completion_tokens": 1e999}},
        {"choices": [{"delta": [1]}]},
        {"choices": [{"delta": {"content": "\ud800"}}]},
    ],
)
def test_odd_events_are_no_traceback(cli: CommandLine, event: dict[str, Any]) -> None:
    with serve(lambda *_: iter([json.dumps(event), chunk("fine", "stop"), "[DONE]"])) as server:
        done = ask(cli, server.address)
    assert (done.code, "fine" in done.out) == (0, True), done.err


def test_an_absurd_code_in_a_stream(cli: CommandLine) -> None:
    event = json.dumps({"error": {"message": "no", "code": "9" * 5000}})
    with serve(lambda *_: iter([event])) as server:
        done = ask(cli, server.address)
        assert (done.code, "the server answered 500: no" in done.err) == (1, True), done.err


def test_lines_inside_an_answer_and_an_end_without_a_reason(cli: CommandLine) -> None:
    told = "one\u2028two\u0085three"
    raw = json.dumps({"choices": [{"delta": {"content": told}}]}, ensure_ascii=False)
    with serve(lambda *_: iter([raw, "[DONE]"])) as server:
        done = ask(cli, server.address, "--json")
    assert done.json()["answer"] == told


def test_an_error_shows_no_escapes_and_no_key(cli: CommandLine) -> None:
    words = "\x1b]0;OWNED\x07 key Bearer sk-verysecret123"
    with serve(lambda *_: (500, {"error": {"message": words}})) as server:
        done = ask(cli, server.address)
    assert "\x1b" not in done.err
    assert "sk-verysecret123" not in done.err


def test_a_sound_beside_a_video_goes_without_the_flag(cli: CommandLine, clips: Path) -> None:
    files = ("--video", str(clips / "loud.mp4"), "--audio", str(clips / "speech.wav"))
    with serve(lambda path, _: places(path, audio=1) or say("a")) as server:
        done = ask(cli, server.address, *files, "--json")
    assert "mm_processor_kwargs" not in server.chats()[0]
    assert done.json()["sound"] == "dropped"  # one sound in the prompt, and two were sent


def test_a_busy_server_is_asked_again(cli: CommandLine) -> None:
    asked = 0

    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        nonlocal asked
        asked += 1
        return (429, {"error": {"message": "full"}}) if asked < 3 else say("at last")

    with serve(answer) as server:
        assert ask(cli, server.address).out == "at last \n"


def test_text_needs_none_of_the_extras(cli: CommandLine) -> None:
    (cli.home / "av.py").write_text("raise ImportError('not here')\n")
    cli.environ["PYTHONPATH"] = str(cli.home)
    with serve(lambda *_: say("a")) as server:
        assert ask(cli, server.address).code == 0
        done = ask(cli, server.address, "--image", "x.png")
        assert (done.code, "PyAV" in done.err) == (1, True)
        assert "PyAV" in cli("watch", "x.mp4", "--url", server.address).err


def test_a_question_that_is_missing_or_without_quotes(cli: CommandLine) -> None:
    assert 'stands in "quotes"' in cli("ask", "What", "is", "--engine", "process").err


def test_a_sound_alone_is_proved_too(cli: CommandLine, clips: Path) -> None:
    speech = str(clips / "speech.wav")
    heard = {"audio": 101}
    with serve(lambda path, _: places(path, **heard) or say("a")) as server:
        done = ask(cli, server.address, "--audio", speech, "--strict")
        assert (done.code, "sound in the prompt" in done.err) == (0, True)
        heard.clear()
        done = ask(cli, server.address, "--audio", speech, "--strict")
        assert (done.code, "did not enter the prompt" in done.err) == (1, True)

    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        if path == RENDER:
            return 404, {}
        loud = "audio_url" in json.dumps(body)
        return say("a", prompt=200 if loud else 100)

    with serve(answer) as server:
        strict = ask(cli, server.address, "--audio", speech, "--json", "--strict")
        assert (strict.code, strict.json()["sound"]) == (0, "heard")


def test_what_comes_at_once_has_no_speed(cli: CommandLine) -> None:
    message = {"choices": [{"message": {"content": "a b"}, "finish_reason": "stop"}]}
    counted = {"usage": {"prompt_tokens": 3, "completion_tokens": 500}}
    with serve(lambda *_: (200, message | counted)) as server:
        assert "tokens/s" not in ask(cli, server.address).err
        assert ask(cli, server.address, "--json").json()["tokens_per_s"] is None
    with serve(lambda *_: slowly(say("one two three"), 0.05)) as server:
        assert "tokens/s" in ask(cli, server.address).err


def test_a_server_that_ends_in_the_middle(cli: CommandLine) -> None:
    def end(path: str, body: dict[str, Any]) -> Iterator[str]:
        yield chunk("a")
        server.stop()

    with serve(end) as server:
        done = ask(cli, server.address)
    assert (done.code, "nothing answers there now" in done.err) == (4, True), done.err
    assert "fix: is the address right" in done.err


def test_a_limit_of_pictures_says_what_to_change(cli: CommandLine, clips: Path) -> None:
    words = "At most 2 video(s) may be provided in one prompt."
    with serve(lambda *_: (400, {"error": {"message": words}})) as server:
        done = ask(cli, server.address, *("--video", str(clips / "loud.mp4")) * 3)
    assert "the server takes 2 videos at most in a request" in done.err
    assert "limit-mm-per-prompt: {video: more than 2}" in done.err


def test_fewer_frames_begin_at_what_the_server_may_have_taken(
    cli: CommandLine, tmp_path: Path
) -> None:
    """60 s at two frames each second, 3 % too long: not a quarter of the frames is lost."""
    minute = make_video(tmp_path / "minute.mp4", 60)

    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        frames = body.get("media_io_kwargs", {}).get("video", {}).get("num_frames", 120)
        if frames * 70 > 8192:
            words = f"Input length ({frames * 70}) exceeds model's maximum context length (8192)."
            return 400, {"error": {"message": words}}
        return say("a")

    with serve(answer) as server:
        done = ask(cli, server.address, "--video", str(minute))
        assert done.code == 0, done.err
        assert server.chats()[-1]["media_io_kwargs"]["video"]["num_frames"] > 90
