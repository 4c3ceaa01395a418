"""One request on its way: its place in a lane, the server's answer as it comes, and its end when
the client goes away.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.types import Receive, Scope, Send

from spark_vllm_docker.gateway.body import RequestBody
from spark_vllm_docker.gateway.lanes import Lane, LaneFull
from spark_vllm_docker.gateway.media_requests import Addition
from spark_vllm_docker.gateway.metrics import Metrics
from spark_vllm_docker.media.chat import SOUND_HEADER, is_closed_connection
from spark_vllm_docker.media.refusals import NO_SOUND, explain_refusal

_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"content-length", b"te"}
_PASSED = ("accept", "content-type", "x-request-id", "user-agent")
_MOST_REFUSAL = 1 << 20
CARDS_S = 2.0
_MOST_CARDS, _LONGEST_ROOT = 1 << 20, 512
CLOSED = 499
"""The client went away; as nginx counts it."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A server, and what must be known of it; `name` is shown to clients."""

    name: str
    address: str
    models: tuple[str, ...]
    api_key: str = ""
    takes_kwargs: bool | None = None


@dataclass(slots=True)
class Job:
    """What is forwarded, and where it waits. `labels` are model and lane."""

    backend: Backend
    path: str
    headers: dict[str, str]
    body: RequestBody
    addition: Addition
    lane: Lane
    labels: tuple[str, str]
    tenant: str


