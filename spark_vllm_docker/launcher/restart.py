"""When a server that died is started again: never for a fault that would come back, and never
before its memory has.

A start that failed on a machine with unified memory and was repeated by a restart policy has left
memory behind each time, until the machine stood still. So there is no restart policy; `up
--restart N` asks here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from spark_vllm_docker.errors import ServerFailed

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 60.0
MEMORY_WAIT_S = 120.0
ENOUGH = 0.9
"""The share of the memory that was free before the first start, which must be free again."""
_CHANCE = ("", "host")
"""Kinds of fixes that do not depend on the recipe; without a rule nothing is known against it."""

ReadFree = Callable[[], float | None]


@dataclass(slots=True)
class RestartGuard:
    """Counts the restarts of one `up`. `read_free` gives the free memory in GiB, or None."""

    most: int
    read_free: ReadFree
    sleep: Callable[[float], None] = time.sleep
    done: int = 0
    _free_before: float | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._free_before = self.read_free() if self.most else None

    def refuse(self, failure: ServerFailed) -> str:
        """Why it is not started again; empty where it is. Waits for both, time and memory."""
        if not self.most:
            return "no --restart"
        if self.done >= self.most:
            return f"{self.done} restarts are enough"
        kind = failure.remedy.kind if failure.remedy else ""
        if not failure.served and kind != "host":
            return "it never served: the same start would end the same way"
        if kind not in _CHANCE:
            return f"the fault is one of the {kind}: it would come back"
        wait = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2**self.done)
        self.sleep(wait)
        if not self._memory_is_back():
            return f"its memory has not come back: {self.read_free() or 0:.1f} GiB are free"
        self.done += 1
        return ""

    def _memory_is_back(self) -> bool:
        if self._free_before is None:
            return True
        waited = 0.0
        while True:
            free = self.read_free()
            if free is None or free >= ENOUGH * self._free_before:
                return True
            if waited >= MEMORY_WAIT_S:
                return False
            self.sleep(FIRST_WAIT_S)
            waited += FIRST_WAIT_S
