"""The API of a server as a client sees it: models, the prompt of a request, a streamed answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay

from spark_vllm_docker.errors import RequestRefused
from spark_vllm_docker.media.refusals import BROKE, NOBODY, TOO_LATE, explain_refusal
from spark_vllm_docker.media.request import Body

CONNECT_S = 5.0
ANSWER_S = 900.0
"""The longest silence: a video of minutes is read and put into the prompt before the first word."""
RENDER_S = 180.0
BUSY_S = 300.0
"""How long a busy server is asked again."""
MOST_RENDERED_BYTES = 64 << 20
FASTEST = 5000.0
"""Tokens per second; no single stream comes faster (2026): what seems to was held back on the way.
"""
SHORTEST_S = 0.02
"""A rate of less time than this says nothing."""
SOUND_HEADER, SOUND_DECIDED = "x-spark-recipe-sound", "decided"
_BUSY = (429, 503)
_STATUS = re.compile(r"[1-5]\d\d", re.ASCII)
_Found = TypeVar("_Found")
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
        """Of the answer, from its first token on; 0 where that cannot be told, as when all of it
        came at once.
        """
        after = self.wall_s - self.first_s
        if self.answer_tokens < 2 or after < SHORTEST_S:
            return 0.0
        rate = (self.answer_tokens - 1) / after
        return rate if rate <= FASTEST else 0.0


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

    def list_models(self, limit_s: float = 30.0) -> list[Listed]:
        """The models of `/v1/models`.

        Raises:
            RequestRefused: it does not answer, or not with such a list.
        """
        with self._errors():
            timeout = httpx.Timeout(limit_s, connect=CONNECT_S)
            with self._client.stream("GET", "/v1/models", timeout=timeout) as response:
                raw = _read_some(response, limit_s=limit_s)
            if response.status_code not in (httpx.codes.OK, httpx.codes.NOT_FOUND):
                raise explain_refusal(response.status_code, raw.decode("utf-8", "replace"))
            listed = _look_into(
                raw,
                lambda data: [
                    Listed(str(m["id"]), str(m.get("root") or ""), _count(m.get("max_model_len")))
                    for m in data["data"]
                ],
            )
            if listed is None:
                raise RequestRefused(
                    f"{self.address}/v1/models does not answer with a list of models",
                    hint="is it the address of an OpenAI-compatible server?",
                )
            return listed

    def render(self, body: Body) -> dict[str, list[int]] | None:
        """Tokens in the prompt by modality and item, as `/v1/chat/completions/render` tells without
        generating anything; None for every answer but 200: the route is off (403), or not there
        (404), or the server refuses what the question itself will be refused for.

        Raises:
            RequestRefused: it cannot be reached.
        """
        try:
            with self._errors():
                response = self._send("/v1/chat/completions/render", body, limit_s=RENDER_S)
                try:
                    if response.status_code != httpx.codes.OK:
                        return None
                    raw = _read_some(response, MOST_RENDERED_BYTES)
                finally:
                    response.close()
        except RequestRefused as refused:
            if refused.kind == TOO_LATE:
                return None  # the question itself may be answered
            raise

        def look(data: Any) -> dict[str, list[int]]:
            places = (data.get("features") or {}).get("mm_placeholders") or {}
            return {
                str(kind): [_count(place["length"]) for place in found]
                for kind, found in places.items()
            }

        return _look_into(raw, look)

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
                raise explain_refusal(response.status_code, _read_text(response))
            for data in _events(response):
                if error := data.get("error"):
                    code = str(error.get("code", "")) if isinstance(error, dict) else ""
                    status = int(code) if _STATUS.fullmatch(code) else 500
                    raise explain_refusal(status, json.dumps(data))
                usage = data["usage"] if isinstance(data.get("usage"), dict) else usage
                finish = "stop" if data.get("done") and not finish else finish
                for choice in _choices(data):
                    delta = choice.get("delta") or choice.get("message") or {}
                    finish = choice.get("finish_reason") or finish
                    for kind, text in _read_delta(delta):
                        first = first or time.monotonic() - began
                        kinds[kind].append(text)
                        hear(kind, text)
            if not finish:
                raise RequestRefused("the server broke off in the middle of its answer", kind=BROKE)
        wall = time.monotonic() - began
        return Reply(
            "".join(kinds["content"]),
            "".join(kinds["reasoning"]),
            str(finish),
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            first or wall,
            wall,
        )

    def _send(self, path: str, body: Body, *, limit_s: float = ANSWER_S) -> httpx.Response:
        """Once more on a new connection when the kept one turns out to be closed: uvicorn closes it
        after an error of the application.
        """

        def send() -> httpx.Response:
            request = self._client.build_request(
                "POST",
                path,
                content=iter(body),
                headers=_headers(body),
                timeout=httpx.Timeout(limit_s, connect=CONNECT_S),
            )
            return self._client.send(request, stream=True)

        try:
            return send()
        except httpx.RemoteProtocolError as error:
            if not is_closed_connection(error):
                raise
            return send()

    @contextmanager
    def _open(self, path: str, body: Body) -> Iterator[httpx.Response]:
        """A streamed response; a busy server is asked again."""
        for attempt in Retrying(
            stop=stop_after_delay(BUSY_S),
            wait=_wait_as_asked,
            retry=retry_if_exception(lambda error: isinstance(error, _Busy)),
            reraise=True,
        ):
            with attempt:
                response = self._send(path, body)
                if response.status_code in _BUSY:
                    text, asked = _read_text(response), response.headers.get("retry-after", "")
                    response.close()
                    raise _Busy(explain_refusal(response.status_code, text), asked)
        try:
            yield response
        finally:
            response.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Every error of this server is a `RequestRefused` with its address."""
        try:
            with self._as_refusals():
                yield
        except RequestRefused as refused:
            refused.address = self.address
            raise

    @contextmanager
    def _as_refusals(self) -> Iterator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise RequestRefused(f"nothing answers at {self.address}", kind=NOBODY) from error
        except httpx.TimeoutException as error:
            told = f"{self.address} did not answer in time"
            raise RequestRefused(told, kind=TOO_LATE) from error
        except RuntimeError as error:  # closed by another thread
            raise RequestRefused("the connection was closed here") from error
        except httpx.LocalProtocolError as error:
            raise RequestRefused(f"a file changed while it was sent ({error})") from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            what = str(error) or type(error).__name__
            told = f"the connection to {self.address} broke: {what}"
            raise RequestRefused(told, kind=BROKE) from error


