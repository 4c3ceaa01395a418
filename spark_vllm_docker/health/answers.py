"""What a server answers to the watcher's questions. Apart from `probe.py`, so that the watcher does
not load an HTTP client before the container runs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """What `/v1/models` said: the names, or why there are none."""

    names: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """A short generation: `shown` describes the answer for people; `error` says why there is
    none.
    """

    shown: str = ""
    error: str = ""
