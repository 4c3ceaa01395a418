"""What a machine must have to serve models, judged from facts that were gathered elsewhere.

Pure: the facts come from `launcher/host_facts.py`, and nothing is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

GIB = 1 << 30
_CUDA_13_DRIVER = 580
"""The stock images from 0.20 on are built for CUDA 13, which needs this driver or a newer one."""
_IMAGE_GIB = 25
_WEIGHTS_GIB = 60


class State(StrEnum):
    """How a thing is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """A machine as it was found: None and empty where that could not be told.

    `engine_error` is why the engine does not answer; `free_gib` are free bytes by place, in GiB.
    `cache_writable` is for the Hugging Face cache; `hub_error` is empty when the Hub answered;
    `needs_gpu` is what the recipe says.
    """

    engine: str
    engine_error: str
    engine_fix: str
    engine_has_gpus: bool | None
    driver: str
    gpus: tuple[str, ...]
    hardware: str
    unified: bool
    memory_total_gib: float | None
    memory_free_gib: float | None
    swap_gib: float | None
    earlyoom: bool
    image_folder: str
    image_free_gib: float | None
    cache_folder: str
    cache_free_gib: float | None
    cache_writable: bool | None
    has_token: bool
    token_from: str
    hub_error: str | None
    taken_ports: Mapping[int, str]
    needs_gpu: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """One line of `doctor`: what was found, why it matters, and the command that mends it."""

    name: str
    state: State
    found: str
    why: str
    mend: str = ""


def examine(facts: HostFacts) -> list[Line]:
    """Every line, in the order in which a start needs them."""
    return [
        _engine(facts),
        *([_gpu_support(facts), _driver(facts), _gpus(facts)] if facts.needs_gpu else []),
        _memory(facts),
        *([_swap(facts), _earlyoom(facts)] if facts.unified else []),
        _disk(
            "images", facts.image_folder, facts.image_free_gib, _IMAGE_GIB, "docker system prune"
        ),
        _disk("weights", facts.cache_folder, facts.cache_free_gib, _WEIGHTS_GIB, "hf cache delete"),
        _cache(facts),
        _token(facts),
        _hub(facts),
        *_ports(facts),
    ]


def _engine(facts: HostFacts) -> Line:
    why = "containers are started through it"
    if facts.engine_error:
        return Line("engine", State.ERROR, facts.engine_error, why, facts.engine_fix)
    return Line("engine", State.OK, facts.engine, why)


def _gpu_support(facts: HostFacts) -> Line:
    why = "without the NVIDIA runtime or a CDI file no container sees a GPU"
    mend = (
        "sudo apt-get install nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
        "--runtime=docker && sudo systemctl restart docker"
    )
    if facts.engine_has_gpus is None:
        return Line("gpu support", State.UNKNOWN, "the engine does not answer", why)
    if facts.engine_has_gpus:
        return Line("gpu support", State.OK, "the engine can give GPUs to containers", why)
    return Line(
        "gpu support", State.ERROR, "the engine has no NVIDIA runtime and no CDI", why, mend
    )


def _driver(facts: HostFacts) -> Line:
    why = f"images for CUDA 13 need driver {_CUDA_13_DRIVER} or newer"
    if not facts.driver:
        mend = "sudo ubuntu-drivers install, then restart"
        return Line("driver", State.ERROR, "there is no NVIDIA driver", why, mend)
    major = facts.driver.partition(".")[0]
    if major.isdecimal() and int(major) < _CUDA_13_DRIVER:
        mend = f"sudo apt-get install nvidia-driver-{_CUDA_13_DRIVER}-open, then restart"
        return Line("driver", State.WARNING, facts.driver, why, mend)
    return Line("driver", State.OK, facts.driver, why)


def _gpus(facts: HostFacts) -> Line:
    why = "`when:` blocks and the plan go by it"
    if not facts.gpus:
        mend = "sudo dmesg | grep -i nvrm says why"
        return Line("gpu", State.ERROR, "the driver lists none", why, mend)
    found = ", ".join(facts.gpus)
    if not facts.hardware:
        mend = "--hardware, or hardware: in ~/.config/spark-recipe/config.yaml"
        return Line("gpu", State.WARNING, f"{found}: none that recipes name", why, mend)
    return Line("gpu", State.OK, f"{found}: {facts.hardware}", why)


