"""The machines that recipes name, and which of them this one is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spark_vllm_docker.catalog.yaml_data import read_data

_DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True, slots=True)
class Hardware:
    """A kind of machine.

    `capability` is the compute capability (`12.1`, empty without a GPU), `architecture` the CPU's
    (`arm64`, `amd64`; empty when either), `memory_gb` the size that it is sold with, `total_gib`
    what CUDA says, `nvml_memory_gib` what NVML says (0 on a GB10), `unified` whether the CPU
    shares it.
    """

    name: str
    gpu: str
    capability: str
    architecture: str
    memory_gb: int
    total_gib: float
    nvml_memory_gib: float
    unified: bool = False


@cache
def load_hardware() -> dict[str, Hardware]:
    """Every kind of machine, by name."""
    return {name: Hardware(name, **entry) for name, entry in read_data("hardware.yaml").items()}


def match_gpu(model: str) -> str:
    """The hardware of a GPU's name, such as `NVIDIA GB10`; empty when it is none of ours."""
    for name, hardware in load_hardware().items():
        if hardware.gpu and re.search(hardware.gpu, model):
            return name
    return ""


def detect_hardware(driver: Path = _DRIVER) -> str:
    """What this machine is, from what the NVIDIA driver says of its first GPU; empty if unknown.

    A machine without the driver is not taken for `cpu`: the engine may run elsewhere.
    """
    try:
        for file in sorted(driver.glob("*/information")):
            found = re.search(r"^Model:\s*(.+)$", file.read_text(errors="replace"), re.MULTILINE)
            if found:
                return match_gpu(found[1])
    except OSError:
        pass
    return ""
