"""The watch loop: log lines, the exit event and HTTP answers → phases, and one outcome.

Three threads wait (for the log, for the exit, for HTTP) and put what they get into one queue; one
loop reads it. The log is read once, as it comes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from spark_vllm_docker.engine.protocol import Exit, Stream
from spark_vllm_docker.errors import EngineError
from spark_vllm_docker.events import Emit, LogLines, Progress, Tick
from spark_vllm_docker.health.answers import Listed, Proof, Wanted
from spark_vllm_docker.health.log_lines import LineSplitter, LogLine, parse_line
from spark_vllm_docker.health.phases import PhaseClock
from spark_vllm_docker.health.work import Work, cache_growth, is_work, remember, say_idle

HTTP_OK = 200
POLL_S = 0.1  # between two questions to /health
TICK_S = 1.0
LOOK_S = 8.0  # a look that takes longer hangs
# After the exit the last lines are on their way; when none comes for so long, that was it.
DRAIN_S = 0.3


class Watched(Protocol):
    """What the watcher needs of a container."""

    def follow_log(self) -> Stream[bytes]: ...
    def follow_exit(self) -> Stream[Exit]: ...
    def work(self) -> Work: ...


class Asked(Protocol):
    """What the watcher needs of a probe."""

    def health(self) -> int: ...
    def list_models(self) -> Listed: ...
    def prove(
        self, model: str, tasks: tuple[str, ...] = (), wanted: Wanted | None = None
    ) -> Proof: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """When to give up: seconds without a line and without work, and seconds in all (None:
    never).
    """

    stall_s: float
    total_s: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """Health is 200, the served name is listed, a short generation came back."""

    proof: str
    health_at: float


@dataclass(frozen=True, slots=True)
class Died:
    """The main process ended."""

    exit: Exit


@dataclass(frozen=True, slots=True)
class Unproven:
    """Health is 200, but the server is not what the recipe says."""

    reason: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Stalled:
    """No line and no work for `silent_s` seconds; `idle` says what was looked at."""

    silent_s: float
    idle: str


@dataclass(frozen=True, slots=True)
class OutOfTime:
    """The total limit has passed."""

    limit_s: float


Outcome = Ready | Died | Unproven | Stalled | OutOfTime
_Item = list[str] | Progress | Exit | Ready | Unproven | Work | Exception | None


class Watcher:
    """Watches one container from its start to its end. Use it as a context: leaving it ends the
    threads, the container goes on. `on_line` sees every log line once; `wanted` is what the server
    must prove.
    """

    def __init__(
        self,
        container: Watched,
        open_probe: Callable[[], Asked],
        served: tuple[str, ...],
        limits: Limits,
        clock: PhaseClock,
        *,
        emit: Emit,
        on_line: Callable[[LogLine], None],
        wanted: Wanted | None = None,
    ) -> None:
        self._container = container
        self._open_probe = open_probe
        self._served = served
        self._limits = limits
        self._clock = clock
        self._emit = emit
        self._on_line = on_line
        self._wanted = wanted
        self._items: queue.Queue[_Item] = queue.Queue(maxsize=64)
        self._stop = threading.Event()
        self._ask_now = threading.Event()
        self._worked: tuple[float, Work] | None = None
        self._looking = False
        self._next_look = self._look_began = 0.0
        self._log_ended = False
        self._last_line = ""

    def __enter__(self) -> Self:
        self._log = self._container.follow_log()
        self._exit = self._container.follow_exit()
        self._start(self._read_log)
        self._start(self._await_exit)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._ask_now.set()
        self._log.close()
        self._exit.close()

    def until_ready(self) -> Outcome:
        """Watch until the server is proven, has died, or a limit has passed."""
        self._start(self._ask)
        self._next_look = time.monotonic() + self._pause
        last_sign = time.monotonic()
        while True:
            item = self._next(TICK_S)
            now = time.monotonic()
            if isinstance(item, Exit):
                self._drain()
                return Died(item)
            if isinstance(item, (Ready, Unproven)):
                return item
            if isinstance(item, Work):
                last_sign = now if self._has_worked(item, now) else last_sign
            elif item:
                last_sign = now
            else:
                self._emit(self._tick())
                self._look(now)
            if outcome := self._past_limit(now, last_sign):
                return outcome

    def until_end(self) -> Died:
        """Go on after `until_ready` was `Ready`: hand on the log until the server ends."""
        while True:
            item = self._next(TICK_S)
            if isinstance(item, Exit):
                self._drain()
                return Died(item)

    def _next(self, timeout_s: float) -> _Item:
        """The next item; log lines are taken in at once. An empty list means that nothing came."""
        try:
            item = self._items.get(timeout=timeout_s)
        except queue.Empty:
            return []
        if isinstance(item, Exception):
            raise item
        if item is None:
            self._log_ended = True
            return []
        if isinstance(item, Progress):
            self._emit(item)
            return []
        if isinstance(item, list):
            self._take(item)
        return item

    def _take(self, lines: list[str]) -> None:
        for text in lines:
            line = parse_line(text)
            self._on_line(line)
            seen = self._clock.feed(line)
            if seen is None:
                continue
            if seen.listening:
                self._ask_now.set()
            elif seen.total or seen.detail:
                phase = self._clock.tracker.phase
                self._emit(Progress(phase, seen.done, seen.total, "", seen.detail))
        self._last_line = lines[-1]
        self._emit(LogLines(tuple(lines)))

    def _drain(self) -> None:
        """The lines that the server wrote before its end, however many are still on their way."""
        while not self._log_ended and (self._next(DRAIN_S) or self._log_ended):
            pass

    def _tick(self) -> Tick:
        clock = self._clock
        return Tick(clock.tracker.phase, clock.phase_s, clock.elapsed_s, self._last_line)

    @property
    def _pause(self) -> float:
        """Seconds between two looks at a silent container."""
        return min(10.0, self._limits.stall_s / 4)

    def _look(self, now: float) -> None:
        """Look from outside, in a thread: a folder or a driver that hangs must not hold up the
        loop. One look at a time.
        """
        if now >= self._next_look and not self._looking:
            self._looking, self._look_began = True, now
            self._start(self._take_look)

    def _take_look(self) -> None:
        try:
            work = self._container.work()
        except EngineError:
            work = Work()  # nothing is known; its end, if it is that, is told by its event
        self._put(work)

    def _has_worked(self, current: Work, now: float) -> bool:
        """Whether the container has done something since the look before: silence is not death
        while it computes.
        """
        before, self._worked = self._worked, (now, current)
        self._looking = False
        self._next_look = now + self._pause
        if before is None:
            return False
        at, work = before
        self._worked = (now, remember(work, current))
        if grown := cache_growth(work, current):
            text = f"the caches grew by {grown >> 20:,} MiB in {now - at:.0f} s"
            self._emit(Progress(self._clock.tracker.phase, 0, 0, "", text))
        return is_work(work, current, now - at)

    def _past_limit(self, now: float, last_sign: float) -> Outcome | None:
        total = self._limits.total_s
        if total is not None and self._clock.elapsed_s > total:
            return OutOfTime(total)
        is_looking = self._looking and now - self._look_began < LOOK_S
        if now - last_sign > self._limits.stall_s and not is_looking:
            return Stalled(now - last_sign, say_idle(self._worked[1] if self._worked else Work()))
        return None

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=self._guarded, args=(work,), daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        """What goes wrong in a thread is raised in the loop, a bug as well as known trouble."""
        try:
            work()
        except Exception as error:
            self._put(error)

    def _put(self, item: _Item) -> None:
        while not self._stop.is_set():
            try:
                self._items.put(item, timeout=0.5)
            except queue.Full:
                continue
            return

    def _read_log(self) -> None:
        splitter = LineSplitter()
        for chunk in self._log:
            if lines := splitter.feed(chunk):
                self._put(lines)
            if self._stop.is_set():
                return
        if lines := splitter.end():
            self._put(lines)
        self._put(None)

    def _await_exit(self) -> None:
        for ended in self._exit:
            self._put(ended)

    def _ask(self) -> None:
        probe = self._open_probe()
        try:
            while not self._stop.is_set():
                if probe.health() == HTTP_OK:
                    answer = self._examine(probe, time.monotonic())
                    if answer is not None:
                        self._put(answer)
                        return
                self._ask_now.wait(POLL_S)
                self._ask_now.clear()
        finally:
            probe.close()

    def _examine(self, probe: Asked, health_at: float) -> Ready | Unproven | None:
        """The questions after health. None: the server went away meanwhile, ask again."""
        listed = probe.list_models()
        if probe.health() != HTTP_OK:
            return None
        if listed.error:
            return Unproven(listed.error)
        missing = [name for name in self._served if name not in listed.names]
        if missing:
            found = ", ".join(listed.names) or "nothing"
            return Unproven(f"/v1/models lists {found}; the recipe serves {', '.join(missing)}")
        model = self._served[0] if self._served else next(iter(listed.names), "")
        if not model:
            return Unproven("/v1/models lists no model")
        self._put(Progress("api", 0, 0, "", "proving what the recipe promises"))
        proof = probe.prove(model, self._clock.tracker.tasks, self._wanted)
        if proof.error and probe.health() != HTTP_OK:
            return None  # it died of the question; the exit event tells the rest
        if proof.error:
            return Unproven(proof.error, proof.fix)
        return Ready(proof.shown, health_at)
