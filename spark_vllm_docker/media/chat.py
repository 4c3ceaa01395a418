"""The API of a server as a client sees it: models, the prompt of a request, a streamed answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from spark_vllm_docker.errors import RequestRefused
from spark_vllm_docker.media.refusals import explain_refusal
from spark_vllm_docker.media.request import Body

CONNECT_S = 5.0
ANSWER_S = 900.0
"""The longest silence: a video of minutes is read and put into the prompt before the first word."""
_BUSY = (429, 503)
_MAX_LINE = 4 << 20
_MAX_BODY = 1 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that a server lists; `root` is what it was loaded from, `max_model_len` 0 if it does
    not say.
    """

    name: str
    root: str = ""
    max_model_len: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer. Tokens are 0 where the server does not count; times in seconds."""

    content: str
    reasoning: str
    finish: str
    prompt_tokens: int
    answer_tokens: int
    first_s: float
    wall_s: float

    @property
    def tokens_per_s(self) -> float:
        """Of the answer, from its first token on."""
        after = self.wall_s - self.first_s
        return (self.answer_tokens - 1) / after if self.answer_tokens > 1 and after > 0 else 0.0


Hear = Callable[[str, str], None]
"""Is given every piece of an answer: `content` or `reasoning`, and the text."""


class ChatServer:
    """One OpenAI-compatible server. Proxies of the environment are not used for this machine."""

    def __init__(self, address: str, api_key: str = "") -> None:
        base = address.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            host = httpx.URL(base).host
        except httpx.InvalidURL as error:
            raise RequestRefused(f"{address} is no URL: {error}") from error
        if not base.startswith(("http://", "https://")) or not host:
            raise RequestRefused(f"{address} is no URL of a server: http://HOST:PORT/v1")
        self.address = base
        self._client = httpx.Client(
            base_url=base,
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=host not in ("127.0.0.1", "localhost", "::1"),
        )

    def close(self) -> None:
        """End all connections; the server stops what it generates for them."""
        self._client.close()

    def list_models(self) -> list[Listed]:
        """The models of `/v1/models`.

        Raises:
            RequestRefused: it does not answer, or not with such a list.
        """
        with self._errors():
            response = self._client.get("/v1/models", timeout=httpx.Timeout(30, connect=CONNECT_S))
            if response.status_code not in (httpx.codes.OK, httpx.codes.NOT_FOUND):
                raise explain_refusal(response.status_code, response.text[:_MAX_BODY])
            try:
                return [
                    Listed(
                        str(model["id"]),
                        str(model.get("root") or ""),
                        int(model.get("max_model_len") or 0),
                    )
                    for model in response.json()["data"]
                ]
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise RequestRefused(
                    f"{self.address}/v1/models does not answer with a list of models",
                    hint="is it the address of an OpenAI-compatible server?",
                ) from error

    def render(self, body: Body) -> dict[str, list[int]] | None:
        """Tokens in the prompt by modality and item, as `/v1/chat/completions/render` tells without
        generating anything; None for every answer but 200: the route is off (403), or not there
        (404), or the server refuses what the question itself will be refused for.

        Raises:
            RequestRefused: it cannot be reached.
        """
        with self._errors():
            response = self._send("/v1/chat/completions/render", body)
            if response.status_code != httpx.codes.OK:
                return None
            try:
                places = (response.json().get("features") or {}).get("mm_placeholders") or {}
                return {
                    str(kind): [int(place["length"]) for place in found]
                    for kind, found in places.items()
                }
            except (ValueError, LookupError, TypeError, AttributeError):
                return None

    def stream(self, body: Body, hear: Hear) -> Reply:
        """Send a question and hand on the answer while it comes.

        Raises:
            RequestRefused: the server refuses it, breaks off, or says an error in the middle.
        """
        began = time.monotonic()
        kinds: dict[str, list[str]] = {"content": [], "reasoning": []}
        finish, first = "", 0.0
        usage: dict[str, Any] = {}
        with self._errors(), self._open("/v1/chat/completions", body) as response:
            if response.status_code != httpx.codes.OK:
                raise explain_refusal(response.status_code, _read_some(response))
            for data in _events(response):
                if error := data.get("error"):
                    code = error.get("code", 500) if isinstance(error, dict) else 500
                    raise explain_refusal(int(code) if str(code).isdecimal() else 500, str(data))
                usage = data.get("usage") or usage
                for choice in data.get("choices") or ():
                    delta = choice.get("delta") or choice.get("message") or {}
                    finish = choice.get("finish_reason") or finish
                    for kind, text in _read_delta(delta):
                        first = first or time.monotonic() - began
                        kinds[kind].append(text)
                        hear(kind, text)
        if not finish:
            raise RequestRefused("the server broke off in the middle of its answer")
        wall = time.monotonic() - began
        return Reply(
            "".join(kinds["content"]),
            "".join(kinds["reasoning"]),
            str(finish),
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
            first or wall,
            wall,
        )

    def _send(self, path: str, body: Body, *, stream: bool = False) -> httpx.Response:
        """Once more on a new connection when the kept one turns out to be closed: uvicorn closes it
        after an error of the application.
        """
        for last in (False, True):
            request = self._client.build_request(
                "POST", path, content=iter(body), headers=_headers(body)
            )
            try:
                return self._client.send(request, stream=stream)
            except httpx.RemoteProtocolError as error:
                if last or "without sending a response" not in str(error):
                    raise
        raise AssertionError

    @contextmanager
    def _open(self, path: str, body: Body) -> Iterator[httpx.Response]:
        """A streamed response; a busy server is asked again."""
        for attempt in Retrying(
            stop=stop_after_attempt(6),
            wait=wait_exponential(multiplier=0.5, max=10),
            retry=retry_if_exception(lambda error: isinstance(error, _Busy)),
            reraise=True,
        ):
            with attempt:
                response = self._send(path, body, stream=True)
                if response.status_code in _BUSY:
                    text = _read_some(response)
                    response.close()
                    raise _Busy(f"the server is busy ({text[:100]})", status=response.status_code)
        try:
            yield response
        finally:
            response.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise RequestRefused(
                f"nothing answers at {self.address}", hint="spark-recipe ps shows what runs"
            ) from error
        except httpx.TimeoutException as error:
            raise RequestRefused(f"{self.address} did not answer in time") from error
        except RuntimeError as error:  # closed by another thread
            raise RequestRefused("the connection was closed here") from error
        except httpx.LocalProtocolError as error:
            raise RequestRefused(f"a file changed while it was sent ({error})") from error
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            what = str(error) or type(error).__name__
            raise RequestRefused(f"the connection to {self.address} broke: {what}") from error


class _Busy(RequestRefused):
    """429 or 503."""


def _headers(body: Body) -> dict[str, str]:
    return {"Content-Type": "application/json", "Content-Length": str(body.length)}


def _read_some(response: httpx.Response) -> str:
    found = b""
    for part in response.iter_bytes():
        found += part
        if len(found) > _MAX_BODY:
            break
    return found.decode("utf-8", "replace")


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The data of server-sent events; of an answer that is one JSON document, that one."""
    if "json" in response.headers.get("content-type", ""):
        text = _read_some(response)
        yield _parse(text)
        return
    for line in response.iter_lines():
        text = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if not text or len(text) > _MAX_LINE:
            continue
        if text == "[DONE]":
            return
        yield _parse(text)


def _parse(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the server answers garbage: {text[:80]!r}") from error
    return data if isinstance(data, dict) else {}


def _read_delta(delta: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(delta, dict):
        return
    for key in ("reasoning", "reasoning_content"):
        if delta.get(key):
            yield "reasoning", str(delta[key])
            break
    if delta.get("content"):
        yield "content", str(delta["content"])
