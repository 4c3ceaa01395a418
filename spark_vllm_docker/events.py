"""What the launcher tells the screen. Values only; how they look is the business of `ui/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_vllm_docker.findings import Finding


@dataclass(frozen=True, slots=True)
class PhaseBegan:
    """A phase of the start began, `elapsed_s` seconds after `up` did."""

    phase: str
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the current phase stands: `done` of `total` in `unit` (total 0: not known)."""

    phase: str
    done: float
    total: float
    unit: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LogLines:
    """New lines of the server's log, in order, without line ends."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing new for a while: the phase, its age and the last line of the log."""

    phase: str
    phase_s: float
    elapsed_s: float
    last_line: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that the user should know and need not act on."""

    text: str


@dataclass(frozen=True, slots=True)
class Found:
    """A finding that does not stop the command."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class ServerReady:
    """The server is up and has answered. Times in seconds since `up` began, by phase.

    `api_key` is a key that was made for this start, to be shown once.
    """

    name: str
    endpoint: str
    served: tuple[str, ...]
    proof: str
    elapsed_s: float
    phase_s: tuple[tuple[str, float], ...]
    needs_key: bool = False
    api_key: str = ""


Event = PhaseBegan | Progress | LogLines | Tick | Note | Found | ServerReady
Emit = Callable[[Event], None]
