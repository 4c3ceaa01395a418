"""One JSON object a line on stdout: `up --json`, `wait --json`. The last line is the result."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import TracebackType
from typing import Self, TextIO

from spark_vllm_docker.events import (
    Event,
    Found,
    LogLines,
    Note,
    PhaseBegan,
    Progress,
    ServerReady,
    Tick,
)

_NAMES: dict[type, str] = {
    PhaseBegan: "phase",
    Progress: "progress",
    LogLines: "log",
    Tick: "tick",
    Note: "note",
    Found: "finding",
    ServerReady: "ready",
}


class JsonScreen:
    """Every line has `schema` and `event`; the other keys are those of the event."""

    def __init__(self, stream: TextIO, verb: str, *, show_log: bool) -> None:
        self._stream = stream
        self._show_log = show_log
        self._schema = f"spark-recipe/{verb}@1"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.flush()

    def __call__(self, event: Event) -> None:
        """Write one event. Log lines only where they are wanted, and after ready."""
        if isinstance(event, LogLines) and not self._show_log:
            return
        self._show_log |= isinstance(event, ServerReady)
        if isinstance(event, Found):
            data: dict[str, object] = event.finding.to_json()
        else:
            data = asdict(event)
        self._stream.write(
            json.dumps({"schema": self._schema, "event": _NAMES[type(event)], **data}) + "\n"
        )
        self._stream.flush()
