"""How much GPU memory is free now, as far as the operating system tells.

On a machine whose GPU shares the CPU's memory (GB10) vLLM takes what the kernel calls available
(vllm/utils/mem_utils.py:108-116, from 0.20); NVML says nothing there.
"""

from __future__ import annotations

import re
from pathlib import Path

from spark_vllm_docker.catalog.hardware import Hardware

_MEMINFO = Path("/proc/meminfo")


def find_free_gib(
    hardware: Hardware | None, *, here: bool, meminfo: Path = _MEMINFO
) -> float | None:
    """GiB that are free; None where that is not known, or where another machine is meant."""
    if hardware is None or not hardware.unified or not here:
        return None
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) / (1 << 20) if found else None
