"""Asks a server over HTTP. Whatever it answers, and however slowly, is an answer, no exception."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import httpx
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    retry_if_result,
    stop_after_attempt,
    stop_after_delay,
)

from spark_vllm_docker.health.answers import Answer, Listed, Proof, Wanted
from spark_vllm_docker.health.canaries import judge_metrics, run_canaries

CONNECT_S = 2.0
HEALTH_S = 5.0
# On a CPU the first generation may compile a kernel for more than half a minute.
GENERATE_S = 180.0
BUSY_S = 20.0
MAX_BODY_BYTES = 64 << 20
_BUSY = (429, 503)


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
        if answer.status != httpx.codes.OK:
            return Listed(error=answer.words)
        names = answer.read(lambda data: tuple(str(model["id"]) for model in data["data"]))
        if names is None:
            return Listed(error="/v1/models did not answer with a list of models")
        return Listed(names)

    def prove(self, model: str, tasks: Sequence[str] = (), wanted: Wanted | None = None) -> Proof:
        """Let the model do a little of all that the recipe promises; without `wanted`, of text.

        `tasks` are those of vLLM's log line "Supported tasks"; empty means not known.
        """
        canaries = tuple(run_canaries(self.ask, model, tasks, wanted or Wanted()))
        if any(canary.failed for canary in canaries):
            return Proof(canaries)
        metrics = self._ask("GET", "/metrics", None, HEALTH_S)
        counted = judge_metrics(metrics.text) if isinstance(metrics, Answer) else None
        return Proof((*canaries, counted) if counted else canaries)

    def ask(self, path: str, body: dict[str, Any]) -> Answer | str:
        """The answer to a generation, whatever its status; in words why there is none."""
        return self._ask("POST", path, body, GENERATE_S)

    def _ask(self, method: str, path: str, body: object, limit_s: float) -> Answer | str:
        """Retried only when the server was busy, as long as it asks for, or when the connection
        broke before an answer.
        """
        retrying = Retrying(
            retry=retry_if_exception_type(httpx.ConnectError)
            | retry_if_result(lambda answer: answer.status in _BUSY),
            stop=stop_after_attempt(5) | stop_after_delay(BUSY_S),
            wait=_wait_as_asked,
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        try:
            answer: Answer = retrying(self._send, method, path, body, limit_s)
        except (httpx.TimeoutException, TimeoutError):
            return f"{path} gave no whole answer within {limit_s:g} s"
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"{path}: {error or type(error).__name__}"
        except RuntimeError:
            return f"{path}: closed"
        return answer

    def _send(self, method: str, path: str, body: object, limit_s: float) -> Answer:
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
        seconds = time.monotonic() - began
        asked = response.headers.get("retry-after", "")
        retry_s = float(asked) if asked.isdecimal() and len(asked) < 4 else 0.0
        return Answer(path, response.status_code, b"".join(parts), seconds, retry_s)


def _wait_as_asked(state: RetryCallState) -> float:
    """Seconds before the next try: those of Retry-After, at most ten, else 0.2, 0.4, 0.8, …"""
    outcome = state.outcome
    answer = None if outcome is None or outcome.failed else outcome.result()
    asked = answer.retry_s if isinstance(answer, Answer) else 0.0
    return float(min(asked, 10.0) or 0.1 * 2**state.attempt_number)
