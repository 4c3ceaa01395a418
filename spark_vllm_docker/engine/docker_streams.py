"""docker-py's streams (log chunks, events) as streams that another thread may close."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import docker
import docker.errors

from spark_vllm_docker.engine.docker_errors import engine_errors
from spark_vllm_docker.engine.protocol import Deployed, Exit
from spark_vllm_docker.errors import SparkRecipeError

_END = ("die", "died")  # Docker's word and Podman's
_STOP_SIGNALS = ("2", "15")  # of `docker stop`; SIGKILL alone is no orderly stop


class Items:
    """A stream of docker-py (log chunks, events) whose end by `close` is an end, not an error."""

    def __init__(
        self, stream: Any, address: str, last_line: Callable[[], bytes] | None = None
    ) -> None:
        self._stream = stream
        self._address = address
        self._last_line = last_line
        self._closed = False

    def __iter__(self) -> Generator[Any]:
        chunk: Any = b""
        try:
            with engine_errors(self._address):
                for chunk in self._stream:
                    yield chunk
                if self._last_line is not None and not self._closed:
                    yield from self._read_unfinished(chunk)
        except SparkRecipeError:
            if not self._closed:
                raise
        finally:
            self.close()
            self._release()

    def _read_unfinished(self, last_chunk: bytes) -> Iterator[bytes]:
        """A last line without its line end, which the engine (20.10) does not give to followers."""
        line = self._last_line() if self._last_line is not None else b""
        if line and not line.endswith(b"\n") and not last_chunk.endswith(line):
            yield line

    def close(self) -> None:
        self._closed = True
        with suppress(OSError, docker.errors.DockerException, AttributeError):
            self._stream.close()

    def _release(self) -> None:
        """Give the connection back; only where it is read, and after the reading has ended."""
        response = getattr(self._stream, "_response", None)
        if response is not None:
            with suppress(OSError, AttributeError):
                response.close()


class ExitEvents:
    """Waits for the `die` event of one container."""

    def __init__(
        self,
        inspect: Callable[[str], Deployed],
        client: docker.DockerClient,
        container_id: str,
        address: str,
    ) -> None:
        self._inspect = inspect
        self._container_id = container_id
        filters = {"container": container_id, "event": [*_END, "kill"]}
        with engine_errors(address):
            events = client.events(filters=filters, decode=True)
        self._events = Items(events, address)
        # Subscribed first, asked second: an end in between is not missed.
        try:
            self._now = inspect(container_id)
        except SparkRecipeError:
            self.close()
            raise

    def __iter__(self) -> Iterator[Exit]:
        now = self._now
        try:
            if now.state == "running":
                events = iter(self._events)
                stopped = False
                for event in events:
                    if event["Action"] in _END:
                        now = self._inspect(self._container_id)
                        break
                    stopped |= event["Actor"]["Attributes"].get("signal") in _STOP_SIGNALS
                events.close()
                if now.exit is not None:
                    now = replace(now, exit=replace(now.exit, stopped=stopped))
        finally:
            self.close()
        if now.exit is not None:
            yield now.exit

    def close(self) -> None:
        self._events.close()
