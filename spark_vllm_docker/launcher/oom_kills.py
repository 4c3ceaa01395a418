"""Whether the kernel killed a process of a server for want of memory.

An engine tells that of a container with a memory limit. Where the whole machine runs out, as a GB10
does, the kernel's log tells: it names the cgroup of the process that it killed, and with that the
container (`dump_oom_summary` of Linux, mm/oom_kill.c). Its counter in /proc/vmstat tells less, but
may be read by everybody.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from spark_vllm_docker.diagnose.root_line import RootLine
from spark_vllm_docker.engine.protocol import Deployed, Engine, Exit
from spark_vllm_docker.findings import printable

LIMIT_S = 3.0
_KMSG = Path("/dev/kmsg")
_VMSTAT = Path("/proc/vmstat")
_RECORD_BYTES = 8192
_SIGKILL = 137
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
_MARK = "oom-kill:constraint="
_KILLED = re.compile(r"Killed process (\d+) \((.{1,64}?)\).*?anon-rss:(\d+)kB")


class KillCounter:
    """Kills for want of memory on this machine since the object was made."""

    def __init__(self, vmstat: Path = _VMSTAT) -> None:
        self._vmstat = vmstat
        self._before = self._read()

    def grown(self) -> int:
        """How many there were; 0 where the kernel does not count."""
        return max(0, self._read() - self._before)

    def _read(self) -> int:
        try:
            found = re.search(r"^oom_kill (\d+)$", self._vmstat.read_text(), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0


def find_oom_kill(
    engine: Engine,
    deployed: Deployed,
    ended: Exit,
    root: RootLine | None,
    counter: KillCounter | None = None,
) -> str:
    """What shows that memory ran out, in words; empty where nothing does.

    The counter knows of the whole machine, so it counts only for a server that was killed or left
    no error of its own.
    """
    words = read_oom_kill(deployed.id, _read_kernel_log(deployed)) if engine.runs_here else ""
    if words:
        return words
    if ended.out_of_memory:
        return "the engine says so"
    is_silent = ended.code == _SIGKILL or root is None or root.echo
    if engine.runs_here and is_silent and not ended.stopped and counter and counter.grown():
        return "the machine's counter of such kills rose meanwhile"
    return ""


def read_oom_kill(container_id: str, lines: Iterator[str]) -> str:
    """The process of this container that the kernel killed last, from the kernel's log."""
    found, is_ours = "", False
    if not _CONTAINER_ID.fullmatch(container_id):  # of a process the cgroup is its user's
        return ""
    for line in lines:
        if _MARK in line:
            is_ours = container_id in line.partition("task_memcg=")[2].partition(",")[0]
        elif is_ours and (killed := _KILLED.search(line)):
            name, held = printable(killed[2]), int(killed[3]) / (1 << 20)
            found, is_ours = f"{name}, process {killed[1]}, held {held:.1f} GiB", False
    return found


def _read_kernel_log(deployed: Deployed) -> Iterator[str]:
    """The kernel's own buffer, which root may read, else the journal's copy of it."""
    try:
        handle = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        yield from _read_journal(deployed.started_at)
        return
    try:
        while True:
            try:
                record = os.read(handle, _RECORD_BYTES)
            except BrokenPipeError:  # that record was written over meanwhile
                continue
            except OSError:
                return
            if not record:
                return
            yield record.decode("utf-8", "replace").partition(";")[2]
    finally:
        os.close(handle)


def _read_journal(since: float) -> Iterator[str]:
    command = ["journalctl", "--dmesg", "--quiet", "--no-pager", "--output=cat"]
    with suppress(OSError, subprocess.SubprocessError):
        told = subprocess.run(  # noqa: S603 - a fixed command
            [*command, f"--since=@{since:.0f}"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
        yield from told.stdout.splitlines()
