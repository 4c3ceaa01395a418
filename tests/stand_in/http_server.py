"""An OpenAI-compatible server for tests, whose answers a test chooses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
Answering = Callable[[str, dict[str, Any]], "Answer | Iterator[str]"]
"""Path and body → status and JSON (or text), or the events of a stream."""


@dataclass
class StandIn:
    answering: Answering
    max_model_len: int = 8192
    models: tuple[str, ...] = ("m",)
    seen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    disconnected: threading.Event = field(default_factory=threading.Event)
    address: str = ""
    page: str = ""
    stop: Callable[[], None] = lambda: None

    def chats(self) -> list[dict[str, Any]]:
        return [body for path, body in self.seen if path == "/v1/chat/completions"]


def chunk(content: str = "", finish: str | None = None, **delta: Any) -> str:
    choice = {"index": 0, "delta": {"content": content, **delta}, "finish_reason": finish}
    return json.dumps({"choices": [choice]})


def usage(prompt: int, answer: int) -> str:
    tokens = {"prompt_tokens": prompt, "completion_tokens": answer}
    return json.dumps({"choices": [], "usage": tokens})


def say(text: str, prompt: int = 10) -> Iterator[str]:
    for word in text.split(" "):
        yield chunk(f"{word} ")
    yield chunk("", "stop")
    yield usage(prompt, len(text.split()))
    yield "[DONE]"


@contextmanager
def serve(answering: Answering, **settings: Any) -> Iterator[StandIn]:
    stand_in = StandIn(answering, **settings)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(stand_in))
    server.daemon_threads = True
    stand_in.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if not stopped:
            stopped = True
            server.shutdown()
            server.server_close()

    stand_in.stop = stop
    try:
        yield stand_in
    finally:
        stop()


def _make_handler(stand_in: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            models = [
                {"id": name, "root": "/models/x", "max_model_len": stand_in.max_model_len}
                for name in stand_in.models
            ]
            self._send(200, {"data": models} if self.path == "/v1/models" else stand_in.page)

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"]))
            body = json.loads(raw)
            stand_in.seen.append((self.path, body))
            stand_in.headers.append({k.lower(): v for k, v in self.headers.items()})
            found = stand_in.answering(self.path, body)
            if isinstance(found, tuple):
                self._send(*found)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                for event in found:
                    self.wfile.write(f"data: {event}\n\n".encode())
                    self.wfile.flush()
            except OSError:
                stand_in.disconnected.set()

        def _send(self, status: int, data: Any) -> None:
            text = data if isinstance(data, str) else json.dumps(data)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

    return Handler


def slowly(events: Iterator[str], seconds: float) -> Iterator[str]:
    for event in events:
        time.sleep(seconds)
        yield event
