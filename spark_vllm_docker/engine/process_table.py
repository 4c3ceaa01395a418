"""Processes by identity, from /proc. A pid alone is not an identity: the kernel uses it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spark_vllm_docker.engine.protocol import Activity

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Identity:
    """A pid and the kernel's start time of the process, in clock ticks since boot."""

    pid: int
    started_ticks: int


def is_alive(process: Identity) -> bool:
    """Whether that very process still runs; a zombie does not."""
    fields = _stat(process.pid)
    return fields is not None and fields[0] != "Z" and int(fields[19]) == process.started_ticks


def is_taken_over(process: Identity) -> bool:
    """Whether the pid belongs to another process now. (While a group lives on without its leader,
    the kernel does not give the leader's pid away.)
    """
    fields = _stat(process.pid)
    return fields is not None and int(fields[19]) != process.started_ticks


def group_is_alive(group: int) -> bool:
    """Whether a process of the group still runs."""
    return any(fields[0] != "Z" for _, fields in _members(group))


def group_processes(group: int) -> frozenset[int]:
    """The ids of a group's processes."""
    return frozenset(pid for pid, fields in _members(group) if fields[0] != "Z")


def group_activity(group: int) -> Activity:
    """CPU seconds (also of ended children that were waited for) and disk bytes of a process
    group.
    """
    ticks = moved = 0
    for pid, fields in _members(group):
        ticks += sum(int(fields[index]) for index in (11, 12, 13, 14))
        with suppress(OSError, ValueError):
            for line in (_PROC / str(pid) / "io").read_text().splitlines():
                if line.startswith(("read_bytes:", "write_bytes:")):
                    moved += int(line.split()[1])
    return Activity(ticks / _TICKS_PER_S, moved)


def _members(group: int) -> Iterator[tuple[int, list[str]]]:
    with os.scandir(_PROC) as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        fields = _stat(pid)
        if fields is not None and int(fields[2]) == group:
            yield pid, fields


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, ppid, pgrp, … (proc(5), from field 3)."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
