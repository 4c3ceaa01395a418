"""Work of a container that its log does not tell: CPU and disk from the engine, the growth of its
cache folders, and its GPU from `nvidia-smi`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.health.work import Work

LIMIT_S = 2.0
MOST_FILES = 50_000
_BLOCK_BYTES = 512
"""Of `st_blocks`: what is allocated, so that a sparse file grows as it is filled."""
_CACHE_WORDS = ("cache", ".triton", ".nv")
_HOME_CACHES = (".cache/huggingface", ".cache/vllm", ".cache/flashinfer", ".triton", ".nv")


def look_at_work(
    engine: Engine,
    deployed: Deployed,
    environ: Mapping[str, str],
    nvidia_smi: str = "nvidia-smi",
) -> Work:
    """What the container has used so far, and what it does now; of an engine on another machine,
    only what that tells.
    """
    activity = engine.activity(deployed.id)
    if not engine.runs_here:
        return Work(activity)
    caches = find_caches(deployed, environ, has_mounts=engine.kind != "process")
    gpu = _ask_gpu(nvidia_smi, engine.processes(deployed.id))
    return Work(activity, measure(caches) if caches else None, gpu)


def find_caches(
    deployed: Deployed, environ: Mapping[str, str], *, has_mounts: bool
) -> tuple[Path, ...]:
    """Folders of this machine in which the server keeps weights and what it builds."""
    if has_mounts:
        return tuple(
            Path(source)
            for source, target in deployed.mounts
            if any(word in target for word in _CACHE_WORDS)
        )
    home = Path(environ.get("HOME") or "/")
    folders = [home / name for name in _HOME_CACHES]
    folders += [Path(environ[name]) for name in ("HF_HOME", "VLLM_CACHE_ROOT") if environ.get(name)]
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def measure(folders: Iterable[Path]) -> int | None:
    """Bytes on disk; None when there is too much to look at."""
    total = count = 0
    waiting = [os.fspath(folder) for folder in folders]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES:
                    return None
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return total


def _ask_gpu(program: str, processes: frozenset[int]) -> float | None:
    """How busy the busiest GPU is on which one of these processes is; where `nvidia-smi` sees no
    process at all, as inside a container, of all GPUs. None without an NVIDIA GPU.
    """
    busy = _query(program, "--query-gpu=uuid,utilization.gpu")
    users = _query(program, "--query-compute-apps=gpu_uuid,pid")
    if not busy or users is None:
        return None
    own = {uuid for uuid, pid in users if pid.isdecimal() and int(pid) in processes}
    found = [_percent(share) for uuid, share in busy if uuid in own or not users]
    return max(found, default=0.0)


def _percent(text: str) -> float:
    return float(text) if text.isdecimal() else 0.0


def _query(program: str, what: str) -> list[tuple[str, str]] | None:
    command = [program, what, "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, text=True, timeout=LIMIT_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    rows = [line.split(", ") for line in told.stdout.splitlines()]
    return [(row[0], row[1].strip()) for row in rows if len(row) == 2]
