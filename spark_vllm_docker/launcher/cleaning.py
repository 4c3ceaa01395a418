"""The one rule of cleaning up after `up`.

What was made here and is not proven yet is removed when `up` ends by Ctrl-C, by an error of the
engine before the server ran, or because nobody reads its screen any more. A server that ran and
failed stays with its log until `down`. `keep` suspends the rule for Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from spark_vllm_docker.engine.protocol import Engine
from spark_vllm_docker.errors import SparkRecipeError
from spark_vllm_docker.events import Emit, Note
from spark_vllm_docker.render.spec import LABEL, ContainerSpec

# A server that is still loading has nothing to save, and vLLM may swallow SIGTERM meanwhile.
STOP_LOADING_S = 2.0
_LAUNCH = f"{LABEL}.launch"


class Cleaning:
    """A context around `up`; `mark`, `started` and `release` tell it how far the steps are."""

    def __init__(self, engine: Engine, name: str, emit: Emit, *, keep: bool) -> None:
        self._engine = engine
        self._name = name
        self._emit = emit
        self._keep = keep
        self._launch = os.urandom(8).hex()
        self._made = False
        self._ran = False

    def mark(self, spec: ContainerSpec) -> ContainerSpec:
        """The spec with a label of this very launch: from here on a container with it is ours to
        remove, and one that another `up` makes at the same moment is not.
        """
        self._made = True
        return replace(spec, labels=(*spec.labels, (_LAUNCH, self._launch)))

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
        if isinstance(error, SparkRecipeError):
            if not self._ran:
                self._remove()
        elif self._keep and isinstance(error, KeyboardInterrupt):
            self._tell(f"kept: {self._name} goes on loading")
        else:
            self._remove()

    def _remove(self) -> None:
        """Look it up by name and label: an interrupted `create` may not have told us its id."""
        with _without_interrupts(), suppress(SparkRecipeError):
            found = self._engine.find(self._name)
            if found is None or found.labels.get(_LAUNCH) != self._launch:
                return
            if self._ran:
                self._tell(f"stopping {self._name}")
            self._engine.stop(found.id, STOP_LOADING_S)
            self._engine.remove(found.id)

    def _tell(self, text: str) -> None:
        """The terminal may be gone: that must not keep the server alive."""
        with suppress(OSError, ValueError):
            self._emit(Note(text))


class _without_interrupts:  # noqa: N801 - reads as a function in a with statement
    """A second Ctrl-C must not leave half a clean-up behind. It lasts seconds, not minutes."""

    def __enter__(self) -> None:
        self._before: list[tuple[signal.Signals, Any]] = []
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._before.append((number, signal.signal(number, signal.SIG_IGN)))

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
