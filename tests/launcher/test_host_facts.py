"""The facts of a machine, from a /proc of our own and from a recorder engine."""

from __future__ import annotations

import socket
from pathlib import Path

from spark_vllm_docker.engine.recorder import RecorderEngine
from spark_vllm_docker.errors import EngineUnavailable
from spark_vllm_docker.launcher.host_facts import gather_facts


def machine(root: Path) -> Path:
    for path, text in {
        "proc/meminfo": "MemTotal: 127602688 kB\nMemAvailable: 104857600 kB\nSwapTotal: 0 kB\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release\n",
        "proc/driver/nvidia/gpus/000f:01:00.0/information": "Model: \t\t NVIDIA GB10\n",
        "proc/7/comm": "earlyoom\n",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def test_a_spark_is_read_from_its_proc(tmp_path: Path) -> None:
    root = machine(tmp_path)
    home = {"HOME": str(tmp_path / "home"), "HF_TOKEN": "secret"}
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        facts = gather_facts(RecorderEngine(), None, home, [port], lambda: "", root)
    assert (facts.driver, facts.gpus, facts.hardware) == (
        "580.95.05",
        ("NVIDIA GB10",),
        "dgx-spark",
    )
    assert facts.unified
    assert (facts.memory_free_gib, facts.swap_gib, facts.earlyoom) == (100.0, 0.0, True)
    assert (facts.has_token, facts.token_from, facts.hub_error) == (True, "HF_TOKEN", "")
    assert facts.cache_writable is None
    assert facts.image_free_gib is None
    assert "is taken by the process" in facts.taken_ports[port]
    assert "secret" not in repr(facts)


def test_a_machine_with_nothing(tmp_path: Path) -> None:
    trouble = EngineUnavailable("no engine answers", hint="start one")
    facts = gather_facts(None, trouble, {"HOME": str(tmp_path)}, [1], None, tmp_path)
    assert (facts.engine_error, facts.engine_fix) == ("no engine answers", "start one")
    assert (facts.engine_has_gpus, facts.driver, facts.gpus, facts.hardware) == (None, "", (), "")
    assert (facts.memory_total_gib, facts.hub_error, facts.taken_ports) == (None, None, {})
