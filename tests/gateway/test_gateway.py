"""The gateway as clients see it: a real uvicorn in front of stand-ins."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures
import json
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from spark_vllm_docker.gateway.forwarding import Backend, list_cards
from tests.conftest import CommandLine, free_port
from tests.media_files import make_speech, make_video
from tests.stand_in.http_server import Answer, StandIn, chunk, say, serve, slowly

FLAG = {"use_audio_in_video": True}


@dataclass
class Running:
    address: str
    process: subprocess.Popen[str]

    def post(
        self, body: object, path: str = "/v1/chat/completions", **headers: str
    ) -> tuple[int, Any, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.address + path, raw, {"Content-Type": "application/json", **headers}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers

    def get(self, path: str, **headers: str) -> tuple[int, str]:
        try:
            request = urllib.request.Request(self.address + path, headers=headers)
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@contextmanager
def gateway(
    cli: CommandLine, *backends: StandIn, options: tuple[str, ...] = ()
) -> Iterator[Running]:
    port = free_port()
    urls = [word for one in backends for word in ("--backend", one.address)]
    arguments = ("gateway", "--engine", "process", "--port", str(port), *urls, *options)
    process = cli.start(*arguments)
    running = Running(f"http://127.0.0.1:{port}", process)
    for _ in range(200):
        try:
            running.get("/metrics")
            break
        except OSError:
            time.sleep(0.05)
    try:
        yield running
    finally:
        process.terminate()
        try:
            process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gateway")
    make_video(folder / "loud.mp4", 3, sound=make_speech(folder / "s.wav"))
    make_video(folder / "silent.mp4", 3)
    return folder


def text(words: str = "Hi", **more: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": words}], **more}


def video(path: Path | str, *others: dict[str, object], **more: object) -> dict[str, object]:
    url = str(path)
    if isinstance(path, Path):
        url = f"data:video/mp4;base64,{base64.b64encode(path.read_bytes()).decode()}"
    part = {"type": "video_url", "video_url": {"url": url}}
    content = [part, *others, {"type": "text", "text": "What?"}]
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


def test_requests_go_where_their_model_is(cli: CommandLine) -> None:
    with (
        serve(lambda *_: (200, {"from": "one"})) as one,
        serve(lambda *_: (200, {"from": "two"}), models=("a", "b")) as two,
        gateway(cli, one, two) as running,
    ):
        names = [model["id"] for model in json.loads(running.get("/v1/models")[1])["data"]]
        assert names == ["a", "b", "m"]
        assert running.get("/health")[0] == 200
        assert running.post(text())[:2] == (200, '{"from": "one"}')
        assert running.post(text(model="b"))[:2] == (200, '{"from": "two"}')
        assert running.post(text(), "/v1/embeddings")[0] == 200
        status, body, _ = running.post(text(model="bb"))
        assert (status, "there is no model 'bb'" in body) == (404, True)
        assert running.post(text(), "/v1/other")[0] == 404
        assert one.headers[0]["content-type"] == "application/json"


def test_what_servers_say_of_their_models_is_handed_on(cli: CommandLine) -> None:
    with (
        serve(lambda *_: say("a"), max_model_len=4096) as one,
        serve(lambda *_: say("b"), models=("n",)) as two,
        gateway(cli, one, two) as running,
    ):
        cards = json.loads(running.get("/v1/models")[1])["data"]
        assert [(c["id"], c["max_model_len"], c["owned_by"]) for c in cards] == [
            ("m", 4096, one.address),
            ("n", 8192, two.address),
        ]


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("no"),
        {"data": 5},
        {"data": [{"x": 1}]},
        [],
        "<html>",
        '{"data":' + "[" * 200_000,
        '{"data": [' + " " * (1 << 20) + "]}",
    ],
)
def test_a_server_that_says_nothing_of_its_models(answer: object) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return httpx.Response(200, text=text)

    async def ask() -> dict[str, Any]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
            return await list_cards(client, Backend("n", "http://a", ("m",)))

    assert asyncio.run(ask()) == {}


@pytest.mark.parametrize(
    "card", ['"x": NaN', '"root": "\\ud800"', '"max_model_len": 1e400', '"created": true, "x": []']
)
def test_of_a_card_only_what_is_right_is_handed_on(card: str) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text=f'{{"data": [{{"id": "m", {card}}}]}}')

    async def ask() -> dict[str, Any]:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond)) as client:
            return await list_cards(client, Backend("n", "http://a", ("m",)))

    json.dumps(asyncio.run(ask())["m"], allow_nan=False).encode()


class _Drip(BaseHTTPRequestHandler):
    """A list of models, and then one that does not end."""

    drips = threading.Event()

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        if not self.drips.is_set():
            self.wfile.write(b'{"data": [{"id": "m\\u001b]0;x"}, {"id": "m"}]}')
            return
        with suppress(OSError):
            for _ in range(40):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.5)


def test_a_server_that_drips_holds_nobody_up(cli: CommandLine) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Drip)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_address[1]}"
    try:
        with gateway(cli, StandIn(lambda *_: (200, {}), address=f"http://u:secret@{address}")) as g:
            _Drip.drips.set()
            began = time.monotonic()
            status, listed = g.get("/v1/models")
            assert time.monotonic() - began < 8
            assert status == 200
            assert "secret" not in listed
            g.process.terminate()
            _, told = g.process.communicate(timeout=30)
            assert f"m  at http://{address}" in told
            assert "secret" not in told
            assert "\x1b" not in told
    finally:
        server.shutdown()
        server.server_close()


def test_a_client_that_knows_nothing_of_the_flag_is_heard(cli: CommandLine, clips: Path) -> None:
    with serve(lambda *_: (200, {})) as server, gateway(cli, server) as running:
        loud, silent = clips / "loud.mp4", clips / "silent.mp4"
        assert running.post(video(loud))[2]["x-spark-recipe-sound"] == "added"
        body = server.chats()[-1]
        assert body["mm_processor_kwargs"] == FLAG
        assert len(body["cache_salt"]) == 32
        assert body["messages"] == video(loud)["messages"]

        assert running.post(video(silent))[2]["x-spark-recipe-sound"] == "none"
        assert "mm_processor_kwargs" not in server.chats()[-1]

        running.post(video(loud, mm_processor_kwargs={"fps": 2}))
        assert server.chats()[-1]["mm_processor_kwargs"] == {"fps": 2, **FLAG}

        kept = {"use_audio_in_video": False}
        running.post(video(loud, mm_processor_kwargs=kept, cache_salt="mine"))
        assert server.chats()[-1]["mm_processor_kwargs"] == kept
        assert server.chats()[-1]["cache_salt"] == "mine"

        picture: dict[str, object] = {
            "type": "image_url",
            "image_url": {"url": "data:image/png;base64,AAAA"},
        }
        headers = running.post(video(loud, picture))[2]
        assert headers["x-spark-recipe-sound"].startswith("left out: there is a picture")
        assert "mm_processor_kwargs" not in server.chats()[-1]
        asked = len(server.chats())
        status, body_text, _ = running.post(video(loud, picture, mm_processor_kwargs=FLAG))
        assert (status, "end the engine of some models" in body_text) == (400, True)
        assert len(server.chats()) == asked


def test_a_video_behind_a_url_is_asked_without_the_flag_when_it_is_silent(cli: CommandLine) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        if "mm_processor_kwargs" in body:
            return 400, {"error": {"message": "Invalid or unsupported audio file."}}
        return 200, {"ok": 1}

    with serve(answer) as server, gateway(cli, server) as running:
        status, _, headers = running.post(video("http://127.0.0.1:9/x.mp4"))
        assert (status, headers["x-spark-recipe-sound"]) == (200, "none")


def test_a_refusal_comes_back_as_it_is(cli: CommandLine, clips: Path) -> None:
    error = {"error": {"message": "Input length (9) exceeds"}}
    with serve(lambda *_: (400, error)) as server, gateway(cli, server) as running:
        for body in (text(), video(clips / "loud.mp4")):
            status, found, _ = running.post(body)
            assert (status, json.loads(found)) == (400, error)


def test_a_stream_is_not_buffered(cli: CommandLine) -> None:
    with (
        serve(lambda *_: slowly(say("one two three"), 0.3)) as server,
        gateway(cli, server) as running,
    ):
        client = openai.OpenAI(base_url=f"{running.address}/v1", api_key="none")
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        times = [time.monotonic() for _ in stream]
        assert len(times) >= 4
        assert times[2] - times[0] > 0.4


def test_a_client_that_goes_away_ends_the_servers_work(cli: CommandLine) -> None:
    def endless(path: str, body: dict[str, Any]) -> Iterator[str]:
        while True:
            time.sleep(0.05)
            yield chunk("a")

    with serve(endless) as server, gateway(cli, server) as running:
        client = openai.OpenAI(base_url=f"{running.address}/v1", api_key="none")
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x"}], stream=True
        )
        next(iter(stream))
        stream.close()
        client.close()
        assert server.disconnected.wait(5)


def test_a_full_queue_is_told_and_text_goes_on(cli: CommandLine, clips: Path) -> None:
    release = threading.Event()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        if isinstance(body["messages"][0]["content"], list):
            release.wait(20)
        return 200, {}

    options = ("--media-at-once", "1", "--media-queue", "1")
    with (
        serve(answer) as server,
        gateway(cli, server, options=options) as running,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        first = [pool.submit(running.post, video(clips / "loud.mp4")) for _ in range(2)]
        for _ in range(100):
            if 'waiting{lane="media",model="m"} 1.0' in running.get("/metrics")[1]:
                break
            time.sleep(0.05)
        status, body, headers = running.post(video(clips / "silent.mp4"))
        assert (status, int(headers["retry-after"]) >= 1) == (429, True)
        assert "media requests to m wait already" in body
        assert running.post(text())[0] == 200
        assert len(server.chats()) == 2  # one video at the server, and the text
        release.set()
        assert [future.result()[0] for future in first] == [200, 200]
        metrics = running.get("/metrics")[1]
        assert 'requests_total{lane="media",model="m",status="429",tenant=""} 1.0' in metrics
        assert 'requests_total{lane="text",model="m",status="200",tenant=""} 1.0' in metrics
        assert 'video_sound_total{model="m",sound="added"} 2.0' in metrics


def test_who_leaves_the_queue_makes_room(cli: CommandLine, clips: Path) -> None:
    release = threading.Event()

    def answer(path: str, body: dict[str, Any]) -> Answer:
        release.wait(20)
        return 200, {}

    options = ("--media-at-once", "1", "--media-queue", "1")
    with (
        serve(answer) as server,
        gateway(cli, server, options=options) as running,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        pool.submit(running.post, video(clips / "silent.mp4"))
        while not server.chats():
            time.sleep(0.05)
        client = openai.OpenAI(
            base_url=f"{running.address}/v1", api_key="n", timeout=0.5, max_retries=0
        )
        body = video(clips / "silent.mp4")
        with pytest.raises(openai.APITimeoutError):
            client.chat.completions.create(**body)  # type: ignore[call-overload]
        client.close()
        time.sleep(0.3)
        waits = pool.submit(running.post, video(clips / "silent.mp4"))
        time.sleep(0.3)
        release.set()
        assert waits.result()[0] == 200


def test_keys_by_tenant(cli: CommandLine) -> None:
    (cli.home / "keys.yaml").write_text(
        "tenants:\n  video: {key: video-key-1, models: [m]}\n  all: {key: other-key-2}\n"
    )
    options = ("--keys", "keys.yaml")
    with (
        serve(lambda *_: (200, {}), models=("m", "n")) as server,
        gateway(cli, server, options=options) as running,
    ):
        video_key, all_key = (
            {"Authorization": f"Bearer {k}"} for k in ("video-key-1", "other-key-2")
        )
        assert running.post(text())[0] == 401
        assert running.post(text(), Authorization="Bearer wrong-key")[0] == 401
        assert running.post(text(), **video_key)[0] == 200
        assert running.post(text(model="n"), **video_key)[0] == 404
        assert running.post(text(model="n"), **all_key)[0] == 200
        listed = json.loads(running.get("/v1/models", **video_key)[1])["data"]
        assert [model["id"] for model in listed] == ["m"]
        assert running.get("/v1/models")[0] == 401
        assert "authorization" not in server.headers[0]  # a tenant's key is not the server's


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "expected tenants:"),
        ("tenants: {a: {key: short}}", "tenants.a.key: expected a text of at least 8"),
        ("tenants: {a: {kye: longenough}}", "expected key and models"),
        ("tenants: {a: {key: longenough}, b: {key: longenough}}", "two tenants have the same key"),
        ("tenants: {a: {key: longenough, models: m}}", "models: expected a list"),
        ("a: [", "is no YAML"),
    ],
)
def test_a_file_of_keys_that_is_wrong(cli: CommandLine, content: str, told: str) -> None:
    (cli.home / "keys.yaml").write_text(content)
    done = cli("gateway", "--keys", "keys.yaml", "--engine", "process")
    assert (done.code, told in done.err) == (1, True), done.err


def test_a_server_that_breaks_off(cli: CommandLine) -> None:
    def breaks(path: str, body: dict[str, Any]) -> Iterator[str]:
        yield chunk("a")
        raise OSError

    with serve(breaks) as server, gateway(cli, server) as running:
        status, body, _ = running.post(text(stream=True))
        assert (status, '"a"' in body) == (200, True)


def test_a_server_that_is_gone(cli: CommandLine) -> None:
    with serve(lambda *_: say("a")) as server, gateway(cli, server) as running:
        assert running.post(text())[0] == 200
        server.stop()
        status, body, _ = running.post(text())
        assert (status, "does not answer" in body) == (503, True)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{not json", b'{"model": 3}', b'{"model": null}', b"\xff\xfe{}"]
)
def test_bodies_that_are_no_requests(cli: CommandLine, raw: bytes) -> None:
    with serve(lambda *_: (200, {})) as server, gateway(cli, server) as running:
        assert running.post(raw)[0] in (400, 404)
        assert running.post({"model": "m", "messages": "odd"})[0] == 200
        assert (
            running.post({"model": "m", "messages": [{"content": [{"type": "video_url"}]}]})[0]
            == 200
        )


def test_what_runs_is_finished_when_it_is_told_to_stop(cli: CommandLine) -> None:
    with (
        serve(lambda *_: slowly(say("one two three four"), 0.3)) as server,
        gateway(cli, server) as running,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(running.post, text(stream=True))
        while not server.chats():
            time.sleep(0.05)
        running.process.terminate()
        status, body, _ = answer.result()
        assert (status, "[DONE]" in body) == (200, True)
        assert running.process.wait(timeout=10) == 0


def test_an_address_for_others_gets_a_key(cli: CommandLine) -> None:
    port = free_port()
    process = cli.start(
        "gateway", "--engine", "process", "--listen", "0.0.0.0", "--port", str(port)
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("api key")
    process.terminate()
    process.communicate(timeout=10)


def test_a_port_that_is_taken(cli: CommandLine) -> None:
    with serve(lambda *_: (200, {})) as server:
        port = server.address.rpartition(":")[2]
        done = cli("gateway", "--engine", "process", "--port", port)
        assert (done.code, f"port {port} is taken" in done.err) == (4, True)


def test_what_was_added_never_breaks_what_works_without(cli: CommandLine, clips: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Answer:
        if "mm_processor_kwargs" in body:
            return 400, {"error": {"message": "At most 0 audio(s) may be provided in one prompt."}}
        return 200, {"ok": 1}

    with serve(answer) as server, gateway(cli, server) as running:
        status, _, headers = running.post(video(clips / "loud.mp4"))
        assert (status, headers["x-spark-recipe-sound"]) == (200, "left out: the server refused it")
        sound: dict[str, object] = {
            "type": "input_audio",
            "input_audio": {"data": "", "format": "wav"},
        }
        headers = running.post(video(clips / "loud.mp4", sound))[2]
        assert headers["x-spark-recipe-sound"] == "left out: there is a sound beside the video"


def test_parts_without_a_type_are_seen(cli: CommandLine) -> None:
    parts = [{"video_url": {"url": "http://x/a.mp4"}}, {"image_url": {"url": "http://x/a.png"}}]
    body = {"model": "m", "messages": [{"content": parts}], "mm_processor_kwargs": FLAG}
    with serve(lambda *_: (200, {})) as server, gateway(cli, server) as running:
        assert running.post(body)[0] == 400


def test_salts_follow_the_content(cli: CommandLine, clips: Path) -> None:
    with serve(lambda *_: (200, {})) as server, gateway(cli, server) as running:
        small = base64.b64encode(b"x" * 100).decode()
        bodies = [
            video("http://127.0.0.1:9/a.mp4"),
            video("http://127.0.0.1:9/b.mp4"),
            video(f"data:video/mp4;base64,{small}", mm_processor_kwargs=FLAG),
            video(clips / "loud.mp4"),
            video(clips / "loud.mp4"),
        ]
        for body in bodies:
            running.post(body)
        salts = [body["cache_salt"] for body in server.chats()]
        assert len(set(salts)) == 4
        assert salts[-1] == salts[-2]


def test_a_connection_that_the_server_closed_is_not_the_next_clients_fault(
    cli: CommandLine,
) -> None:
    calls = 0

    def answer(path: str, body: dict[str, Any]) -> Answer:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionAbortedError  # closed without a word
        return 200, {}

    with serve(answer) as server, gateway(cli, server) as running:
        assert [running.post(text())[0] for _ in range(3)] == [200, 200, 200]


def test_odd_headers_many_strings_and_trailing_blanks(cli: CommandLine, clips: Path) -> None:
    with serve(lambda *_: (200, {})) as server, gateway(cli, server) as running:
        assert running.post(text(), **{"User-Agent": "caf\xe9"})[0] == 200
        assert running.post(b'{"model": "m", "a": [' + b'"",' * 2_000_000 + b'""]}')[0] == 400
        padded = json.dumps(video(clips / "loud.mp4")).encode() + b" " * 600_000
        assert running.post(padded)[0] == 200
        assert server.chats()[-1]["mm_processor_kwargs"] == FLAG
        assert running.post(text(model=[1] * 100_000))[0] == 400
        assert running.get("/v1/nope")[0] == 404


def test_a_backend_that_is_no_address(cli: CommandLine) -> None:
    done = cli("gateway", "--engine", "process", "--backend", "foo", "--port", str(free_port()))
    assert (done.code, "foo is no URL of a server" in done.err) == (1, True)


def read_start(process: subprocess.Popen[str], lines: int) -> str:
    assert process.stderr is not None
    return "".join(process.stderr.readline() for _ in range(lines))


def stop(process: subprocess.Popen[str]) -> int:
    process.terminate()
    process.communicate(timeout=20)
    return process.returncode


def test_what_is_behind_it_is_said_at_the_start(cli: CommandLine) -> None:
    port = str(free_port())
    with serve(lambda *_: say("a")) as server:
        backend = ("--backend", server.address)
        process = cli.start("gateway", "--engine", "process", "--port", port, *backend)
        assert f"m  at {server.address}" in read_start(process, 2)
        assert stop(process) == 0
    process = cli.start("gateway", "--engine", "process", "--port", port)
    assert "no server answers yet" in read_start(process, 2)
    assert stop(process) == 0
    cli.environ["DOCKER_HOST"] = "unix:///nowhere.sock"
    process = cli.start("gateway", "--port", port)
    told = read_start(process, 4)
    assert "behind the gateway is nothing, until it does" in told, told
    assert "\nfix: " in told
    assert stop(process) == 0


def test_our_own_ask_decides_of_the_sound(cli: CommandLine, clips: Path) -> None:
    def answer(path: str, body: dict[str, Any]) -> Any:
        if path.endswith("/render"):
            return 404, {}
        return say("a", prompt=200 if "mm_processor_kwargs" in body else 100)

    loud = ("What?", "--video", str(clips / "loud.mp4"))
    with serve(answer) as server, gateway(cli, server) as running:
        strict = cli("ask", "--url", running.address, *loud, "--strict", "--json")
        assert (strict.code, strict.json()["sound"]) == (0, "heard"), strict.err
        silent = cli("ask", "--url", running.address, *loud, "--no-sound", "--json")
        assert silent.json()["prompt_tokens"] == 100


def test_another_method_of_a_path(cli: CommandLine) -> None:
    with serve(lambda *_: (200, {})) as server, gateway(cli, server) as running:
        status, told = running.get("/v1/chat/completions")
        assert (status, "takes POST alone" in told) == (405, True)
        assert "/v1/models, /health, /metrics" in running.get("/v1/nothing")[1]
        assert running.post({}, "/health")[0] == 405
