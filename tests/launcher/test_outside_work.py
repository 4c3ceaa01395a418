"""Work that a log does not tell: caches that grow, and GPUs that are busy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_vllm_docker.engine.protocol import Activity, Deployed
from spark_vllm_docker.health.work import Work, is_work, remember, say_idle
from spark_vllm_docker.launcher.outside_work import _ask_gpu, find_caches, measure

IDLE = Activity(10.0, 500)


def deployed(*mounts: tuple[str, str]) -> Deployed:
    return Deployed("1", "n", "i", "running", {}, script="vllm serve org/name", mounts=mounts)


def test_a_cache_is_what_is_allocated(tmp_path: Path) -> None:
    assert measure([tmp_path]) == 0
    (tmp_path / "hub").mkdir()
    part = tmp_path / "hub/weights.incomplete"
    with part.open("wb") as file:
        file.truncate(1 << 30)  # sparse: nothing is downloaded yet
    empty = measure([tmp_path])
    assert empty is not None
    assert empty < 1 << 20
    part.write_bytes(b"x" * (3 << 20))
    os.sync()
    grown = measure([tmp_path])
    assert grown is not None
    assert grown - empty >= 3 << 20
    (tmp_path / "link").symlink_to("/")
    assert measure([tmp_path]) == grown
    assert measure([tmp_path / "none"]) == 0


def test_what_takes_too_long_is_not_known(tmp_path: Path) -> None:
    for name in "abcd":
        (tmp_path / name).touch()
    assert measure([tmp_path], limit_s=-1.0) is None


def test_caches_are_mounts_or_folders_of_the_home(tmp_path: Path) -> None:
    hub, other = tmp_path / "hf", tmp_path / "vllm"
    (hub / "hub").mkdir(parents=True)
    other.mkdir()
    mounts = (
        (str(hub), "/root/.cache/huggingface"),
        (str(other), "/root/.cache/vllm"),
        (str(tmp_path), "/models"),
        ("/nowhere", "/root/.cache/flashinfer"),
    )
    found = find_caches(deployed(*mounts), {}, has_mounts=True)
    assert found == (hub / "hub/models--org--name", other)
    environ = {"HOME": str(tmp_path), "HF_HOME": str(hub), "VLLM_CACHE_ROOT": "/nowhere"}
    (tmp_path / ".cache/vllm").mkdir(parents=True)
    found = find_caches(deployed(), environ, has_mounts=False)
    assert found == (tmp_path / ".cache/vllm", hub / "hub/models--org--name")


@pytest.mark.parametrize(
    ("now", "at_work"),
    [
        (Work(IDLE, 100, 0.0), False),
        (Work(IDLE, 100 + (1 << 20), 0.0), True),
        (Work(IDLE, 4096, 0.0), False),
        (Work(IDLE, 100, 1.0), True),
        (Work(Activity(11.0, 500), 100, 0.0), True),
        (Work(Activity(10.01, 500), 100, 0.0), False),
        (Work(Activity(10.0, 501), 100, 0.0), True),
        (Work(None, 100, None), False),
        (Work(IDLE, None, None), False),
        (Work(IDLE, 99, None), False),
    ],
)
def test_what_counts_as_work(now: Work, at_work: bool) -> None:
    assert is_work(Work(IDLE, 100, 0.0), now, 10.0) is at_work


def test_a_look_that_knew_nothing_is_not_compared_with() -> None:
    assert remember(Work(IDLE, 100, 5.0), Work()) == Work(IDLE, 100)
    assert remember(Work(IDLE, 100), Work(None, 7, 1.0)) == Work(IDLE, 7, 1.0)


def test_only_what_was_seen_is_said_to_be_idle() -> None:
    assert say_idle(Work()) == "no log line"
    assert say_idle(Work(IDLE)) == "no log line, no CPU time, no disk traffic"


SMI = """#!/bin/sh
case "$1" in
  --query-gpu=*) printf '%b' "$GPUS" ;;
  *) printf '%b' "$USERS" ;;
esac
"""


@pytest.mark.parametrize(
    ("gpus", "users", "wanted"),
    [
        ("GPU-a, 40\\nGPU-b, 90\\n", "GPU-a, 7\\nGPU-b, 8\\n", 40.0),
        ("GPU-a, 0\\nGPU-b, 90\\n", "GPU-a, 7\\n", 0.0),
        ("GPU-a, 40\\n", "GPU-a, 7\\nGPU-a, 8\\n", None),
        ("GPU-a, 40\\nGPU-b, 90\\n", "GPU-b, 8\\n", None),
        ("GPU-a, 40\\n", "", None),
        ("GPU-a, [N/A]\\n", "GPU-a, 7\\n", 0.0),
        ("GPU-a, 40\\n", "GPU-a, [N/A]\\n", None),
        ("", "GPU-a, 7\\n", None),
        ("No devices were found\\n", "No devices were found\\n", None),
    ],
)
def test_the_gpu_that_counts_is_the_one_that_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: str,
    users: str,
    wanted: float | None,
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(0o755)
    monkeypatch.setenv("GPUS", gpus)
    monkeypatch.setenv("USERS", users)
    assert _ask_gpu(str(program), frozenset({7})) == wanted


def test_without_a_gpu_nothing_is_said_of_it(tmp_path: Path) -> None:
    assert _ask_gpu(str(tmp_path / "none"), frozenset()) is None
