"""Plain lines: for pipes, CI and `TERM=dumb`. One line for each change, and a sign of life."""

from __future__ import annotations

import time
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
from spark_vllm_docker.ui.words import cut, say_finding, say_progress, say_ready

SIGN_OF_LIFE_S = 8.0
_WIDTH = 160


class PlainScreen:
    """Writes to `stream`. `show_log` hands on every log line; after ready they are always shown."""

    def __init__(self, stream: TextIO, *, show_log: bool) -> None:
        self._stream = stream
        self._show_log = show_log
        self._phase = ""
        self._last_shown = 0.0

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
        """Show one event."""
        match event:
            case PhaseBegan(phase, elapsed):
                self._phase = phase
                self._write(f"[{elapsed:6.1f} s] {phase}")
            case Progress():
                if self._is_quiet() or (event.done and event.done == event.total):
                    self._write(f"           {event.phase}: {cut(say_progress(event), _WIDTH)}")
            case Tick(phase, phase_s, elapsed, last_line):
                if self._is_quiet():
                    line = f": {cut(last_line, _WIDTH)}" if last_line else ""
                    self._write(f"[{elapsed:6.1f} s] {phase}, for {phase_s:.0f} s{line}")
            case LogLines(lines):
                if self._show_log:
                    self._stream.write("".join(f"{line}\n" for line in lines))
                elif self._is_quiet():
                    self._write(f"           {self._phase}: {cut(lines[-1], _WIDTH)}")
            case Note(text):
                self._write(text)
            case Found(finding):
                self._write(say_finding(finding))
            case ServerReady():
                for line in say_ready(event):
                    self._write(line)
                self._show_log = True

    def _is_quiet(self) -> bool:
        return time.monotonic() - self._last_shown >= SIGN_OF_LIFE_S

    def _write(self, line: str) -> None:
        self._last_shown = time.monotonic()
        self._stream.write(line + "\n")
        self._stream.flush()
