"""Work of a container that its log does not tell: CPU and disk from the engine, the growth of its
cache folders, and its GPU from `nvidia-smi`.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.health.work import Work
from spark_vllm_docker.recipe.serve import parse_serve

LIMIT_S = 2.0
"""For each of: the caches, and a question to the driver. What takes longer is not known."""
_BLOCK_BYTES = 512
"""Of `st_blocks`: what is allocated, so that a sparse file grows as it is filled."""
_CACHE_WORDS = ("cache", ".triton", ".nv")
_HUB = "hub"
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
        mounts = deployed.mounts
        folders = [Path(s) for s, target in mounts if any(word in target for word in _CACHE_WORDS)]
    else:
        home = Path(environ.get("HOME") or "/")
        folders = [home / name for name in _HOME_CACHES]
        named = (environ.get("HF_HOME"), environ.get("VLLM_CACHE_ROOT"))
        folders += [Path(name) for name in named if name]
    serve = parse_serve(deployed.script)
    model = serve.model if serve else ""
    return tuple(dict.fromkeys(_narrow(folder, model) for folder in folders if folder.is_dir()))


def _narrow(folder: Path, model: str) -> Path:
    """Of the Hugging Face cache, which others fill too, the part of the model."""
    if (folder / _HUB).is_dir() and model and not model.startswith("/"):
        return folder / _HUB / f"models--{model.replace('/', '--')}"
    return folder


def measure(folders: Iterable[Path], limit_s: float = LIMIT_S) -> int | None:
    """Bytes on disk; None when it takes too long to look."""
    total, end = 0, time.monotonic() + limit_s
    waiting = [os.fspath(folder) for folder in folders]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if time.monotonic() > end:
                    return None
                with suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    return total


def _ask_gpu(program: str, processes: frozenset[int]) -> float | None:
    """How busy the busiest GPU is on which these processes are alone; None where there is none, as
    beside a neighbour, whose work looks the same, inside a container, where `nvidia-smi` sees no
    process, or without an NVIDIA GPU.
    """
    users = _query(program, "--query-compute-apps=gpu_uuid,pid")
    owners: dict[str, set[int]] = {}
    for uuid, pid in users or ():
        owners.setdefault(uuid, set()).add(int(pid) if pid.isdecimal() else 0)
    own = {uuid for uuid, pids in owners.items() if pids <= processes}
    if not own:
        return None
    busy = _query(program, "--query-gpu=uuid,utilization.gpu") or ()
    return max((_percent(share) for uuid, share in busy if uuid in own), default=None)


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
