"""The one rule of cleaning up after `up`.

What was made here and is not proven yet is removed when `up` ends by Ctrl-C or by an error of the
engine. A server that ran and failed stays with its log until `down`. `keep` suspends the rule for
Ctrl-C.
"""

from __future__ import annotations

import signal
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from spark_vllm_docker.engine.protocol import Engine
from spark_vllm_docker.errors import SparkRecipeError
from spark_vllm_docker.events import Emit, Note
from spark_vllm_docker.render.deployment import Deployment

# A server that is still loading has nothing to save, and vLLM may swallow SIGTERM meanwhile.
STOP_LOADING_S = 2.0


class Cleaning:
    """A context around the steps of `up`; `begin`, `started` and `release` tell it how far they
    are.
    """

    def __init__(self, engine: Engine, deployment: Deployment, emit: Emit, *, keep: bool) -> None:
        self._engine = engine
        self._deployment = deployment
        self._emit = emit
        self._keep = keep
        self._made = False
        self._ran = False

    def begin(self) -> None:
        """From here on a container of that name and spec is one that we made."""
        self._made = True

    def started(self) -> None:
        """The server runs: an error of its own is no reason to remove it any more."""
        self._ran = True

    def release(self) -> None:
        """The server is proven, or nobody wants to wait for it: it stays."""
        self._made = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._made or error is None:
            return
        interrupted = not isinstance(error, Exception)
        if interrupted and self._keep:
            self._emit(Note(f"kept: {self._deployment.spec.name} goes on loading"))
        elif interrupted or not self._ran:
            self._remove()

    def _remove(self) -> None:
        """Look it up by name: an interrupted `create` may not have told us its id."""
        name, digest = self._deployment.spec.name, self._deployment.spec.digest()
        with _without_interrupts(), suppress(SparkRecipeError):
            found = self._engine.find(name)
            if found is None or found.spec_digest != digest:
                return
            if self._ran:
                self._emit(Note(f"stopping {name}"))
            self._engine.stop(found.id, STOP_LOADING_S)
            self._engine.remove(found.id)


class _without_interrupts:  # noqa: N801 - reads as a function in a with statement
    """A second Ctrl-C must not leave half a clean-up behind. It lasts seconds, not minutes."""

    def __enter__(self) -> None:
        self._before = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, signal.SIG_IGN)

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
