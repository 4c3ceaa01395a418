"""Phases and root lines on every recording of a real vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from spark_vllm_docker.diagnose.root_line import RootLineFinder
from spark_vllm_docker.health.log_lines import LineSplitter, parse_line
from spark_vllm_docker.health.phases import PHASES, PhaseClock, PhaseTracker, load_phases
from tests.conftest import DATA, RECORDINGS, ROOT

EXPECTED = yaml.safe_load((DATA / "expected.yaml").read_text(encoding="utf-8"))


def test_every_recording_has_an_expectation() -> None:
    found = {str(path.relative_to(RECORDINGS)) for path in RECORDINGS.rglob("*.log")}
    assert found == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
@pytest.mark.parametrize("chunk", [1 << 16, 1000])
def test_recordings(name: str, chunk: int) -> None:
    splitter, tracker, roots = LineSplitter(), PhaseTracker(), RootLineFinder()
    tracker.enter("setup")
    data = (RECORDINGS / name).read_bytes()
    phases, listening = [], False
    lines = [
        line for at in range(0, len(data), chunk) for line in splitter.feed(data[at : at + chunk])
    ]
    for text in lines + splitter.end():
        line = parse_line(text)
        roots.feed(line)
        seen = tracker.feed(line)
        if seen and seen.phase:
            phases.append(seen.phase)
        if seen and seen.listening:
            listening = True
            roots.forget()
    root = roots.result()
    expected = EXPECTED[name]
    assert " ".join(phases) == expected["phases"]
    assert listening is expected["listening"]
    assert (root.text[:90] if root else None) == expected["root"]
    assert bool(root and root.echo) is expected["echo"]
    ranks = [PHASES.index(phase) for phase in phases]
    assert ranks == sorted(ranks)
    if listening:
        assert tracker.tasks == ("generate",)


def test_the_table_has_the_phases_in_their_order() -> None:
    data = yaml.safe_load((ROOT / "spark_vllm_docker/health/data/phases.yaml").read_text())
    assert tuple(phase["id"] for phase in data["phases"]) == PHASES
    assert set(load_phases().progress) == set(PHASES)


def test_shards_are_counted() -> None:
    tracker = PhaseTracker()
    tracker.enter("load")
    line = "(EngineCore pid=1) Loading safetensors checkpoint shards:  25% Completed | 3/12 [00:01<00:03]"
    seen = tracker.feed(parse_line(line))
    assert seen is not None
    assert (seen.done, seen.total) == (3, 12)
    tracker.enter("graphs")
    bar = "Capturing CUDA graphs (decode, FULL):  50%|█████     | 2/4 [00:00<00:00]"
    seen = tracker.feed(parse_line(bar))
    assert seen is not None
    assert (seen.done, seen.total) == (2, 4)


def test_phases_only_go_forward() -> None:
    tracker = PhaseTracker()
    assert tracker.enter("kv-cache")
    assert not tracker.enter("load")
    assert (
        tracker.feed(parse_line("INFO 11-30 15:09:45 [x.py:1] Starting to load model m...")) is None
    )
    assert tracker.phase == "kv-cache"


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("INFO 01-01 00:00:00 [api.py:1] vLLM API server version 0.16.0", "config"),
        ("INFO 01-01 00:00:00 [utils.py:1] vLLM server version 0.20.0, serving model m", "config"),
        ("(APIServer pid=1) INFO 01-01 00:00:00 [c.py:5] GPU KV cache size: 1 tokens", "kv-cache"),
        (
            "INFO 01-01 00:00:00 [c.py:5] GPU KV cache size: 1 tokens, Maximum concurrency for 2 "
            "tokens per request: 3.00x",
            "kv-cache",
        ),
    ],
)
def test_lines_of_other_versions(line: str, phase: str) -> None:
    tracker = PhaseTracker()
    tracker.enter("setup")
    seen = tracker.feed(parse_line(line))
    assert seen is not None
    assert seen.phase == phase


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Collecting vllm",
        "the user wrote: Application startup complete.",
        'INFO 01-01 00:00:00 [x.py:1] prompt: "init engine (profile, create kv cache, warmup model) took"',
        "Supported tasks: not a list",
    ],
)
def test_words_inside_a_line_begin_no_phase(line: str) -> None:
    tracker = PhaseTracker()
    tracker.enter("config")
    assert tracker.feed(parse_line(line)) is None or tracker.tasks == ()
    assert not (seen := tracker.feed(parse_line(line))) or not seen.listening


def test_the_clock_gives_each_phase_its_time() -> None:
    events: list[object] = []
    clock = PhaseClock(events.append, began=0.0)
    clock.enter("create")
    clock.enter("setup")
    clock.enter("create")
    assert [phase for phase, _ in clock.durations()] == ["pull", "create", "setup"]
    assert len(events) == 3
    assert all(seconds >= 0 for _, seconds in clock.durations())


def test_the_folder_of_recordings_is_the_shared_one_where_that_is_present() -> None:
    shared = Path(__file__).resolve().parents[3] / "shared/recordings"
    if not shared.is_dir():
        pytest.skip("only the project's own copy is here")
    for path in shared.rglob("*.log"):
        assert str(path.relative_to(shared)) in EXPECTED
