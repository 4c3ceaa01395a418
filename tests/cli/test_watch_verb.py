"""`watch` with real cutting and a server whose answers are chosen: kept, resumed, joined."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CommandLine
from tests.media_files import make_speech, make_video
from tests.stand_in.http_server import Answer, chunk, say, serve, slowly


@pytest.fixture(scope="session")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("watch")
    return make_video(folder / "talk.mp4", 60, sound=make_speech(folder / "s.wav"))


def text_of(body: dict[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def start_of(body: dict[str, Any]) -> str:
    found = re.search(r"from (\S+) on", text_of(body))
    return found[1] if found else "join"


def notes(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
    if "/render" in path:
        return 200, {"features": {"mm_placeholders": {"audio": [{"length": 9}]}}}
    start = start_of(body)
    return say(
        "A summary." if start == "join" else f"# Part at {start}\n[0:03] A point.\n[0:05] B."
    )


def run(cli: CommandLine, address: str, talk: Path, *arguments: str, **options: Any) -> Any:
    out = ("--out", "notes.md", "--segment", "20s")
    return cli("watch", str(talk), "--url", address, *out, *arguments, **options)


def test_notes_of_all_parts_with_times_of_the_whole(cli: CommandLine, talk: Path) -> None:
    with serve(notes) as server:
        done = run(cli, server.address, talk, "--html", "notes.html")
    assert (done.code, done.out) == (0, "notes.md\n")
    text = (cli.home / "notes.md").read_text()
    parts = [body for body in server.chats() if start_of(body) != "join"]
    assert len(parts) == text.count("# Part at ") - 0 or len(parts) >= 4
    assert "## Summary\n\nA summary." in text
    assert text.count("A point.") == len(parts)
    times = [int(m) * 60 + int(s) for m, s in re.findall(r"\[(\d+):(\d\d)\] A point", text)]
    assert times == sorted(times)
    assert times[-1] > 40
    page = (cli.home / "notes.html").read_text()
    assert page.count("data:image/jpeg;base64,") == len(parts)
    assert 'src="http' not in page
    assert not list(cli.home.glob("*.parts"))
    assert re.search(r"part \d of \d \(0:\d\d-0:\d\d\) done; about 0:\d\d left", done.err)
    for body in parts:
        assert body["mm_processor_kwargs"] == {"use_audio_in_video": True}
        assert body["cache_salt"]


def test_a_transcript_is_subtitles(cli: CommandLine, talk: Path) -> None:
    with serve(notes) as server:
        out = ("--transcript", "--out", "t.vtt")
        assert cli("watch", str(talk), "--url", server.address, *out, "--segment", "20s").code == 0
    text = (cli.home / "t.vtt").read_text()
    assert text.startswith("WEBVTT\n")
    assert text.count("A point.") >= 4


def test_another_model_joins_and_a_file_asks(cli: CommandLine, talk: Path) -> None:
    (cli.home / "p.txt").write_text("Which colours are there?")
    with serve(notes) as server, serve(notes, models=("small",)) as other:
        summarizer = ("--summarizer", other.address)
        assert run(cli, server.address, talk, *summarizer, "--prompt", "p.txt").code == 0
    assert all("Which colours are there?" in text_of(body) for body in server.chats())
    assert [body["model"] for body in other.chats()] == ["small"]


def test_a_part_that_fails_is_told_and_asked_again_alone(cli: CommandLine, talk: Path) -> None:
    broken = True

    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        if broken and start_of(body) == "0:00" and "/render" not in path:
            return 400, {"error": {"message": "something odd"}}
        return notes(path, body)

    with serve(answer) as server:
        done = run(cli, server.address, talk)
        assert (done.code, "failed: the server answered 400: something odd" in done.err) == (
            1,
            True,
        )
        assert "*This part failed: the server answered 400" in (cli.home / "notes.md").read_text()
        asked = len(server.chats())
        broken = False
        again = run(cli, server.address, talk)
        assert again.code == 0
        assert "parts are done already" in again.err
        assert len(server.chats()) == asked + 2  # the part, and the joining
    assert "failed" not in (cli.home / "notes.md").read_text()


def test_an_answer_that_breaks_off_is_tried_again(cli: CommandLine, talk: Path) -> None:
    seen: set[str] = set()

    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        start = start_of(body)
        if "/render" not in path and start == "0:00" and start not in seen:
            seen.add(start)
            return iter(())
        return notes(path, body)

    with serve(answer) as server:
        assert run(cli, server.address, talk).code == 0
    assert seen


def test_an_interrupt_keeps_what_is_done(cli: CommandLine, talk: Path) -> None:
    first = threading.Event()

    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        events = notes(path, body)
        if isinstance(events, tuple):
            return events
        if first.is_set():
            return slowly(events, 30)
        first.set()
        return events

    with serve(answer) as server:
        arguments = (
            "watch",
            str(talk),
            "--url",
            server.address,
            "--segment",
            "20s",
            "--out",
            "n.md",
        )
        process = cli.start(*arguments)
        assert process.stderr is not None
        for line in process.stderr:
            if " done" in line:
                break
        for _ in range(4):  # Python loses an interrupt that comes in the middle of a finalizer
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=6)
                break
        _, err = process.communicate(timeout=10)
        assert process.returncode == 130
        assert "the same command goes on with the rest" in err
    assert "A point." in (cli.home / "n.md").read_text()
    assert list((cli.home / "n.md.parts").glob("part-*.json"))
    assert not list((cli.home / "n.md.parts").glob("**/*.mp4"))
    with serve(notes) as server:
        assert cli("watch", str(talk), "--url", server.address, *arguments[4:]).code == 0
    assert not (cli.home / "n.md.parts").exists()


def test_another_question_begins_anew(cli: CommandLine, talk: Path) -> None:
    folder = cli.home / "notes.md.parts"
    folder.mkdir()
    (folder / "state.json").write_text(json.dumps({"of": "another", "parts": []}))
    (folder / "part-0001.json").write_text(json.dumps({"answer": "old"}))
    with serve(notes) as server:
        done = run(cli, server.address, talk)
        assert (done.code, "1 answers in notes.md.parts are of another" in done.err) == (1, True)
        assert (folder / "part-0001.json").exists()
        assert run(cli, server.address, talk, "--force").code == 0
    assert "old" not in (cli.home / "notes.md").read_text()


def test_bad_input_is_said_before_anything_is_cut(cli: CommandLine, talk: Path) -> None:
    with serve(notes) as server:
        (cli.home / "x.mp4").write_text("hello")
        assert "is no video" in cli("watch", "x.mp4", "--url", server.address).err
        nowhere = ("--out", "/nowhere/n.md")
        done = cli("watch", str(talk), "--url", server.address, *nowhere)
        assert (done.code, "is no folder that can be written to" in done.err) == (1, True)
        assert cli("watch", str(talk), "--url", server.address, "--segment", "x").code == 2
        assert not server.chats()


def test_the_users_files_are_not_overwritten(cli: CommandLine, talk: Path) -> None:
    own = cli.home / "v.mp4"
    own.write_bytes(talk.read_bytes())
    (cli.home / "mine.md").write_text("mine")
    with serve(notes) as server:
        for out, told in {"v.mp4": "is the video itself", "mine.md": "is there already"}.items():
            done = cli("watch", "v.mp4", "--url", server.address, "--out", out)
            assert (done.code in (1, 2), told in done.err) == (True, True)
        done = cli("watch", "v.mp4", "--url", server.address, "--out", "mine.md", "--force")
        assert done.code == 0
    assert own.read_bytes() == talk.read_bytes()


def test_an_answer_that_is_cut_off_or_empty_is_told(cli: CommandLine, talk: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        if "/render" in path:
            return 404, {}
        start = start_of(body)
        if start == "0:00":
            return iter([chunk("", "length", reasoning="Hmm"), "[DONE]"])
        return iter([chunk("[0:01] a", "length"), "[DONE]"])

    with serve(answer) as server:
        done = run(cli, server.address, talk)
    assert done.code == 1
    assert "reasoning took all tokens" in done.err
    assert "are cut off: a larger --max-tokens" in done.err


def test_two_runs_on_one_output(cli: CommandLine, talk: Path) -> None:
    with serve(
        lambda path, body: (404, {}) if "/render" in path else slowly(say("a"), 3)
    ) as server:
        out = ("watch", str(talk), "--url", server.address, "--segment", "20s", "--out", "n.md")
        first = cli.start(*out)
        while not server.chats():
            time.sleep(0.05)
        second = cli(*out)
        first.terminate()
        first.communicate(timeout=20)
    assert (second.code, "another run works on" in second.err) == (1, True)


@pytest.mark.parametrize("start", ['"a"', "NaN", "1e400", "-5", "null"])
def test_a_state_that_is_damaged_begins_anew(cli: CommandLine, talk: Path, start: str) -> None:
    def dies(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        return notes(path, body) if start_of(body) == "0:00" else (400, {"error": "no"})

    with serve(dies) as server:
        assert run(cli, server.address, talk).code == 1
    state = cli.home / "notes.md.parts/state.json"
    state.write_text(re.sub(r'"start": [^,]+', f'"start": {start}', state.read_text(), count=1))
    with serve(notes) as server:
        assert run(cli, server.address, talk).code == 0


@pytest.mark.parametrize(
    "two",
    [("--notes", "--transcript"), ("--notes", "--prompt", "p"), ("--transcript", "--prompt", "p")],
)
def test_two_questions_at_once(cli: CommandLine, talk: Path, two: tuple[str, ...]) -> None:
    (cli.home / "p").write_text("What?")
    done = cli("watch", str(talk), "--url", "http://127.0.0.1:9", *two)
    assert (done.code, "are 2 questions; give one" in done.err) == (2, True), done.err


def test_a_transcript_is_written_as_its_name_says(cli: CommandLine, talk: Path) -> None:
    with serve(notes) as server:
        for name in ("t.txt", "t.md"):
            given = ("--transcript", "--out", name, "--segment", "20s", "--url", server.address)
            assert cli("watch", str(talk), *given).code == 0
            assert "[0:03] A point.\n\n[0:05] B.\n" in (cli.home / name).read_text()
        done = cli("watch", str(talk), "--transcript", "--out", "t.docx", "--url", server.address)
        assert (done.code, ".srt, .vtt, .txt, .md" in done.err) == (2, True), done.err


def test_names_that_no_file_system_takes(cli: CommandLine, talk: Path) -> None:
    url = ("--url", "http://127.0.0.1:9")
    for arguments, code in (
        ((str(talk), *url, "--out", "x" * 300 + ".md"), 1),
        ((str(talk), *url, "--out", "x" * 252 + ".md"), 1),
        ((str(talk), *url, "--html", "x" * 300), 1),
        ((str(talk), *url, "--out", ""), 2),
        ((str(talk), *url, "--html", ""), 2),
        ((f"http://127.0.0.1:9/{'a' * 300}.mp4", *url), 1),
    ):
        done = cli("watch", *arguments)
        assert (done.code, "bug" in done.err) == (code, False), done.err
    named = talk.with_name("n" * 250 + ".mp4")
    named.write_bytes(talk.read_bytes())
    with serve(notes) as server:
        done = cli("watch", str(named), "--url", server.address)
    named.unlink()
    assert done.code == 0, done.err
    assert Path(done.out.strip()).name == "n" * 60 + ".notes.md"


def test_trouble_of_one_server_is_not_the_others(cli: CommandLine, talk: Path) -> None:
    """The one that is asked is gone; the one that joins is there."""
    with serve(notes) as joiner:
        gone = ("--url", "http://127.0.0.1:9", "--summarizer", joiner.address)
        done = cli("watch", str(talk), "--out", "n.md", *gone)
    assert (done.code, "nothing answers at http://127.0.0.1:9" in done.err) == (4, True), done.err


def test_notes_that_cannot_be_joined_are_no_success(cli: CommandLine, talk: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer | Iterator[str]:
        if start_of(body) == "join" and "/render" not in path:
            return 400, {"error": {"message": "something odd"}}
        return notes(path, body)

    with serve(answer) as server:
        done = run(cli, server.address, talk)
        assert (done.code, "the notes are not joined" in done.err) == (1, True)
        assert "A point." in (cli.home / "notes.md").read_text()


def test_a_transcript_without_sound_and_a_part_of_nothing(cli: CommandLine, talk: Path) -> None:
    with serve(notes) as server:
        given = ("--url", server.address, "--transcript", "--out", "t.srt", "--no-sound")
        done = cli("watch", str(talk), *given)
        assert (done.code, "the transcript is of what is shown" in done.err) == (0, True)
        short = cli("watch", str(talk), "--url", server.address, "--segment", "1s")
        assert (short.code, "a part has 5 s at least" in short.err) == (2, True)
