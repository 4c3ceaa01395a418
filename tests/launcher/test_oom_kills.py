"""What the kernel tells of processes that it killed for want of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.diagnose.root_line import RootLine
from spark_vllm_docker.engine.protocol import Deployed, Exit
from spark_vllm_docker.engine.recorder import RecorderEngine
from spark_vllm_docker.launcher.oom_kills import KillCounter, find_oom_kill, read_oom_kill

OURS = "d011094a34f13e4bb53d6b5e706624be1d7b9e782e0fce944d9711ccb6e50d6d"
OTHERS = "e" * 64
# As Linux 6.1 writes them: of a limit of a container, and of a whole machine.
LIMIT = (
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={id},mems_allowed=0,"
    "oom_memcg=/docker/{id},task_memcg=/docker/{id},task=python3,pid=25724,uid=0\n"
    "Memory cgroup out of memory: Killed process 25724 (python3) total-vm:218576kB, "
    "anon-rss:60928kB, file-rss:5132kB, shmem-rss:0kB, UID:0 pgtables:180kB oom_score_adj:0\n"
)
MACHINE = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=init.scope,mems_allowed=0,"
    "global_oom,task_memcg=/system.slice/docker-{id}.scope,task=VLLM::EngineCor,pid=31,uid=0\n"
    "Out of memory: Killed process 31 (VLLM::EngineCor) total-vm:218576000kB, "
    "anon-rss:103809024kB, file-rss:5132kB, shmem-rss:0kB, UID:0 pgtables:180kB\n"
)


@pytest.mark.parametrize(
    ("log", "wanted"),
    [
        (LIMIT.format(id=OURS), "python3, process 25724, held 0.1 GiB"),
        (MACHINE.format(id=OURS), "VLLM::EngineCor, process 31, held 99.0 GiB"),
        (
            LIMIT.format(id=OURS) + MACHINE.format(id=OTHERS),
            "python3, process 25724, held 0.1 GiB",
        ),
        (MACHINE.format(id=OTHERS), ""),
        (MACHINE.format(id=OTHERS).replace("cpuset=init.scope", f"cpuset={OURS}"), ""),
        ("", ""),
        ("Killed process 1 (x) anon-rss:5kB\n", ""),
    ],
)
def test_the_kernels_log_names_the_container(log: str, wanted: str) -> None:
    assert read_oom_kill(OURS, iter(log.splitlines())) == wanted


@pytest.mark.parametrize("name", ["", "docker", "user", "1", "task", OURS[:12]])
def test_a_deployment_without_a_container_is_not_looked_for(name: str) -> None:
    assert read_oom_kill(name, iter(LIMIT.format(id=OURS).splitlines())) == ""


def test_a_name_with_escapes_is_shown_as_such() -> None:
    log = LIMIT.format(id=OURS).replace("(python3)", "(\x1b]0;x\x07)")
    assert read_oom_kill(OURS, iter(log.split("\n"))).startswith("\\x1b]0;x\\x07, process")


def test_the_counter(tmp_path: Path) -> None:
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("pgfault 5\noom_kill 3\n")
    counter = KillCounter(vmstat)
    assert counter.grown() == 0
    vmstat.write_text("pgfault 5\noom_kill 5\n")
    assert counter.grown() == 2
    vmstat.unlink()
    assert counter.grown() == 0
    assert KillCounter(vmstat).grown() == 0


class Here(RecorderEngine):
    runs_here = True


class Rose(KillCounter):
    def grown(self) -> int:
        return 1


SILENT = RootLine("Engine core initialization failed. Failed core proc(s): {}", echo=True)


@pytest.mark.parametrize(
    ("ended", "root", "is_found"),
    [
        (Exit(137), None, True),
        (Exit(137), RootLine("KeyError: 'x'"), True),
        (Exit(1), SILENT, True),
        (Exit(0), None, True),
        (Exit(1), RootLine("KeyError: 'x'"), False),
        (Exit(137, stopped=True), None, False),
        (Exit(1, out_of_memory=True), RootLine("KeyError: 'x'"), True),
    ],
)
def test_the_counter_counts_for_those_that_were_killed(
    ended: Exit, root: RootLine | None, is_found: bool
) -> None:
    deployed = Deployed("no-container-has-this-id", "n", "i", "exited", {}, exit=ended)
    found = find_oom_kill(Here(), deployed, ended, root, Rose())
    assert bool(found) is is_found
    if not ended.out_of_memory:
        assert find_oom_kill(Here(), deployed, ended, root) == ""
    assert find_oom_kill(RecorderEngine(), deployed, Exit(137), None, Rose()) == ""
