"""Prints every promised number beside its limit: `python -m tests.bench`.

Times are medians over several runs of the installed command; container numbers are taken on a real
engine with the stand-in image, each beside plain `docker` in the same run. No assertion: a number
on a busy machine is a number on a busy machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from spark_vllm_docker.diagnose.rules import load_rules
from tests.bench.diagnosis import lines_per_second, memory_growth, right_rules
from tests.bench.media import (
    ask_memory,
    cutting_time,
    gateway_memory,
    gateway_overhead,
    text_beside_videos,
)
from tests.bench.planner import planned_numbers
from tests.bench.recipes import COUNT, check_many, compare_corpus, read_mutated
from tests.conftest import STAND_IN_IMAGE, free_port
from tests.render.test_upstream_rules import FILES

COMMAND = str(Path(sys.executable).parent / "spark-recipe")
NAME = "sr-test-bench"


def row(what: str, value: str, limit: str, ok: bool, reference: str = "") -> None:
    mark = "ok  " if ok else "OVER"
    print(f"{mark} {what:58} {value:>12}  limit {limit:10} {reference}", flush=True)


def timed(*arguments: str) -> float:
    began = time.perf_counter()
    subprocess.run(arguments, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - began


def sample(run: Callable[[], float], times: int = 9) -> tuple[float, float]:
    """Median and best of several runs, after one that warms the disk cache."""
    run()
    values = [run() for _ in range(times)]
    return statistics.median(values), min(values)


def command_times(folder: Path) -> None:
    python, _ = sample(lambda: timed(sys.executable, "-c", "pass"))
    for arguments, limit_ms in (
        (["--version"], 80),
        (["--help"], 150),
        (["check", "nemotron-omni"], 350),
        (["render", "nemotron-omni"], 350),
        (["up", "nemotron-omni", "--dry-run"], 450),
        (["plan", "nemotron-omni", "--hardware", "dgx-spark"], 400),
    ):
        value, best = sample(lambda arguments=arguments: timed(COMMAND, *arguments))  # type: ignore[misc]
        value *= 1000
        reference = f"best {best * 1000:.0f} ms; python -c pass: {python * 1000:.0f} ms"
        what = " ".join(["spark-recipe", *arguments])
        row(what, f"{value:.0f} ms", f"{limit_ms} ms", value <= limit_ms, reference)
    bad = folder / "bad.yaml"
    bad.write_text("name: [\n")

    def refused() -> float:
        began = time.perf_counter()
        subprocess.run([COMMAND, "up", str(bad)], check=False, capture_output=True)
        return time.perf_counter() - began

    value, best = (seconds * 1000 for seconds in sample(refused))
    reference = f"best {best:.0f} ms"
    row("spark-recipe up on a bad recipe", f"{value:.0f} ms", "500 ms", value <= 500, reference)


def recipe_numbers() -> None:
    with tempfile.TemporaryDirectory() as name:
        seconds, what = check_many(COMMAND, Path(name))
    row("check of 300 files in one process", f"{seconds:.2f} s", "2.5 s", seconds <= 2.5, what)
    slowest, largest, clean = read_mutated()
    what = f"{COUNT} mutated recipes, {clean} of them still without a finding"
    row("slowest mutated recipe", f"{slowest:.2f} s", "2 s", slowest <= 2, what)
    row("largest growth by one of them", f"{largest:.0f} MiB", "200 MiB", largest <= 200)
    loaded, same, wanted = compare_corpus()
    files = f"{len(FILES)} files" if FILES else "the corpus is not here"
    row("corpus files that load", str(loaded), str(len(FILES)), loaded == len(FILES), files)
    what = "alone, on several machines, and with Ray"
    row("renderings with their own runner's argv", str(same), str(wanted), same == wanted, what)


def plan_numbers() -> None:
    """The planner's numbers beside those that vLLM printed, or that were measured."""
    for what, ours, reference in planned_numbers():
        close = (
            ours == reference if isinstance(reference, int) else abs(ours / reference - 1) < 0.006
        )
        row(what, f"{ours:,.6g}", f"{reference:,.6g}", close)


def recipe(folder: Path, steps: Sequence[Sequence[object]], port: int) -> str:
    path = folder / "bench.yaml"
    data = {
        "recipe_version": "1",
        "name": NAME,
        "container": STAND_IN_IMAGE,
        "gpus": "none",
        "defaults": {"port": port},
        "env": {"STAND_IN": json.dumps(steps)},
        "command": "vllm serve m --port {port}",
    }
    path.write_text(json.dumps(data))
    return str(path)


def inspect(field: str) -> float:
    done = subprocess.run(
        ["docker", "inspect", "-f", "{{" + field + "}}", NAME],
        check=True,
        capture_output=True,
        text=True,
    )
    text = done.stdout.strip()[:26].rstrip("Z") + "Z"
    return datetime.fromisoformat(text).timestamp()


def down() -> None:
    subprocess.run(["docker", "rm", "-f", NAME], check=False, capture_output=True)


