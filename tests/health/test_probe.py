"""The probe against a real HTTP server that answers as vLLM does (recorded answers where there are)."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from spark_vllm_docker.health.answers import Listed
from spark_vllm_docker.health.probe import Probe

Answer = tuple[int, object]


@pytest.fixture
def serve() -> Iterator[Callable[[dict[str, list[Answer]]], tuple[str, list[Any]]]]:
    servers: list[ThreadingHTTPServer] = []

    def start(answers: dict[str, list[Answer]]) -> tuple[str, list[Any]]:
        seen: list[Any] = []

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                size = int(self.headers.get("Content-Length", 0))
                body = json.loads(self.rfile.read(size)) if size else None
                seen.append((self.path, body, self.headers.get("Authorization")))
                queue = answers.get(self.path, [(404, {"detail": "Not Found"})])
                status, data = queue.pop(0) if len(queue) > 1 else queue[0]
                text = data if isinstance(data, str) else json.dumps(data)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = handle_any  # noqa: N815

            def log_message(self, form: str, *arguments: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", seen

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


CHAT = "/v1/chat/completions"
GOOD = {"choices": [{"message": {"content": "Hi"}}], "usage": {"completion_tokens": 2}}
REASONING = {
    "choices": [{"message": {"content": None, "reasoning": "Hm"}}],
    "usage": {"completion_tokens": 4},
}
NO_TEMPLATE = {
    "error": {
        "message": "default chat template is no longer allowed, so you must provide a chat template"
    }
}


def test_a_good_server(serve: Any) -> None:
    endpoint, seen = serve(
        {
            "/health": [(200, "")],
            "/v1/models": [(200, {"data": [{"id": "m"}]})],
            CHAT: [(200, GOOD)],
        }
    )
    probe = Probe(endpoint, "sk-1")
    assert probe.health() == 200
    assert probe.list_models() == Listed(("m",))
    proof = probe.prove("m", ("generate",))
    probe.close()
    assert proof.shown.startswith("2 tokens in 0.0")
    assert proof.shown.endswith("s: 'Hi'")
    assert all(authorization == "Bearer sk-1" for _, _, authorization in seen)


@pytest.mark.parametrize(
    ("answers", "shown", "error"),
    [
        ({CHAT: [(200, REASONING)]}, "'Hm'", ""),
        (
            {
                CHAT: [(400, NO_TEMPLATE)],
                "/v1/completions": [
                    (200, {"choices": [{"text": "x"}], "usage": {"completion_tokens": 1}})
                ],
            },
            "1 token in",
            "",
        ),
        ({CHAT: [(503, {}), (200, GOOD)]}, "'Hi'", ""),
        ({CHAT: [(503, {})]}, "", "answered 503"),
        ({CHAT: [(429, {}), (429, {}), (200, GOOD)]}, "'Hi'", ""),
        (
            {CHAT: [(401, {"error": "Unauthorized"})]},
            "",
            "/v1/chat/completions answered 401: Unauthorized",
        ),
        (
            {CHAT: [(500, {"error": {"message": "EngineCore encountered an issue."}})]},
            "",
            "answered 500: EngineCore encountered",
        ),
        ({CHAT: [(200, "not json")]}, "", "no tokens in it: not json"),
        ({CHAT: [(200, {"choices": []})]}, "", "no tokens in it"),
        ({CHAT: [(200, {**GOOD, "usage": {"completion_tokens": 0}})]}, "", "generated no token"),
        ({CHAT: [(400, {"error": {"message": "other"}})]}, "", "answered 400: other"),
    ],
)
def test_generation(serve: Any, answers: dict[str, list[Answer]], shown: str, error: str) -> None:
    endpoint, _ = serve(answers)
    probe = Probe(endpoint)
    proof = probe.prove("m")
    probe.close()
    assert shown in proof.shown
    assert error in proof.error
    assert bool(proof.shown) is not bool(proof.error)


@pytest.mark.parametrize(
    "body",
    [
        "[1]", '{"error":{"message":null}}', "[" * 200_000, '{"choices":["x"]}', '{"choices":[{"message":"x"}]}',
        '{"choices":[{"message":{}}],"usage":{"completion_tokens":Infinity}}', "\x00\xff", "null", "5",
    ],
)  # fmt: skip
@pytest.mark.parametrize("status", [200, 500])
def test_any_body_is_an_answer(serve: Any, body: str, status: int) -> None:
    endpoint, _ = serve({"/v1/models": [(status, body)], CHAT: [(status, body)]})
    probe = Probe(endpoint, "sk-ä")
    assert probe.list_models().error
    assert probe.prove("m").error
    probe.close()


def test_a_drip_of_bytes_is_no_answer(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:

        def drip() -> None:
            with contextlib.suppress(OSError):
                client, _ = server.accept()
                with client:
                    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    for _ in range(100):
                        client.sendall(b"x")
                        time.sleep(0.2)

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        probe = Probe(f"http://127.0.0.1:{port}")
        began = time.monotonic()
        assert probe.health() == 200  # its body does not matter
        assert time.monotonic() - began < 2
        probe.close()
        thread.join(timeout=30)


def test_an_embedding_model_is_asked_for_an_embedding(serve: Any) -> None:
    endpoint, seen = serve({"/v1/embeddings": [(200, {"data": [{"embedding": [0.5] * 8}]})]})
    probe = Probe(endpoint)
    assert probe.prove("m", ("embed",)).shown == "embed: an embedding of 8 numbers"
    assert probe.prove("m", ("transcription",)).shown.startswith("tasks: not asked")
    probe.close()
    assert [path for path, _, _ in seen if path != "/metrics"] == ["/v1/embeddings"]


@pytest.mark.parametrize("data", ["<html>", {"data": 5}, [], {"data": [{}]}])
def test_a_foreign_server_lists_no_models(serve: Any, data: object) -> None:
    endpoint, _ = serve({"/v1/models": [(200, data)]})
    probe = Probe(endpoint)
    assert "did not answer with a list" in probe.list_models().error
    probe.close()


def test_nobody_there(port: int) -> None:
    probe = Probe(f"http://127.0.0.1:{port}")
    assert probe.health() == 0
    assert "/v1/models" in probe.list_models().error
    probe.close()
    assert probe.health() == 0  # closed


def test_proxies_of_the_environment_are_not_used(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, _ = serve({"/health": [(200, "")]})
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    probe = Probe(endpoint)
    assert probe.health() == 200
    probe.close()
