"""How much GPU memory is free now.

On a machine whose GPU shares the CPU's memory (GB10) vLLM takes what the kernel calls available
(vllm/utils/mem_utils.py:108-116, from 0.20); NVML says nothing there. Elsewhere `nvidia-smi` is
asked, if there is one.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from spark_vllm_docker.catalog.hardware import Hardware

LIMIT_S = 2.0
_MEMINFO = Path("/proc/meminfo")


def find_free_gib(
    hardware: Hardware | None,
    *,
    here: bool,
    meminfo: Path = _MEMINFO,
    nvidia_smi: str = "nvidia-smi",
) -> float | None:
    """GiB that are free on one GPU; None where that is not known, or where another machine is
    meant.
    """
    if hardware is None or not here:
        return None
    return _read_available(meminfo) if hardware.unified else _ask_nvidia_smi(nvidia_smi)


def _read_available(meminfo: Path) -> float | None:
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) / (1 << 20) if found else None


def _ask_nvidia_smi(program: str) -> float | None:
    """Of the fullest GPU, as any of them may be the one that vLLM gets."""
    command = [program, "--query-gpu=memory.free", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, text=True, timeout=LIMIT_S, check=True
        )
        free = [float(line) for line in told.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return min(free) / 1024 if free else None
