"""What every screen can do."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

from spark_vllm_docker.events import Event


class Screen(Protocol):
    """Shows events between `__enter__` and `__exit__`."""

    def __call__(self, event: Event) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
