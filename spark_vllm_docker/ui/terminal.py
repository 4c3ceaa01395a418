"""A live view for terminals: finished phases with their times, the current one with its progress
and
the last line of the log.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

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
from spark_vllm_docker.findings import Severity
from spark_vllm_docker.ui.words import cut, draw_bar, say_finding, say_progress, say_ready

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


class TerminalScreen:
    """Draws on `console` (stderr) from the first phase to ready; then the log follows."""

    def __init__(self, console: Console, *, show_log: bool) -> None:
        self._console = console
        self._show_log = show_log
        self._live = Live(self, console=console, refresh_per_second=8, transient=True)
        self._spinner = Spinner("dots")
        self._phase = ""
        self._began_s = self._elapsed_s = 0.0
        self._progress = ""
        self._last_line = ""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._phase and self._live.is_started:
            self._console.print(Text(f"✗ {self._phase}", style="red"))
        self._live.stop()

    def __call__(self, event: Event) -> None:
        """Show one event."""
        match event:
            case PhaseBegan(phase, elapsed):
                self._finish_phase(elapsed)
                self._phase, self._began_s, self._elapsed_s = phase, elapsed, elapsed
                self._progress = ""
            case Progress():
                self._progress = f"{draw_bar(event)} {say_progress(event)}".strip()
            case Tick(elapsed_s=elapsed, last_line=last):
                self._elapsed_s, self._last_line = elapsed, last
            case LogLines(lines):
                self._last_line = lines[-1]
                if self._show_log:
                    for line in lines:
                        self._console.print(Text(line), soft_wrap=True)
            case Note(text):
                self._console.print(Text(text))
            case Found(finding):
                self._console.print(Text(say_finding(finding), style=_COLOURS[finding.severity]))
            case ServerReady():
                self._live.stop()
                head, *rest = say_ready(event)
                self._console.print(Text(head, style="bold green"))
                for line in rest:
                    self._console.print(Text(line), soft_wrap=True)
                self._show_log = True

    def _finish_phase(self, elapsed: float) -> None:
        if self._phase:
            line = Text.assemble(
                ("✓ ", "green"), f"{self._phase:9}", f"{elapsed - self._began_s:7.1f} s"
            )
            self._console.print(line)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self._phase:
            return
        head = Text.assemble(
            str(self._spinner.render(console.get_time())),
            " ",
            (f"{self._phase:9}", "bold"),
            f"{max(0.0, self._elapsed_s - self._began_s):7.0f} s  ",
            cut(self._progress, max(10, options.max_width - 24)),
        )
        yield head
        if self._last_line:
            yield Text(cut(f"  {self._last_line}", options.max_width), style="dim")