def is_closed_connection(error: httpx.RemoteProtocolError) -> bool:
    """Whether a kept connection was closed by the server before it answered anything."""
    return "without sending a response" in str(error)


class _Busy(RequestRefused):
    """429 or 503; `retry_s` is when the server wants to be asked again."""

    def __init__(self, refused: RequestRefused, asked: str) -> None:
        super().__init__(f"the server is busy: {refused.message}", status=refused.status)
        self.retry_s = float(asked) if asked.isdecimal() and len(asked) < 4 else 0.0


def _wait_as_asked(state: RetryCallState) -> float:
    """Seconds: those of Retry-After, at most a minute, else 0.5, 1, 2, … up to 10."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_s if isinstance(error, _Busy) else 0.0
    return float(min(asked, 60.0) or min(10.0, 0.25 * 2**state.attempt_number))


def _headers(body: Body) -> dict[str, str]:
    """With a word to our gateway: what is asked here knows of sound, nothing is to be added."""
    length = {"Content-Length": str(body.length)}
    return {"Content-Type": "application/json", SOUND_HEADER: SOUND_DECIDED, **length}


def _read_some(response: httpx.Response, most: int = _MAX_BODY, limit_s: float = ANSWER_S) -> bytes:
    """The beginning of a body; a drip of bytes takes too long in all."""
    found, end = b"", time.monotonic() + limit_s
    for part in response.iter_bytes():
        found += part
        if len(found) > most:
            break
        if time.monotonic() > end:
            raise httpx.ReadTimeout("the body does not end", request=response.request)
    return found


def _read_text(response: httpx.Response) -> str:
    return _read_some(response).decode("utf-8", "replace")


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The data of server-sent events, the last one as `{"done": true}`; of an answer that is one
    JSON document, that one.
    """
    if "json" in response.headers.get("content-type", ""):
        yield _parse(_read_text(response))
        return
    data: list[str] = []
    for line in _lines(response):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif not line and data:
            text, data = "\n".join(data), []
            if text.strip() == "[DONE]":
                yield {"done": True}
                return
            yield _parse(text)
    if data:
        yield {"done": True} if data == ["[DONE]"] else _parse("\n".join(data))


def _lines(response: httpx.Response) -> Iterator[str]:
    """Lines end at line feeds alone: other separators of Unicode may stand inside JSON."""
    rest = b""
    for chunk in response.iter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_LINE:
            raise RequestRefused("the server sends a line without an end")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")
    if rest:
        yield rest.decode("utf-8", "replace")
    yield ""


def _parse(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the server answers garbage: {text[:80]!r}") from error
    return data if isinstance(data, dict) else {}


def _choices(data: dict[str, Any]) -> list[dict[str, Any]]:
    found = data.get("choices")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _look_into(raw: bytes, look: Callable[[Any], _Found]) -> _Found | None:
    """What `look` finds in JSON; None when that is of another shape."""
    try:
        return look(json.loads(raw))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _count(value: object) -> int:
    """A number of tokens; 0 for what is none."""
    if isinstance(value, (int, float)) and 0 <= value < 1 << 53:
        return int(value)
    return 0


def _read_delta(delta: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(delta, dict):
        return
    for key in ("reasoning", "reasoning_content"):
        if delta.get(key):
            yield "reasoning", _clean(delta[key])
            break
    if delta.get("content"):
        yield "content", _clean(delta["content"])


def _clean(text: object) -> str:
    """Without halves of characters, which no file takes."""
    return str(text).encode("utf-8", "replace").decode()
