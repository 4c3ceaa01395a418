"""The gateway's application: `/v1/…` by model, `/v1/models`, `/health`, `/metrics`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import httpx
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spark_vllm_docker.findings import did_you_mean
from spark_vllm_docker.gateway.body import BadBody, RequestBody
from spark_vllm_docker.gateway.forwarding import (
    Backend,
    Forwarded,
    Job,
    describe_error,
    list_cards,
    pass_headers,
)
from spark_vllm_docker.gateway.lanes import Lane, LaneLimits
from spark_vllm_docker.gateway.media_requests import MIXED, Addition, complete, read_contents
from spark_vllm_docker.gateway.metrics import Metrics
from spark_vllm_docker.gateway.tenants import Tenant, find_tenant
from spark_vllm_docker.media.chat import SOUND_DECIDED, SOUND_HEADER

PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/score",
    "/v1/rerank",
)
ASKED = ("/v1/models", "/health", "/metrics")
REFRESH_S = 3.0
CONNECT_S, SILENCE_S = 5.0, 900.0
MOST_NAME = 512
TEXT, MEDIA = "text", "media"
Discover = Callable[[], Sequence[Backend]]


@dataclass(frozen=True, slots=True)
class Limits:
    """Of the two lanes that each server has, and of a body."""

    text: LaneLimits
    media: LaneLimits
    body_bytes: int = 4 << 30


class Gateway:
    """State and handlers. `discover` looks for servers and may take its time; it runs in a
    thread. `found` is what it has found at the start.
    """

    def __init__(
        self,
        discover: Discover,
        limits: Limits,
        tenants: tuple[Tenant, ...] = (),
        found: Sequence[Backend] = (),
    ) -> None:
        self._discover, self._tenants = discover, tenants
        self._limits = limits
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._backends = _by_model(found)
        self._looked = time.monotonic()
        self._looking = asyncio.Lock()
        self._metrics = Metrics()
        self._client = httpx.AsyncClient(
            timeout=httpx.Timeout(SILENCE_S, connect=CONNECT_S),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
            trust_env=False,
        )

    def build(self) -> Starlette:
        """The ASGI application."""
        routes = [Route(path, self.forward, methods=["POST"]) for path in PATHS]
        routes += [
            Route("/v1/models", self.list_models),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/{path:path}", self.refuse, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        return Starlette(routes=routes, lifespan=self._live)

    async def forward(self, request: Request) -> Response | Forwarded:
        """Any request with a model."""
        tenant, refused = self._authorize(request)
        if refused is not None:
            return refused
        body = RequestBody()
        answer: Response | Forwarded | None = None
        try:
            answer = await self._route(request, body, tenant)
        except BadBody as error:
            answer = _error(400, str(error))
        except OSError:
            answer = _error(507, "there is no room here for the request")
        except ClientDisconnect:
            answer = Response(status_code=400)
        finally:
            if not isinstance(answer, Forwarded):  # which closes it when all is sent
                body.close()
        return answer

    async def list_models(self, request: Request) -> Response:
        """The models of all servers that a tenant may use."""
        tenant, refused = self._authorize(request)
        if refused is not None:
            return refused
        await self._look(max_age_s=REFRESH_S)
        mine = {
            model: backend
            for model, backend in sorted(self._backends.items())
            if tenant is None or tenant.may_use(model)
        }
        servers = list({backend.address: backend for backend in mine.values()}.values())
        told = await asyncio.gather(*(list_cards(self._client, one) for one in servers))
        cards = {one.address: found for one, found in zip(servers, told, strict=True)}
        data = [
            {**cards[backend.address].get(model, {}), "id": model, "object": "model"}
            | {"owned_by": backend.name}
            for model, backend in mine.items()
        ]
        return JSONResponse({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        """200 when there is a server behind it."""
        await self._look(max_age_s=REFRESH_S)
        return Response(status_code=200 if self._backends else 503)

    async def metrics(self, request: Request) -> Response:
        """Prometheus' text."""
        return Response(self._metrics.write(), media_type="text/plain; version=0.0.4")

    async def refuse(self, request: Request) -> Response:
        """Any other path, or another method of one that there is."""
        path = request.url.path
        if path in PATHS or path in ASKED:
            method = "POST" if path in PATHS else "GET"
            return _error(405, f"{path} takes {method} alone", {"allow": method})
        there = ", ".join((*PATHS, *ASKED))
        return _error(404, f"there is no {path} here; there are: {there}")

    async def _route(
        self, request: Request, body: RequestBody, tenant: Tenant | None
    ) -> Response | Forwarded:
        async for chunk in request.stream():
            body.feed(chunk)
            if body.length > self._limits.body_bytes:
                return _error(413, "the request is too large")
        # A thread costs a short request more than what it would do there.
        data = body.parse() if body.is_short else await run_in_threadpool(body.parse)
        model = data.get("model")
        if not isinstance(model, str) or len(model) > MOST_NAME:
            return _error(400, "the request names no model")
        backend = await self._find(model)
        if backend is None or (tenant is not None and not tenant.may_use(model)):
            names = [m for m in self._backends if tenant is None or tenant.may_use(m)]
            there = f"there are: {', '.join(names)}" if names else "there is none"
            hint = did_you_mean(model, names).removeprefix("; ")
            return _error(404, f"there is no model {model!r}; {hint or there}")
        contents = read_contents(data)
        if contents.flagged and contents.images and contents.videos:
            return _error(400, MIXED)
        addition = Addition()
        if contents.videos and request.headers.get(SOUND_HEADER) != SOUND_DECIDED:
            facts = (data, contents, body, backend.takes_kwargs)
            addition = await run_in_threadpool(complete, *facts)
        kind = MEDIA if contents.is_media else TEXT
        job = Job(
            backend,
            request.url.path,
            pass_headers(request.headers.raw, backend),
            body,
            addition,
            self._lane(backend, kind),
            (model, kind),
            tenant.name if tenant else "",
        )
        return Forwarded(job, self._client, self._metrics)

    def _lane(self, backend: Backend, kind: str) -> Lane:
        limits = self._limits.media if kind == MEDIA else self._limits.text
        return self._lanes.setdefault((backend.address, kind), Lane(limits))

    def _authorize(self, request: Request) -> tuple[Tenant | None, Response | None]:
        if not self._tenants:
            return None, None
        found = find_tenant(self._tenants, request.headers.get("authorization", ""))
        if found is None:
            return None, _error(401, "no key, or not one that is known here")
        return found, None

    async def _find(self, model: str) -> Backend | None:
        if model not in self._backends:
            await self._look(max_age_s=1.0)
        return self._backends.get(model)

    async def _look(self, max_age_s: float) -> None:
        async with self._looking:
            if time.monotonic() - self._looked < max_age_s:
                return
            found = await run_in_threadpool(self._discover)
            self._backends = _by_model(found)
            self._looked = time.monotonic()

    @asynccontextmanager
    async def _live(self, app: Starlette) -> AsyncIterator[None]:
        keeping = asyncio.create_task(self._keep_looking())
        try:
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping
            await self._client.aclose()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            with suppress(Exception):  # the next look may do better
                await self._look(max_age_s=REFRESH_S / 2)


def _by_model(backends: Sequence[Backend]) -> dict[str, Backend]:
    """Of two servers with one model, the first."""
    return {model: one for one in reversed(backends) for model in one.models}


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(describe_error(status, message), status_code=status, headers=headers)
