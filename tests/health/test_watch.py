"""The watch loop with fakes at its two protocols; the whole path runs in tests/cli on real engines."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from spark_vllm_docker.engine.protocol import Activity, Exit
from spark_vllm_docker.errors import EngineError
from spark_vllm_docker.events import LogLines, PhaseBegan, Progress
from spark_vllm_docker.health.answers import Canary, Listed, Proof, Wanted
from spark_vllm_docker.health.log_lines import LogLine
from spark_vllm_docker.health.phases import PhaseClock
from spark_vllm_docker.health.watch import (
    Died,
    Limits,
    Outcome,
    OutOfTime,
    Ready,
    Stalled,
    Unproven,
    Watcher,
)
from spark_vllm_docker.health.work import Work


class FakeStream:
    """Items with pauses: a number waits, anything else is given."""

    def __init__(self, items: list[object], *, ends: bool = True) -> None:
        self.items, self.ends = items, ends
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[object]:
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, float):
                if self.closed.wait(item):
                    return
            else:
                yield item
        if not self.ends:
            self.closed.wait()

    def close(self) -> None:
        self.closed.set()


class FakeContainer:
    def __init__(
        self,
        log: list[object],
        ended: list[object] | None = None,
        cpu: float = 0.0,
        cache: float = 0.0,
        gpu: float | None = None,
    ) -> None:
        self.log, self.ended, self.cpu, self.cache, self.gpu = log, ended, cpu, cache, gpu
        self.streams: list[FakeStream] = []

    def follow_log(self) -> FakeStream:
        self.streams.append(FakeStream(self.log, ends=self.ended is not None))
        return self.streams[-1]

    def follow_exit(self) -> FakeStream:
        self.streams.append(FakeStream(self.ended or [], ends=self.ended is not None))
        return self.streams[-1]

    def work(self) -> Work:
        now = time.monotonic()
        return Work(Activity(self.cpu * now, 0), int(self.cache * now), self.gpu)


class FakeProbe:
    def __init__(
        self, up_after_s: float = 0.0, names: tuple[str, ...] = ("m",), error: str = ""
    ) -> None:
        self.up_at = time.monotonic() + up_after_s
        self.names, self.error = names, error
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def health(self) -> int:
        return 200 if time.monotonic() >= self.up_at else 0

    def list_models(self) -> Listed:
        return Listed(self.names)

    def prove(self, model: str, tasks: tuple[str, ...] = (), wanted: Wanted | None = None) -> Proof:
        self.asked.append((model, tasks))
        return Proof((Canary("text", self.error or "fine", failed=bool(self.error)),))

    def close(self) -> None:
        pass


def watch(
    container: FakeContainer,
    probe: FakeProbe,
    limits: Limits = Limits(60.0),
    served: tuple[str, ...] = ("m",),
) -> tuple[Outcome, list[object], list[LogLine]]:
    events: list[object] = []
    lines: list[LogLine] = []
    clock = PhaseClock(events.append, time.monotonic())
    watcher = Watcher(
        container,  # type: ignore[arg-type]
        lambda: probe,
        served,
        limits,
        clock,
        emit=events.append,
        on_line=lines.append,
    )
    with watcher:
        outcome = watcher.until_ready()
    assert all(stream.closed.is_set() for stream in container.streams)
    return outcome, events, lines


NEVER = 1e9


def test_ready_needs_health_the_name_and_an_answer() -> None:
    probe = FakeProbe(up_after_s=0.3)
    log: list[object] = [
        b"(APIServer pid=1) INFO 11-30 15:40:04 [e.py:1] Supported tasks: ['generate']\n"
    ]
    outcome, events, _ = watch(FakeContainer(log), probe)
    assert isinstance(outcome, Ready)
    assert outcome.proof == "fine"
    assert probe.asked == [("m", ("generate",))]
    assert [e.phase for e in events if isinstance(e, PhaseBegan)] == ["pull", "api"]


def test_ready_is_told_soon_after_health() -> None:
    probe = FakeProbe(up_after_s=0.5)
    outcome, _, _ = watch(FakeContainer([]), probe)
    assert isinstance(outcome, Ready)
    assert time.monotonic() - probe.up_at < 0.3


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        (FakeProbe(names=("other",)), "/v1/models lists other; the recipe serves m"),
        (FakeProbe(names=()), "/v1/models lists nothing; the recipe serves m"),
        (FakeProbe(error="no token"), "no token"),
    ],
)
def test_healthy_but_wrong(probe: FakeProbe, reason: str) -> None:
    outcome, _, _ = watch(FakeContainer([]), probe)
    assert outcome == Unproven(reason)


def test_a_command_of_unknown_names_is_proven_with_what_is_listed() -> None:
    probe = FakeProbe(names=("x",))
    assert isinstance(watch(FakeContainer([]), probe, served=())[0], Ready)
    assert probe.asked[0][0] == "x"


def test_the_last_lines_are_read_before_a_death_is_told() -> None:
    log: list[object] = [b"first\n", 0.15, b"second\n", 0.15, b"the cause"]
    outcome, events, lines = watch(FakeContainer(log, [0.05, Exit(1)]), FakeProbe(NEVER))
    assert outcome == Died(Exit(1))
    assert [line.message for line in lines] == ["first", "second", "the cause"]
    assert [e.lines for e in events if isinstance(e, LogLines)][-1] == ("the cause",)


def test_a_death_is_told_although_the_log_stays_open() -> None:
    container = FakeContainer([b"x\n", 30.0], [0.1, Exit(137)])
    began = time.monotonic()
    assert watch(container, FakeProbe(NEVER))[0] == Died(Exit(137))
    assert time.monotonic() - began < 1.0


def test_silence_without_work_is_a_stall() -> None:
    outcome, _, _ = watch(FakeContainer([b"x\n"]), FakeProbe(NEVER), Limits(2.0))
    assert isinstance(outcome, Stalled)
    assert outcome.silent_s > 2.0
    assert outcome.idle == "no log line, no CPU time, no disk traffic, no growth of the caches"
    idle_gpu = watch(FakeContainer([b"x\n"], gpu=0.0), FakeProbe(NEVER), Limits(2.0))[0]
    assert isinstance(idle_gpu, Stalled)
    assert idle_gpu.idle.endswith(", its GPU idle")


def test_silence_with_work_is_not() -> None:
    outcome, _, _ = watch(FakeContainer([b"x\n"], cpu=0.9), FakeProbe(NEVER), Limits(2.0, 5.0))
    assert outcome == OutOfTime(5.0)


@pytest.mark.parametrize("sign", [{"cache": 3e6}, {"gpu": 40.0}])
def test_a_download_and_a_busy_gpu_are_signs_of_life(sign: dict[str, float]) -> None:
    container = FakeContainer([b"x\n"], **sign)  # type: ignore[arg-type]
    outcome, events, _ = watch(container, FakeProbe(NEVER), Limits(2.0, 5.0))
    assert outcome == OutOfTime(5.0)
    told = [e.detail for e in events if isinstance(e, Progress)]
    assert any(text.startswith("the caches grew by ") for text in told) is ("cache" in sign)


class Hanging(FakeContainer):
    def work(self) -> Work:
        time.sleep(20)
        raise EngineError("too late")


def test_a_look_that_hangs_holds_nothing_up() -> None:
    began = time.monotonic()
    ended = watch(Hanging([b"x\n"], [1.5, Exit(1)]), FakeProbe(NEVER), Limits(2.0))[0]
    assert ended == Died(Exit(1))
    assert time.monotonic() - began < 4
    stalled = watch(Hanging([b"x\n"]), FakeProbe(NEVER), Limits(2.0))[0]
    assert isinstance(stalled, Stalled)
    assert stalled.idle == "no log line"


def test_a_look_that_fails_is_no_end() -> None:
    class Failing(FakeContainer):
        def work(self) -> Work:
            raise EngineError("busy")

    outcome = watch(Failing([b"x\n"], [1.5, Exit(3)]), FakeProbe(NEVER), Limits(2.0))[0]
    assert outcome == Died(Exit(3))


def test_lines_are_a_sign_of_life() -> None:
    log: list[object] = [part for _ in range(8) for part in (b"x\n", 0.5)]
    outcome, _, _ = watch(FakeContainer(log, [4.2, Exit(0)]), FakeProbe(NEVER), Limits(2.0))
    assert outcome == Died(Exit(0))


def test_progress_is_told() -> None:
    log: list[object] = [
        b"(E pid=1) INFO 11-30 15:40:00 [r.py:1] Starting to load model m...\n"
        b"Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00]\n"
    ]
    _, events, _ = watch(FakeContainer(log), FakeProbe(up_after_s=0.5))
    assert Progress("load", 1, 2, "", "") in events


@pytest.mark.parametrize("where", ["log", "exit"])
def test_an_engine_that_breaks_off_is_an_error(where: str) -> None:
    broken: list[object] = [0.1, EngineError("gone")]
    container = FakeContainer(
        broken if where == "log" else [30.0], broken if where == "exit" else [30.0]
    )
    with pytest.raises(EngineError, match="gone"):
        watch(container, FakeProbe(NEVER))


def test_a_bug_in_a_thread_is_raised_in_the_loop() -> None:
    class Broken(FakeProbe):
        def health(self) -> int:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        watch(FakeContainer([]), Broken())
