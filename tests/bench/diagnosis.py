"""How fast and how surely logs are read: lines per second with all rules, memory, right rules."""

from __future__ import annotations

import time
import tracemalloc

import yaml

from spark_vllm_docker.diagnose.reader import LogReader, read_log
from spark_vllm_docker.diagnose.rules import load_rules
from spark_vllm_docker.health.log_lines import LineSplitter, parse_line
from spark_vllm_docker.health.phases import PhaseTracker
from tests.conftest import ROOT

RECORDINGS = ROOT / "tests/data/recordings"


def _real_log() -> bytes:
    names = ("cpu-0.20.0/omni-ready.log", "h200-0.20.0/nano-full.log")
    return b"".join((RECORDINGS / name).read_bytes() for name in names)


def lines_per_second(lines: int = 300_000) -> float:
    """A real log over and over, from bytes to findings; the rules are loaded before."""
    block, splitter = _real_log(), LineSplitter()
    reader, count = LogReader(PhaseTracker("setup")), 0
    reader.feed(parse_line("warm up"))
    load_rules()
    began = time.perf_counter()
    while count < lines:
        for text in splitter.feed(block):
            reader.feed(parse_line(text))
            count += 1
    return count / (time.perf_counter() - began)


def memory_growth(lines: int = 1_000_000) -> float:
    """MiB that a log of so many lines takes beyond its first tenth."""
    block = _real_log()
    times = lines // block.count(b"\n")
    tracemalloc.start()
    at_tenth = [0]

    def chunks():
        for index in range(times):
            if index == times // 10:
                at_tenth[0] = tracemalloc.get_traced_memory()[0]
            yield block

    read_log(chunks())
    grown = tracemalloc.get_traced_memory()[0] - at_tenth[0]
    tracemalloc.stop()
    return grown / (1 << 20)


def right_rules() -> tuple[int, int]:
    """Recordings whose first rule is the expected one, and all of them."""
    expected = yaml.safe_load((ROOT / "tests/data/expected_rules.yaml").read_text())
    right = 0
    for name, rule in expected.items():
        failure = read_log([(RECORDINGS / name).read_bytes()])[0].failure
        right += (failure.rule.id if failure else None) == rule
    return right, len(expected)
