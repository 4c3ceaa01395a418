"""Bounded queues: how many requests of a kind a server gets at once, and how many may wait.

A three-minute video is 54,000 tokens of prompt. Behind one another such requests hold up nobody but
themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from math import ceil

_WEIGHT = 0.2
_FIRST_GUESS_S = 2.0
MOST_RETRY_S = 120


@dataclass(frozen=True, slots=True)
class LaneLimits:
    """At most `at_once` requests at the server, and `waiting` more that wait for it."""

    at_once: int
    waiting: int


class LaneFull(Exception):
    """Nobody else may wait; `retry_s` is when a place is likely."""

    def __init__(self, retry_s: int) -> None:
        super().__init__(f"full; try again in {retry_s} s")
        self.retry_s = retry_s


class Lane:
    """First come, first served."""

    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._free = asyncio.Semaphore(limits.at_once)
        self._typical_s = _FIRST_GUESS_S
        self.running = 0
        self.waiting = 0

    @asynccontextmanager
    async def place(self) -> AsyncIterator[float]:
        """A place at the server, for as long as it is needed; gives the seconds that were waited.

        Raises:
            LaneFull: at once, when too many wait already.
        """
        if self._free.locked() and self.waiting >= self._limits.waiting:
            raise LaneFull(self._guess_retry())
        began = time.monotonic()
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        got = time.monotonic()
        try:
            yield got - began
        finally:
            self.running -= 1
            self._typical_s += _WEIGHT * (time.monotonic() - got - self._typical_s)
            self._free.release()

    def _guess_retry(self) -> int:
        seconds = self._typical_s * (self.waiting + 1) / self._limits.at_once
        return max(1, min(MOST_RETRY_S, ceil(seconds)))
