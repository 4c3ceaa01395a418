"""A sign of life for steps that say nothing for minutes, such as a layer of a build."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from spark_vllm_docker.events import Emit, Event, Progress, Tick
from spark_vllm_docker.health.phases import PhaseClock

EVERY_S = 1.0


@contextmanager
def ticking(clock: PhaseClock, emit: Emit) -> Iterator[Emit]:
    """Emit a `Tick` every second while the block runs; gives the `Emit` to use inside it."""
    lock = threading.Lock()
    done = threading.Event()
    last_line = ""

    def emit_alone(event: Event) -> None:
        nonlocal last_line
        with lock:
            if isinstance(event, Progress):
                last_line = event.detail
            emit(event)

    def tick() -> None:
        while not done.wait(EVERY_S):
            emit_alone(Tick(clock.tracker.phase, clock.phase_s, clock.elapsed_s, last_line))

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield emit_alone
    finally:
        done.set()
        thread.join()
