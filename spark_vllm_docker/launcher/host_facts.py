"""The facts of this machine that `doctor` judges. Every question has a time limit or is a file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from spark_vllm_docker.catalog.hardware import load_hardware, match_gpu
from spark_vllm_docker.engine.protocol import Engine
from spark_vllm_docker.errors import EngineError, PortTaken
from spark_vllm_docker.launcher.ports import check_port_free
from spark_vllm_docker.plan.host import GIB, HostFacts

LOOPBACK = "127.0.0.1"


def gather_facts(
    engine: Engine | None,
    engine_trouble: EngineError | None,
    environ: Mapping[str, str],
    ports: Sequence[int],
    ask_hub: Callable[[], str] | None,
    root: Path = Path("/"),
) -> HostFacts:
    """Ask the engine, the kernel and, with `ask_hub`, the Hub. `root` is for tests."""
    memory = _read_meminfo(root / "proc/meminfo")
    gpus = _read_gpus(root / "proc/driver/nvidia/gpus")
    hardware = next((found for gpu in gpus if (found := match_gpu(gpu))), "")
    cache = Path(environ.get("HF_HOME") or f"{environ.get('HOME', '~')}/.cache/huggingface")
    saved = cache / "token"
    images = root / "var/lib/docker"
    return HostFacts(
        engine=_describe_engine(engine),
        engine_error=engine_trouble.message if engine_trouble else "",
        engine_fix=engine_trouble.hint if engine_trouble else "",
        engine_has_gpus=_has_gpus(engine),
        driver=_read_driver(root / "proc/driver/nvidia/version"),
        gpus=gpus,
        hardware=hardware,
        unified=bool(hardware) and load_hardware()[hardware].unified,
        memory_total_gib=memory.get("MemTotal"),
        memory_free_gib=memory.get("MemAvailable"),
        swap_gib=memory.get("SwapTotal"),
        earlyoom=_runs("earlyoom", root / "proc"),
        image_folder=str(images),
        image_free_gib=_free_gib(images) if images.exists() else None,
        cache_folder=str(cache),
        cache_free_gib=_free_gib(cache),
        cache_writable=os.access(cache, os.W_OK) if cache.exists() else None,
        has_token=bool(environ.get("HF_TOKEN")) or saved.is_file(),
        token_from="HF_TOKEN" if environ.get("HF_TOKEN") else str(saved),
        hub_error=ask_hub() if ask_hub else None,
        taken_ports={port: _find_holder(port, engine) for port in ports} if engine else {},
    )


def _describe_engine(engine: Engine | None) -> str:
    if engine is None:
        return ""
    info = engine.check()
    return " ".join(part for part in (info.kind, info.version, info.address) if part)


def _has_gpus(engine: Engine | None) -> bool | None:
    if engine is None:
        return None
    try:
        return engine.can_use_gpus()
    except EngineError:
        return None


def _find_holder(port: int, engine: Engine) -> str:
    try:
        check_port_free(LOOPBACK, port, engine)
    except PortTaken as error:
        return error.message
    except EngineError:
        return ""
    return ""


def _read_meminfo(path: Path) -> dict[str, float]:
    """GiB by name."""
    with suppress(OSError):
        rows = re.findall(r"^(\w+):\s+(\d+) kB", path.read_text(), re.MULTILINE)
        return {name: int(kib) * 1024 / GIB for name, kib in rows}
    return {}


def _read_gpus(folder: Path) -> tuple[str, ...]:
    found = []
    for file in sorted(folder.glob("*/information")):
        with suppress(OSError):
            model = re.search(r"^Model:\s*(.+)$", file.read_text(errors="replace"), re.MULTILINE)
            found += [model[1].strip()] if model else []
    return tuple(found)


def _read_driver(path: Path) -> str:
    with suppress(OSError):
        found = re.search(r"\b(\d{3}\.\d+(?:\.\d+)?)\b", path.read_text(errors="replace"))
        return found[1] if found else ""
    return ""


def _runs(name: str, proc: Path) -> bool:
    for comm in proc.glob("[0-9]*/comm"):
        with suppress(OSError):
            if comm.read_text(errors="replace").strip() == name:
                return True
    return False


def _free_gib(path: Path) -> float | None:
    """Of the file system that the path is on, or will be."""
    for place in (path, *path.parents):
        with suppress(OSError):
            return shutil.disk_usage(place).free / GIB
    return None
