"""Every rule against its own samples, against all others, and against real logs."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import yaml

from spark_vllm_docker.diagnose.anchors import WORD, find_anchor
from spark_vllm_docker.diagnose.matcher import RuleMatcher
from spark_vllm_docker.diagnose.pages import render_pages
from spark_vllm_docker.diagnose.reader import LogReport, read_log
from spark_vllm_docker.diagnose.rules import load_rules
from spark_vllm_docker.health.log_lines import MAX_LINE_BYTES, parse_line
from tests.conftest import ROOT

RULES = load_rules()
RECORDINGS = ROOT / "tests/data/recordings"
EXPECTED: dict[str, str | None] = yaml.safe_load(
    (ROOT / "tests/data/expected_rules.yaml").read_text(encoding="utf-8")
)
FOREIGN = ROOT.parent / "shared/failures/logs"
# A log of the failures whose rule has another name than the log.
RENAMED = {
    "gemma4-unified-not-recognised": "transformers-does-not-recognize-architecture",
    "inductor-autotune-driver-not-permitted": "inductor-autotune-failed",
    "nvfp4-mtp-weight-mismatch": "draft-weight-mismatch",
    "pip-no-wheel-vllm-platform-tag": "pip-no-wheel-platform-tag",
    "qwen-omni-processor-apply-failed": "omni-processor-failed",
}
NEVER_UNASKED = {
    "trust-remote-code",
    "allowed-local-media-path",
    "allowed-media-domains",
    "enable-lora",
    "api-key",
}


def hits(text: str) -> list[str]:
    matcher = RuleMatcher()
    for line in text.split("\n"):
        matcher.feed(parse_line(line))
    return [diagnosis.rule.id for diagnosis in matcher.results()]


def report_of(path: Path) -> LogReport:
    return read_log([path.read_bytes()])[0]


def test_there_are_enough_of_them_and_each_is_whole() -> None:
    assert len(RULES) >= 120
    for rule in RULES.values():
        assert rule.samples, rule.id
        assert rule.near_misses, rule.id
        assert re.fullmatch(r"[a-z0-9-]+", rule.id), rule.id
        assert set(rule.beats) <= set(RULES), rule.id
        assert rule.fix.kind in {"flag", "env", "image", "host", "request"}, rule.id


@pytest.mark.parametrize("rule_id", RULES)
def test_its_samples_hit_it_and_nothing_else(rule_id: str) -> None:
    rule = RULES[rule_id]
    for sample in rule.samples:
        assert hits(sample) == [rule_id], sample
    for near_miss in rule.near_misses:
        assert rule_id not in hits(near_miss), near_miss


@pytest.mark.parametrize("rule_id", RULES)
def test_every_pattern_has_a_word_that_its_lines_hold(rule_id: str) -> None:
    rule = RULES[rule_id]
    for pattern in (*rule.patterns, *rule.also):
        anchor = find_anchor(pattern.pattern)
        assert anchor, pattern.pattern
        for sample in rule.samples:
            for line in sample.split("\n"):
                if pattern.search(line):
                    assert anchor in WORD.findall(line)


def test_what_needs_a_person_is_never_automatic() -> None:
    for rule in RULES.values():
        if rule.fix.automatic:
            assert rule.fix.flags or rule.fix.env, rule.id
        assert not (rule.fix.automatic and set(rule.fix.flags) & NEVER_UNASKED), rule.id
        assert not any("OFFLINE" in name for name in rule.fix.env), rule.id


def test_the_numbers_of_a_fix_come_from_the_line() -> None:
    matcher = RuleMatcher()
    matcher.feed(
        parse_line(
            "AssertionError: In Mamba cache align mode, block_size (2128) must be <= "
            "max_num_batched_tokens (2048)."
        )
    )
    (found,) = matcher.results()
    assert found.flags == (("max-num-batched-tokens", "8512"),)
    assert (found.automatic, found.fix) == (True, "--max-num-batched-tokens 8512")


def test_a_fix_whose_numbers_are_missing_is_not_applied() -> None:
    matcher = RuleMatcher()
    matcher.feed(
        parse_line("ValueError: To serve at least one request with the model's max seq len (9000)")
    )
    (found,) = matcher.results()
    assert (found.automatic, found.flags) == (False, ())


def test_a_share_of_memory_is_below_what_is_free() -> None:
    matcher = RuleMatcher()
    matcher.feed(
        parse_line(
            "ValueError: Free memory on device cuda:0 (60.0/120.0 GiB) on startup is less than "
            "desired GPU memory utilization (0.9, 108.0 GiB)."
        )
    )
    assert matcher.results()[0].flags == (("gpu-memory-utilization", "0.48"),)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_rule_of_every_recording(name: str) -> None:
    failure = report_of(RECORDINGS / name).failure
    assert (failure.rule.id if failure else None) == EXPECTED[name]


def test_every_recording_is_expected() -> None:
    files = {str(path.relative_to(RECORDINGS)) for path in RECORDINGS.rglob("*.log")}
    assert files == set(EXPECTED)


@pytest.mark.skipif(not FOREIGN.is_dir(), reason="the logs of others are not here")
def test_the_logs_of_others() -> None:
    for path in sorted(FOREIGN.glob("*.log")):
        report = report_of(path)
        found = [diagnosis.rule.id for diagnosis in report.diagnoses]
        if path.stem.startswith("healthy"):
            assert found == [], path.stem
        else:
            assert found[:1] == [RENAMED.get(path.stem, path.stem)], path.stem


def test_wrappers_are_no_diagnosis() -> None:
    for text in (
        "RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {}",
        "Exception: WorkerProc initialization failed due to an exception in a background process.",
        "EngineCore failed to start.",
    ):
        assert hits(text) == []


def test_the_pages_are_current() -> None:
    text = (ROOT / "docs/failures.md").read_text(encoding="utf-8")
    assert text == render_pages(list(RULES.values()))


FAILURE = b"(EngineCore pid=9) ValueError: No available memory for the cache blocks. Try more.\n"


@pytest.mark.parametrize(
    "log",
    [
        FAILURE,
        FAILURE.replace(b"\n", b"\r\n"),
        b"\x1b[0;36m(EngineCore pid=9)\x1b[0m " + FAILURE[19:],
        b"vllm-1  | " + FAILURE,
        b"[pod/vllm-0/server] " + FAILURE,
        b"2025-11-30T12:00:01.123456789Z " + FAILURE,
        b"2025-11-30T12:00:01.123Z stderr F " + FAILURE,
        b"\x00\x00" + FAILURE,
        b"\xff\xfe\xfd\n" + FAILURE,
        "(EngineCore pid=9) Fehler: Speicher, 内存不足, память\n".encode() + FAILURE,
        b"Loading:  10%\rLoading:  20%\r" + FAILURE,
        b"x" * (1 << 20) + b"\n" + FAILURE,
        b'File "a.py", line 3, in f\n' + FAILURE,
        FAILURE[:-1],
        FAILURE + b"(EngineCore pid=9) and a line that is cut o",
    ],
)
def test_a_log_from_anywhere(log: bytes) -> None:
    for size in (len(log), 7 if len(log) < 1000 else 65_537):
        report, _ = read_log(log[at : at + size] for at in range(0, len(log), size))
        assert report.failure is not None
        assert report.failure.rule.id == "no-available-memory-for-cache-blocks"


def test_ranks_that_write_at_the_same_time() -> None:
    lines = [
        "(Worker_TP0 pid=1) Traceback (most recent call last):",
        "(Worker_TP1 pid=2) Traceback (most recent call last):",
        '(Worker_TP0 pid=1)   File "a.py", line 1',
        '(Worker_TP1 pid=2)   File "a.py", line 1',
        "(Worker_TP1 pid=2) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.",
        "(Worker_TP0 pid=1) RuntimeError: NCCL error: remote process exited",
    ]
    report, _ = read_log(["\n".join(lines).encode()])
    assert report.root is not None
    assert report.root.process == "Worker_TP1"
    assert [d.rule.id for d in report.diagnoses] == ["cuda-out-of-memory"]


def test_what_no_rule_knows_is_shown_with_its_tail() -> None:
    text = (
        "(EngineCore pid=3) INFO 11-30 10:00:00 [core.py:1] Initializing a V1 LLM engine (v0.20.0) "
        "with config: model='m'\n"
        "(EngineCore pid=3) Traceback (most recent call last):\n"
        '(EngineCore pid=3)   File "strange.py", line 7, in do\n'
        "(EngineCore pid=3) StrangeError: the moon is full\n"
    )
    report, lines = read_log([text.encode()])
    assert (report.failure, lines) == (None, 4)
    assert report.root is not None
    assert report.root.text == "StrangeError: the moon is full"
    assert report.tail[-2:] == (
        '  File "strange.py", line 7, in do',
        "StrangeError: the moon is full",
    )


def test_an_empty_log() -> None:
    report, lines = read_log([])
    assert (report.root, report.diagnoses, lines) == (None, (), 0)


def test_the_last_of_several_starts_counts() -> None:
    healthy = (
        b"(APIServer pid=1) INFO 11-30 10:00:00 [a.py:1] non-default args: {}\n"
        b"(APIServer pid=1) INFO:     Application startup complete.\n"
    )
    report, _ = read_log([FAILURE, healthy])
    assert (report.root, report.diagnoses) == (None, ())
    report, _ = read_log([healthy, healthy.split(b"\n")[0] + b"\n", FAILURE])
    assert report.failure is not None


def evil_lines(sample: str) -> list[str]:
    """A sample with long runs of one kind of character before, inside and after it."""
    half = len(sample) // 2
    runs = ("x" * 15_000, "1" * 15_000, " " * 15_000, "{" * 15_000, "'" * 15_000, "a: " * 5_000)
    return [
        line
        for run in runs
        for line in (
            f"{run} {sample[half:]}",
            f"{run}{sample[: half + 8]}",
            f"{sample[:half]}{run}{sample[half:]}",
            f"{sample[:-4]} {run}",
            f"{run} {sample[-30:-3]}",
        )
    ]


@pytest.mark.parametrize("rule_id", RULES)
def test_no_line_holds_it_up(rule_id: str) -> None:
    rule = RULES[rule_id]
    for sample in rule.samples:
        for line in evil_lines(sample.replace("\n", " ")):
            for pattern in (*rule.patterns, *rule.also):
                began = time.process_time()
                pattern.search(line[:MAX_LINE_BYTES])
                assert time.process_time() - began < 0.1, (pattern.pattern, line[:40])


def report_on(*lines: str) -> LogReport:
    return read_log(["\n".join(lines).encode()])[0]


UNKNOWN_ROOT = (
    "(EngineCore pid=9) ERROR 11-30 12:00:00 [core.py:1] Traceback (most recent call last):",
    "(EngineCore pid=9) ERROR 11-30 12:00:00 [core.py:1] ValueError: The frobnicator 7 is broken",
)


@pytest.mark.parametrize(
    "beside",
    [
        "(EngineCore pid=9) WARNING 11-30 12:00:00 [x.py:1] FlashInfer JIT: Could not find nvcc, fine",
        "UserWarning: CUDA initialization: Error 803: system has unsupported display driver / cuda driver combination",
        "(EngineCore pid=9) ERROR 11-30 12:00:00 [x.py:1] No module named 'triton_kernels.routing'",
        "(APIServer pid=9) ERROR 11-30 12:00:00 [x.py:1] [Errno 28] No space left on device",
    ],
)
def test_a_line_beside_an_error_that_no_rule_knows_is_no_cause(beside: str) -> None:
    for lines in ((beside, *UNKNOWN_ROOT), (*UNKNOWN_ROOT, beside)):
        report = report_on(*lines)
        assert report.failure is None, lines
        assert report.root is not None
        assert "frobnicator" in report.root.text
        assert not any(diagnosis.automatic for diagnosis in report.diagnoses)


def test_an_error_that_says_nothing_is_explained_by_the_lines_beside_it() -> None:
    report = report_on(
        "(Worker_TP0 pid=7) NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9)",
        "(Worker_TP0 pid=7) ERROR 11-30 12:00:00 [x.py:1] Traceback (most recent call last):",
        "(Worker_TP0 pid=7) ERROR 11-30 12:00:00 [x.py:1] RuntimeError: NCCL error: unhandled system error",
    )
    assert report.failure is not None
    assert report.failure.rule.id == "nccl-shm-too-small"


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: To serve at least one request with the models's max seq len (8192), (0.9 GiB KV cache is needed, which is larger than the available KV cache memory (0.1 GiB). Based on the available memory, the estimated maximum model length is 0.",
        "ValueError: Free memory on device cuda:0 (500/121.6 GiB) on startup is less than desired GPU memory utilization (0.9, 109.4 GiB).",
        "ValueError: Free memory on device cuda:0 (1.2.3/121.6 GiB) on startup is less than desired GPU memory utilization (0.9, 109.4 GiB).",
        f"ValueError: Free memory on device cuda:0 ({'9' * 400}/121.6 GiB) on startup is less than desired GPU memory utilization (0.9, 109.4 GiB).",
        f"AssertionError: In Mamba cache align mode, block_size ({'9' * 400}) must be <= max_num_batched_tokens (2048).",
        "AssertionError: In Mamba cache align mode, block_size (0) must be <= max_num_batched_tokens (2048).",
    ],
)
def test_a_number_that_cannot_be_meant_is_not_set(line: str) -> None:
    matcher = RuleMatcher()
    matcher.feed(parse_line(line))
    for found in matcher.results():
        assert (found.automatic, found.flags) == (False, ())


def test_numbers_of_a_log_are_set_without_their_commas() -> None:
    matcher = RuleMatcher()
    matcher.feed(
        parse_line(
            "ValueError: max_num_batched_tokens (2,048) is smaller than max_model_len (8,192)."
        )
    )
    (found,) = matcher.results()
    assert found.flags == (("max-num-batched-tokens", "8192"),)


def test_the_shell_is_no_cause_when_the_server_spoke_after_it() -> None:
    for line in ("bash: warning: setlocale: LC_ALL", "sh: 1: nvidia-smi: not found"):
        report = report_on(
            line, "(APIServer pid=1) INFO 11-30 12:00:00 [x.py:1] hello", *UNKNOWN_ROOT
        )
        assert report.root is not None
        assert "frobnicator" in report.root.text
    report = report_on("bash: line 3: vllm: command not found")
    assert report.root is not None


@pytest.mark.parametrize(
    "opening",
    [
        "Exception ignored in: <function x>",
        "--- Logging error ---",
        "Exception in thread Thread-2 (_report_usage_worker):",
    ],
)
def test_what_python_prints_and_goes_on_is_no_root(opening: str) -> None:
    report = report_on(
        opening, "Traceback (most recent call last):", "  x", "PermissionError: [Errno 1] no"
    )
    assert report.root is None


def test_the_last_start_counts_also_when_its_command_line_is_refused() -> None:
    report = report_on(
        "(APIServer pid=1) INFO 11-30 12:00:00 [x.py:1] non-default args: {}",
        "(EngineCore pid=9) ERROR 11-30 12:00:00 [core.py:1] Traceback (most recent call last):",
        "(EngineCore pid=9) ERROR 11-30 12:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.",
        "usage: vllm serve [model_tag] [options]",
        "vllm serve: error: argument --max-num-seqs: expected one argument",
    )
    assert report.root is not None
    assert "max-num-seqs" in report.root.text
    assert report.failure is not None
    assert report.failure.rule.id == "cli-needs-a-value"


def test_a_request_that_timed_out_is_no_end_of_the_server() -> None:
    report = report_on(
        "(APIServer pid=1) INFO 11-30 12:00:00 [x.py:1] non-default args: {}",
        "(APIServer pid=1) INFO:     Application startup complete.",
        "(APIServer pid=1) ERROR 11-30 12:00:00 [x.py:1] Traceback (most recent call last):",
        "(APIServer pid=1) ERROR 11-30 12:00:00 [x.py:1] asyncio.exceptions.CancelledError",
    )
    assert report.root is None
