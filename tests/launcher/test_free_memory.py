"""How much GPU memory is free, and what holds the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_vllm_docker.catalog.hardware import load_hardware
from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.launcher.free_memory import find_free_gib
from spark_vllm_docker.launcher.neighbours import judge_free_memory

MISSING = Finding("MEM003", Severity.ERROR, "0.8 asks for 97.4 GiB, and 60.0 GiB are free now")
OTHER = Finding("MAMBA001", Severity.ERROR, "x")


def write_nvidia_smi(folder: Path, script: str) -> str:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_the_fullest_gpu_counts(tmp_path: Path) -> None:
    program = write_nvidia_smi(tmp_path, "echo 81920; echo 40960")
    h100 = load_hardware()["h100"]
    assert find_free_gib(h100, here=True, nvidia_smi=program) == 40.0
    assert find_free_gib(h100, here=False, nvidia_smi=program) is None
    assert find_free_gib(None, here=True, nvidia_smi=program) is None


@pytest.mark.parametrize("script", ["exit 9", "echo '[N/A]'", "true", "echo 'No devices found'"])
def test_what_nvidia_smi_does_not_tell_is_not_known(tmp_path: Path, script: str) -> None:
    program = write_nvidia_smi(tmp_path, script)
    assert find_free_gib(load_hardware()["h100"], here=True, nvidia_smi=program) is None
    assert find_free_gib(load_hardware()["h100"], here=True, nvidia_smi="/no/such") is None


@dataclass
class Host:
    """What runs there."""

    deployed: list[Deployed] = field(default_factory=list)

    def list_ours(self) -> list[Deployed]:
        return self.deployed


def running(name: str, state: str = "running") -> Deployed:
    return Deployed(name, name, "image", state, {})  # type: ignore[arg-type]


def test_the_memory_of_the_deployment_itself_is_not_missing() -> None:
    host = Host([running("omni"), running("text")])
    assert judge_free_memory([MISSING, OTHER], host, "omni") == (OTHER,)


def test_who_holds_the_memory_is_said() -> None:
    host = Host([running("omni"), running("text"), running("old", "exited")])
    first, second = judge_free_memory([MISSING, OTHER], host, "other")
    assert first.message.endswith("are free now; running here: omni, text")
    assert second == OTHER
    assert judge_free_memory([MISSING], Host(), "other") == (MISSING,)
