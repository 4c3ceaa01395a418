"""What a container does while its log is silent, as it is seen from outside.

Imports, downloads without a progress line and JIT builds print nothing for minutes: silence alone
is no sign of death.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_vllm_docker.engine.protocol import Activity

IDLE_CORES = 0.05
"""Less than this share of one core is what an idle server uses for its heartbeats."""
LEAST_GROWTH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Work:
    """One look: what the container used so far, bytes in its cache folders, and how busy its GPU is
    in percent; each None where it cannot be told.
    """

    activity: Activity | None = None
    cache_bytes: int | None = None
    gpu_percent: float | None = None


def is_work(before: Work, now: Work, seconds: float) -> bool:
    """Whether something was done between two looks."""
    grown = cache_growth(before, now)
    if (now.gpu_percent or 0) > 0 or grown > 0:
        return True
    if before.activity is None or now.activity is None:
        return False
    cores = (now.activity.cpu_s - before.activity.cpu_s) / seconds
    return cores > IDLE_CORES or now.activity.disk_bytes > before.activity.disk_bytes


def remember(before: Work, now: Work) -> Work:
    """What to compare the next look with: where this one knew nothing, the one before."""
    activity = before.activity if now.activity is None else now.activity
    cache_bytes = before.cache_bytes if now.cache_bytes is None else now.cache_bytes
    return Work(activity, cache_bytes, now.gpu_percent)


def cache_growth(before: Work, now: Work) -> int:
    """Bytes by which the caches grew; 0 where that is not known, or too little to be a download."""
    if before.cache_bytes is None or now.cache_bytes is None:
        return 0
    grown = now.cache_bytes - before.cache_bytes
    return grown if grown >= LEAST_GROWTH_BYTES else 0


def say_idle(work: Work) -> str:
    """What was idle, of that which can be seen."""
    seen = ["no log line"]
    if work.activity is not None:
        seen += ["no CPU time", "no disk traffic"]
    if work.cache_bytes is not None:
        seen.append("no growth of the caches")
    if work.gpu_percent is not None:
        seen.append("its GPU idle")
    return ", ".join(seen)