def start_times(folder: Path) -> None:
    path = recipe(folder, [["hang"]], free_port())
    line = subprocess.run(
        [COMMAND, "render", path], check=True, capture_output=True, text=True
    ).stdout

    def until_started(*arguments: str) -> float:
        down()
        began = time.time()
        subprocess.run(arguments, check=True, capture_output=True)
        return inspect(".State.StartedAt") - began

    ours, plain = [], []
    for _ in range(7):
        plain.append(until_started("/bin/bash", "-c", line))
        ours.append(until_started(COMMAND, "up", path, "--no-wait"))
    down()
    value, reference = statistics.median(ours), statistics.median(plain)
    row(
        "from the command to the container's start",
        f"{value:.2f} s",
        f"{2 * reference:.2f} s",
        value <= 2 * reference,
        f"docker run -d: {reference:.2f} s",
    )


def read_until(process: subprocess.Popen[str], word: str) -> float:
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(word):
            return time.time()
    raise RuntimeError(f"no line begins with {word}")


def up(path: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, "up", path, "-d"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


def diagnosis_numbers() -> None:
    rate = max(lines_per_second() for _ in range(3))
    row("log lines per second with all rules", f"{rate:,.0f}", "150,000", rate >= 150_000)
    grown = memory_growth()
    row("memory over a log of 1,000,000 lines", f"{grown:.2f} MiB", "1 MiB", grown <= 1)
    right, count = right_rules()
    row("recordings with the right rule", f"{right}/{count}", f"{count}", right == count)
    rules = len(load_rules())
    row("rules", f"{rules}", "120", rules >= 120)


def media_numbers(folder: Path) -> None:
    peak, seconds = ask_memory(folder)
    what = f"{seconds:.0f} s, the request is sent twice: once to look at the prompt"
    row("memory of ask with a video of 2 GB", f"{peak:.0f} MiB", "120 MiB", peak <= 120, what)
    seconds, parts = cutting_time(folder)
    row("cutting one hour of 720p", f"{seconds:.1f} s", "60 s", seconds <= 60, f"{parts} parts")
    half, worst, direct = gateway_overhead()
    what = f"streamed chat, directly {direct:.1f} ms"
    row("added by the gateway, p50", f"{half:.1f} ms", "3 ms", half <= 3, what)
    row("added by the gateway, p99", f"{worst:.1f} ms", "10 ms", worst <= 10, what)
    peak = gateway_memory()
    row("memory of the gateway with 200 streams", f"{peak:.0f} MiB", "150 MiB", peak <= 150)
    alone, beside, without = text_beside_videos(folder)
    limit, ok = f"{1.2 * alone:.0f} ms", beside <= 1.2 * alone
    what = f"alone {alone:.0f} ms; past the gateway, to the server itself: {without:.0f} ms"
    row("p99 of text under a full queue of videos", f"{beside:.0f} ms", limit, ok, what)


def death_times(folder: Path) -> None:
    values = []
    for _ in range(5):
        down()
        steps: list[list[object]] = [["play", "fail-mamba-align-block-size.log", 0.5], ["exit", 1]]
        process = up(recipe(folder, steps, free_port()))
        told = read_until(process, "cause: ")
        process.wait()
        values.append(told - inspect(".State.FinishedAt"))
    down()
    value = statistics.median(values)
    row("exit of the server to the printed cause", f"{value:.2f} s", "0.50 s", value <= 0.5)


def ready_times(folder: Path) -> None:
    values = []
    for _ in range(5):
        down()
        port = free_port()
        first: list[float] = []

        def poll(port: int = port, first: list[float] = first) -> None:
            while not first:
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                        first.append(time.time())
                except OSError:
                    time.sleep(0.005)

        steps: list[list[object]] = [["play", "ok-tiny-llama-eager.log", 1.5], ["serve"]]
        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        process = up(recipe(folder, steps, port))
        told = read_until(process, "ready: ")
        process.communicate()
        poller.join()
        values.append(told - first[0])
    down()
    value = statistics.median(values)
    row("/health first answers 200 to the printed ready", f"{value:.2f} s", "0.30 s", value <= 0.3)


def memory(folder: Path) -> None:
    down()
    steps: list[list[object]] = [["flood", 1_000_000], ["serve"]]
    process = up(recipe(folder, steps, free_port()))
    began, peak_kib = time.time(), 0
    assert process.stderr is not None
    threading.Thread(target=process.stderr.read, daemon=True).start()
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak_kib = max(peak_kib, int(status.partition("VmHWM:")[2].split()[0]))
        except (OSError, IndexError):
            break
        time.sleep(0.1)
    process.wait()
    down()
    value = peak_kib / 1024
    took = f"{time.time() - began:.0f} s"
    row(
        "resident memory of up while 1,000,000 lines are logged",
        f"{value:.0f} MiB",
        "80 MiB",
        value <= 80,
        took,
    )


def main() -> None:
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command_times(folder)
        recipe_numbers()
        plan_numbers()
        diagnosis_numbers()
        media_numbers(folder)
        try:
            for measure in (start_times, death_times, ready_times, memory):
                measure(folder)
        finally:
            down()


if __name__ == "__main__":
    main()