async def list_cards(client: httpx.AsyncClient, backend: Backend) -> dict[str, dict[str, Any]]:
    """What a server says of its models that clients use, by name; of one that does not answer soon,
    or not as it should, nothing.
    """
    key = {"authorization": f"Bearer {backend.api_key}"} if backend.api_key else {}
    raw = b""
    try:
        async with (
            asyncio.timeout(CARDS_S),
            client.stream("GET", f"{backend.address}/v1/models", headers=key) as answer,
        ):
            async for piece in answer.aiter_bytes():
                raw += piece
                if len(raw) > _MOST_CARDS:
                    return {}
        return {str(card["id"]): _read_card(card) for card in json.loads(raw)["data"]}
    except (httpx.HTTPError, TimeoutError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _read_card(card: Mapping[str, Any]) -> dict[str, Any]:
    """Of what a server says of a model, what is of the right kind; anything may stand there."""
    found: dict[str, Any] = {}
    for key in ("created", "max_model_len"):
        if isinstance(card.get(key), int) and 0 <= card[key] < 1 << 53:
            found[key] = int(card[key])
    root = card.get("root")
    if isinstance(root, str) and root.isprintable() and len(root) <= _LONGEST_ROOT:
        found["root"] = root
    return found


def describe_error(status: int, message: str) -> dict[str, object]:
    """An error as OpenAI's clients read it."""
    return {"error": {"message": message, "code": status}}


def pass_headers(given: Iterable[tuple[bytes, bytes]], backend: Backend) -> dict[str, str]:
    """Those of a client that a server gets; the key is the server's own, and what it answers is
    not packed, because it is passed on as it comes.
    """
    kept = {
        name.decode("latin-1"): value.decode("latin-1").encode("ascii", "replace").decode()
        for name, value in given
        if name.decode("latin-1") in _PASSED
    }
    if backend.api_key:
        kept["authorization"] = f"Bearer {backend.api_key}"
    return {**kept, "accept-encoding": "identity"}


class Forwarded:
    """An ASGI response: sends the job to its server and the answer to the client."""

    def __init__(self, job: Job, client: httpx.AsyncClient, metrics: Metrics) -> None:
        self._job, self._client, self._metrics = job, client, metrics
        self._began = False
        self._status = CLOSED

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the answer ends or the client goes away, which ends the server's work too."""
        work = asyncio.create_task(self._work(send))
        gone = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()
            with suppress(asyncio.CancelledError):
                await work
        finally:
            work.cancel()
            gone.cancel()
            self._job.body.close()
            labels = (*self._job.labels, self._job.tenant, str(self._status))
            self._metrics.requests.labels(*labels).inc()
            self._gauge()

    async def _work(self, send: Send) -> None:
        job = self._job
        try:
            self._gauge()
            async with job.lane.place() as waited:
                self._metrics.waited.labels(*job.labels).observe(waited)
                await self._forward(send)
        except LaneFull as full:
            words = f"{job.labels[1]} requests to {job.labels[0]} wait already; try again later"
            await self._refuse(send, 429, words, {"retry-after": str(full.retry_s)})
        except httpx.ConnectError:
            await self._refuse(send, 503, f"{job.backend.name} does not answer")
        except httpx.HTTPError as error:
            what = str(error) or type(error).__name__
            await self._refuse(send, 502, f"{job.backend.name} broke off: {what}")

    def _gauge(self) -> None:
        self._metrics.running.labels(*self._job.labels).set(self._job.lane.running)
        self._metrics.waiting.labels(*self._job.labels).set(self._job.lane.waiting)

    async def _forward(self, send: Send) -> None:
        self._gauge()
        job = self._job
        added, sound = job.addition.keys, job.addition.sound
        began = time.monotonic()
        response = await self._open(added)
        try:
            if response.status_code == httpx.codes.BAD_REQUEST and sound == "added":
                # What was added must not break what would work without it.
                refusal = await response.aread()
                await response.aclose()
                sound = "none" if _is_no_sound(refusal) else "left out: the server refused it"
                response = await self._open({})
            self._metrics.first.labels(*job.labels).observe(time.monotonic() - began)
            if sound:
                self._metrics.sound.labels(job.labels[0], sound.partition(":")[0]).inc()
            await self._pass(response, send, sound)
        finally:
            await response.aclose()

    async def _open(self, added: dict[str, Any]) -> httpx.Response:
        """Once more on a new connection when the kept one turns out to be closed: uvicorn closes it
        after an error of the application, which may have been another client's.
        """
        try:
            return await self._send(added)
        except httpx.RemoteProtocolError as error:
            if not is_closed_connection(error):
                raise
            return await self._send(added)

    async def _send(self, added: dict[str, Any]) -> httpx.Response:
        job = self._job
        request = self._client.build_request(
            "POST",
            f"{job.backend.address}{job.path}",
            headers={**job.headers, "content-length": str(job.body.length_with(added))},
            content=job.body.read_async(added),
        )
        return await self._client.send(request, stream=True)

    async def _pass(self, response: httpx.Response, send: Send, sound: str) -> None:
        if response.is_redirect:
            await self._refuse(send, 502, f"{self._job.backend.name} redirects")
            return
        headers = [(k.lower(), v) for k, v in response.headers.raw if k.lower() not in _HOP]
        if sound:
            headers.append((SOUND_HEADER.encode(), sound.encode("ascii", "replace")))
        self._began, self._status = True, response.status_code
        start = {"type": "http.response.start", "status": self._status, "headers": headers}
        await send(start)
        if response.is_stream_consumed:
            await send({"type": "http.response.body", "body": response.content})
            return
        try:
            async for piece in response.aiter_raw():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx.HTTPError:
            if b"text/event-stream" not in dict(headers).get(b"content-type", b""):
                raise
            error = describe_error(502, f"{self._job.backend.name} broke off")
            piece = f"data: {json.dumps(error)}\n\n".encode()
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._status = 502
        await send({"type": "http.response.body", "body": b""})

    async def _refuse(
        self, send: Send, status: int, message: str, headers: dict[str, str] | None = None
    ) -> None:
        if self._began:  # too late for a status: the connection's end tells
            raise ConnectionError(message)
        self._status = status
        body = json.dumps(describe_error(status, message)).encode()
        raw = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        raw += [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _is_no_sound(refusal: bytes) -> bool:
    text = refusal[:_MOST_REFUSAL].decode("utf-8", "replace")
    return explain_refusal(400, text).kind == NO_SOUND
