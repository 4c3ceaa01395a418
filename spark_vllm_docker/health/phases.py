"""Log lines → phases. The patterns are data (`data/phases.yaml`); the order is the order there."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from spark_vllm_docker.events import Emit, PhaseBegan
from spark_vllm_docker.health.log_lines import LogLine

# Every pattern begins with one of few words. The test of the first characters is what keeps a
# million foreign lines cheap.
_ANY = re.compile(r"[ ▄█▀▟▙▛▜A-Zntv]")


PHASES = (
    "pull", "create", "setup", "config", "load", "compile", "profile", "kv-cache", "graphs",
    "api", "ready",
)  # fmt: skip
"""The phases of a start, in order. The launcher begins the first three and the last one."""


@dataclass(frozen=True, slots=True)
class PhaseTable:
    """The compiled patterns: one alternation for the beginnings, one for each phase's progress."""

    begins: re.Pattern[str]
    begins_phase: tuple[str, ...]
    progress: dict[str, tuple[re.Pattern[str], ...]]
    listening: re.Pattern[str]
    tasks: re.Pattern[str]


@cache
def load_phases() -> PhaseTable:
    """Read the phase table of the package. It takes a while: not before a line is there."""
    text = (Path(__file__).parent / "data/phases.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = yaml.safe_load(text)
    begins: list[str] = []
    owners: list[str] = []
    for phase in data["phases"]:
        for pattern in phase.get("begins", ()):
            named = pattern.replace("(?P<detail>", f"(?P<detail{len(begins)}>")
            begins.append(f"(?P<begin{len(begins)}>{named})")
            owners.append(phase["id"])
    return PhaseTable(
        begins=re.compile("|".join(begins)),
        begins_phase=tuple(owners),
        progress={
            phase["id"]: tuple(re.compile(p) for p in phase.get("progress", ()))
            for phase in data["phases"]
        },
        listening=re.compile("|".join(data["listening"])),
        tasks=re.compile(data["tasks"]),
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """What a line told: a phase that begins, progress in the current one, or that the API
    listens.
    """

    phase: str = ""
    done: int = 0
    total: int = 0
    detail: str = ""
    listening: bool = False


class PhaseTracker:
    """The current phase of one start. Phases only go forward: log lines of several processes
    mix.
    """

    def __init__(self, first: str = PHASES[0]) -> None:
        self.phase = first
        self.tasks: tuple[str, ...] = ()

    def enter(self, phase: str) -> bool:
        """Begin a phase; False when it, or a later one, has begun already."""
        if PHASES.index(phase) <= PHASES.index(self.phase):
            return False
        self.phase = phase
        return True

    def feed(self, line: LogLine) -> Seen | None:
        """What the line tells, or None for almost all lines."""
        message = line.message
        if not _ANY.match(message):
            return None
        table = load_phases()
        if table.listening.match(message):
            return Seen(listening=True)
        if found := table.tasks.match(message):
            self.tasks = _read_tasks(found["tasks"])
        if found := table.begins.match(message):
            index = next(i for i in range(len(table.begins_phase)) if found[f"begin{i}"])
            phase = table.begins_phase[index]
            if self.enter(phase):
                groups = found.groupdict()
                return Seen(phase=phase, detail=groups.get(f"detail{index}") or "")
        return self._progress(message)

    def _progress(self, message: str) -> Seen | None:
        for pattern in load_phases().progress[self.phase]:
            if found := pattern.match(message):
                groups = found.groupdict()
                done, total = int(groups.get("done") or 0), int(groups.get("total") or 0)
                return Seen(done=done, total=total, detail=groups.get("detail") or "")
        return None


class PhaseClock:
    """Phases with their times: what `up` shows and reports. `began` is a monotonic time."""

    def __init__(self, emit: Emit, began: float, first: str = PHASES[0]) -> None:
        self.tracker = PhaseTracker(first)
        self.starts: list[tuple[str, float]] = []
        self._emit = emit
        self._began = began
        self._note(self.tracker.phase)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the command began."""
        return time.monotonic() - self._began

    @property
    def phase_s(self) -> float:
        """Seconds since the current phase began."""
        return self.elapsed_s - self.starts[-1][1]

    def enter(self, phase: str) -> None:
        """Begin a phase that no log line tells of."""
        if self.tracker.enter(phase):
            self._note(phase)

    def feed(self, line: LogLine) -> Seen | None:
        """As `PhaseTracker.feed`; a phase that begins is noted and told."""
        seen = self.tracker.feed(line)
        if seen is not None and seen.phase:
            self._note(seen.phase)
        return seen

    def durations(self) -> tuple[tuple[str, float], ...]:
        """Each phase with the seconds that it took; the last one until now."""
        ends = [start for _, start in self.starts[1:]] + [self.elapsed_s]
        return tuple(
            (phase, end - start) for (phase, start), end in zip(self.starts, ends, strict=True)
        )

    def _note(self, phase: str) -> None:
        elapsed = self.elapsed_s
        self.starts.append((phase, elapsed))
        self._emit(PhaseBegan(phase, elapsed))


def _read_tasks(text: str) -> tuple[str, ...]:
    try:
        tasks = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return ()
    return tuple(str(t) for t in tasks) if isinstance(tasks, Sequence) else ()