def _memory(facts: HostFacts) -> Line:
    why = "vLLM asks for its share at the start, and stops when it is not free"
    if facts.memory_total_gib is None or facts.memory_free_gib is None:
        return Line("memory", State.UNKNOWN, "the operating system does not say", why)
    shared = ", shared with the GPU (NVML reports none)" if facts.unified else " of the machine"
    found = f"{facts.memory_free_gib:.1f} of {facts.memory_total_gib:.1f} GiB free{shared}"
    low = facts.unified and facts.memory_free_gib < 0.75 * facts.memory_total_gib
    mend = "spark-recipe ps shows what runs; spark-recipe down ends it" if low else ""
    return Line("memory", State.WARNING if low else State.OK, found, why, mend)


def _swap(facts: HostFacts) -> Line:
    why = "with shared memory the kernel swaps instead of failing, and the machine stands still"
    if facts.swap_gib is None:
        return Line("swap", State.UNKNOWN, "the operating system does not say", why)
    if facts.swap_gib > 0:
        return Line("swap", State.WARNING, f"{facts.swap_gib:.1f} GiB", why, "sudo swapoff -a")
    return Line("swap", State.OK, "none", why)


def _earlyoom(facts: HostFacts) -> Line:
    why = "it ends the largest process before a machine with shared memory freezes"
    if facts.earlyoom:
        return Line("earlyoom", State.OK, "runs", why)
    mend = "sudo apt-get install earlyoom"
    return Line("earlyoom", State.WARNING, "does not run", why, mend)


def _disk(what: str, folder: str, free: float | None, wanted: float, mend: str) -> Line:
    why = f"{what} of one model take up to {wanted:.0f} GiB"
    if free is None:
        return Line(f"disk for {what}", State.UNKNOWN, f"{folder or 'the folder'} is not here", why)
    state = State.OK if free >= wanted else State.WARNING if free >= wanted / 4 else State.ERROR
    found = f"{free:.0f} GiB free under {folder}"
    return Line(f"disk for {what}", state, found, why, "" if state is State.OK else mend)


def _cache(facts: HostFacts) -> Line:
    why = "weights are downloaded into it once, and every container mounts it"
    if facts.cache_writable is None:
        return Line("cache", State.OK, f"{facts.cache_folder} will be made", why)
    if facts.cache_writable:
        return Line("cache", State.OK, facts.cache_folder, why)
    mend = f"sudo chown -R $USER {facts.cache_folder}"
    return Line("cache", State.WARNING, f"{facts.cache_folder} is not yours to write", why, mend)


def _token(facts: HostFacts) -> Line:
    why = "gated models answer 401 without it"
    if facts.has_token:
        return Line("hub token", State.OK, facts.token_from, why)
    mend = "export HF_TOKEN=…, or hf auth login"
    return Line("hub token", State.WARNING, "no HF_TOKEN and none saved", why, mend)


def _hub(facts: HostFacts) -> Line:
    why = "weights that are not in the cache come from there"
    if facts.hub_error is None:
        return Line("hub", State.UNKNOWN, "not asked", why)
    if facts.hub_error:
        mend = "HF_ENDPOINT names a mirror; HF_HUB_OFFLINE=1 uses the cache alone"
        return Line("hub", State.WARNING, facts.hub_error, why, mend)
    return Line("hub", State.OK, "answers", why)


def _ports(facts: HostFacts) -> list[Line]:
    why = "the server is published on it"
    lines = []
    for port, holder in facts.taken_ports.items():
        if holder:
            mend = f"--set port={port + 1}, or end what listens there"
            lines.append(Line(f"port {port}", State.ERROR, holder, why, mend))
        else:
            lines.append(Line(f"port {port}", State.OK, "free", why))
    return lines
