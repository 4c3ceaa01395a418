"""Asks a server over HTTP. Each question has one answer type and never raises for what a server
does.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_BUSY = (429, 503)


class Probe:
    """Questions to one server. Proxies of the environment are not used: the server is local."""

    def __init__(self, endpoint: str, api_key: str = "") -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
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
        """The status code of `/health`; 0 when nothing answers."""
        try:
            return self._client.get("/health").status_code
        except (httpx.HTTPError, RuntimeError):  # RuntimeError: closed meanwhile
            return 0

    def list_models(self) -> Listed:
        """The names that `/v1/models` lists."""
        answer = self._ask("GET", "/v1/models", None, HEALTH_S)
        if isinstance(answer, str):
            return Listed(error=answer)
        if answer.status_code != httpx.codes.OK:
            return Listed(error=_describe(answer))
        try:
            return Listed(tuple(str(model["id"]) for model in answer.json()["data"]))
        except (ValueError, KeyError, TypeError):
            return Listed(error="/v1/models did not answer with a list of models")

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
        answer = self._ask("POST", "/v1/chat/completions", body, GENERATE_S)
        if not isinstance(answer, str) and _has_no_chat(answer):
            del body["messages"]
            body["prompt"] = "Hello"
            answer = self._ask("POST", "/v1/completions", body, GENERATE_S)
        if isinstance(answer, str):
            return Proof(error=answer)
        if answer.status_code != httpx.codes.OK:
            return Proof(error=_describe(answer))
        try:
            data = answer.json()
            tokens = int(data["usage"]["completion_tokens"])
            choice = data["choices"][0]
        except (ValueError, KeyError, TypeError, IndexError):
            return Proof(error="the answer has no tokens in it: " + answer.text[:200])
        if tokens < 1:
            return Proof(error="the model generated no token")
        message = choice.get("message") or {}
        text = message.get("content") or message.get("reasoning") or choice.get("text") or ""
        plural = "s" if tokens > 1 else ""
        return Proof(
            shown=f"{tokens} token{plural} in {answer.elapsed.total_seconds():.2f} s: {text!r}"
        )

    def _prove_embedding(self, model: str) -> Proof:
        answer = self._ask("POST", "/v1/embeddings", {"model": model, "input": "Hello"}, GENERATE_S)
        if isinstance(answer, str):
            return Proof(error=answer)
        if answer.status_code != httpx.codes.OK:
            return Proof(error=_describe(answer))
        try:
            size = len(answer.json()["data"][0]["embedding"])
        except (ValueError, KeyError, TypeError, IndexError):
            return Proof(error="the answer has no embedding in it: " + answer.text[:200])
        return Proof(shown=f"an embedding of {size} numbers")

    def _ask(self, method: str, path: str, body: object, timeout_s: float) -> httpx.Response | str:
        """The response, or in words why there is none. Retried only when the server was busy or the
        connection broke before an answer.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(httpx.ConnectError)
            | retry_if_result(lambda r: r.status_code in _BUSY),
            stop=stop_after_attempt(3),
            wait=wait_exponential(multiplier=0.2, max=2),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        try:
            return retrying(self._client.request, method, path, json=body, timeout=timeout)
        except httpx.TimeoutException:
            return f"{path} gave no answer within {timeout_s:g} s"
        except httpx.HTTPError as error:
            return f"{path}: {error or type(error).__name__}"
        except RuntimeError:
            return f"{path}: closed"


def _has_no_chat(answer: httpx.Response) -> bool:
    """A base model without chat template (400), or a server without that route (404)."""
    return answer.status_code == httpx.codes.NOT_FOUND or (
        answer.status_code == httpx.codes.BAD_REQUEST and "chat template" in answer.text
    )


def _describe(answer: httpx.Response) -> str:
    path = answer.request.url.path
    try:
        data = answer.json()
        error = data.get("error", data)
        text = error.get("message", str(error)) if isinstance(error, dict) else str(error)
    except ValueError:
        text = answer.text
    return f"{path} answered {answer.status_code}: {' '.join(text.split())[:300]}"
