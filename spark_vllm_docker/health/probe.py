"""Asks a server over HTTP. Whatever it answers, and however slowly, is an answer, no exception."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from tenacity import (
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    wait_exponential,
)

from spark_vllm_docker.health.answers import Listed, Proof

CONNECT_S = 2.0
HEALTH_S = 5.0
# On a CPU the first generation may compile a kernel for more than half a minute.
GENERATE_S = 180.0
MAX_BODY_BYTES = 4 << 20
_BUSY = (429, 503)
# What reading a foreign body can run into: it is not JSON, or JSON of another shape.
_OTHER_SHAPE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response that was read to its end; `seconds` is the time until then."""

    path: str
    status: int
    body: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class Probe:
    """Questions to one server. Proxies of the environment are not used: the server is local."""

    def __init__(self, endpoint: str, api_key: str = "") -> None:
        headers = [(b"Authorization", f"Bearer {api_key}".encode())] if api_key else []
        self._client = httpx.Client(
            base_url=endpoint,
            headers=headers,
            timeout=httpx.Timeout(HEALTH_S, connect=CONNECT_S),
            trust_env=False,
            verify=endpoint.startswith("https:"),
        )

    def close(self) -> None:
        """Close the connections; a question under way ends with an error."""
        self._client.close()

    def health(self) -> int:
        """The status code of `/health`; 0 when nothing answers. Its body is not read."""
        try:
            with self._client.stream("GET", "/health") as response:
                return response.status_code
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError):  # RuntimeError: closed meanwhile
            return 0

    def list_models(self) -> Listed:
        """The names that `/v1/models` lists."""
        answer = self._ask("GET", "/v1/models", None, HEALTH_S)
        if isinstance(answer, str):
            return Listed(error=answer)
        names = _read(answer, lambda data: tuple(str(model["id"]) for model in data["data"]))
        if names is None:
            return Listed(error="/v1/models did not answer with a list of models")
        return Listed(names)

    def prove(self, model: str, tasks: Sequence[str] = ()) -> Proof:
        """Let the model do a little of what it is for: answer, or embed when it cannot generate.

        `tasks` are those of vLLM's log line "Supported tasks"; empty means not known.
        """
        if not tasks or "generate" in tasks:
            return self._prove_generation(model)
        if "embed" in tasks:
            return self._prove_embedding(model)
        return Proof(shown=f"not asked: no short question is known for {', '.join(tasks)}")

    def _prove_generation(self, model: str) -> Proof:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 4,
            "temperature": 0,
        }
        answer = self._ask("POST", "/v1/chat/completions", body, GENERATE_S, _has_no_chat)
        if answer is None:
            del body["messages"]
            body["prompt"] = "Hello"
            answer = self._ask("POST", "/v1/completions", body, GENERATE_S)
        if isinstance(answer, str):
            return Proof(error=answer)
        found = _read(answer, _read_generation)
        if found is None:
            return Proof(error=f"the answer has no tokens in it: {answer.text[:200]}")
        tokens, text = found
        if tokens < 1:
            return Proof(error="the model generated no token")
        plural = "s" if tokens > 1 else ""
        return Proof(shown=f"{tokens} token{plural} in {answer.seconds:.2f} s: {text[:80]!r}")

    def _prove_embedding(self, model: str) -> Proof:
        body = {"model": model, "input": "Hello"}
        answer = self._ask("POST", "/v1/embeddings", body, GENERATE_S)
        if isinstance(answer, str):
            return Proof(error=answer)
        size = _read(answer, lambda data: len(data["data"][0]["embedding"]))
        if size is None:
            return Proof(error=f"the answer has no embedding in it: {answer.text[:200]}")
        return Proof(shown=f"an embedding of {size} numbers")

    def _ask(
        self,
        method: str,
        path: str,
        body: object,
        limit_s: float,
        is_other: Callable[[_Answer], bool] = lambda _: False,
    ) -> Any:
        """The answer, when its status is 200; None when `is_other` says so; else in words why not.

        Retried only when the server was busy or the connection broke before an answer.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(httpx.ConnectError)
            | retry_if_result(lambda answer: answer.status in _BUSY),
            stop=stop_after_attempt(3),
            wait=wait_exponential(multiplier=0.2, max=2),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        try:
            answer: _Answer = retrying(self._send, method, path, body, limit_s)
        except (httpx.TimeoutException, TimeoutError):
            return f"{path} gave no whole answer within {limit_s:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{path}: {error or type(error).__name__}"
        except RuntimeError:
            return f"{path}: closed"
        if answer.status == httpx.codes.OK:
            return answer
        return None if is_other(answer) else _describe(answer)

    def _send(self, method: str, path: str, body: object, limit_s: float) -> _Answer:
        """Read the response within the limit and up to a size: a drip of bytes is no answer."""
        began = time.monotonic()
        timeout = httpx.Timeout(limit_s, connect=CONNECT_S)
        parts: list[bytes] = []
        size = 0
        with self._client.stream(method, path, json=body, timeout=timeout) as response:
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if time.monotonic() - began > limit_s:
                    raise TimeoutError
                if size > MAX_BODY_BYTES:
                    break
        return _Answer(path, response.status_code, b"".join(parts), time.monotonic() - began)


def _read(answer: _Answer, look: Callable[[Any], Any]) -> Any:
    """What `look` finds in the JSON of an answer; None when that has another shape."""
    try:
        return look(json.loads(answer.body))
    except _OTHER_SHAPE:
        return None


def _read_generation(data: Any) -> tuple[int, str]:
    choice = data["choices"][0]
    message = choice.get("message") or {}
    text = message.get("content") or message.get("reasoning") or choice.get("text") or ""
    return int(data["usage"]["completion_tokens"]), str(text)


def _has_no_chat(answer: _Answer) -> bool:
    """A base model without chat template (400), or a server without that route (404)."""
    return answer.status == httpx.codes.NOT_FOUND or (
        answer.status == httpx.codes.BAD_REQUEST and "chat template" in answer.text
    )


def _describe(answer: _Answer) -> str:
    error = _read(answer, lambda data: data.get("error", data))
    text = error.get("message") if isinstance(error, dict) else error
    words = " ".join(str(text or answer.text).split())
    return f"{answer.path} answered {answer.status}: {words[:300]}"
