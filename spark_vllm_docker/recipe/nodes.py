"""What the version-1 format does to a command on one machine, and on several.

The rules are those of the format's own runner: `tensor_parallel` counts machines with one GPU each,
so on one machine it is 1 unless it is asked for; a distributed executor is taken off unless Ray is
asked for; and vLLM's own multi-node flags go to the end of each machine's command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_vllm_docker.recipe.serve import ServeCommand

PARAMETER = "tensor_parallel"
MASTER_PORT = 29501
_BACKEND = re.compile(r"--distributed-executor-backend(?:\s+|=)\S+")
_SIZES = (
    ("--tensor-parallel-size", "-tp"),
    ("--pipeline-parallel-size", "-pp"),
    ("--data-parallel-size", "-dp"),
)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The machines of a deployment, the head first; none for this machine alone.

    `ray` starts the server on the head only, inside a Ray cluster that runs already.
    """

    addresses: tuple[str, ...] = ()
    ray: bool = False

    @property
    def several(self) -> bool:
        """More than one machine."""
        return len(self.addresses) > 1


def apply_nodes(command: str, nodes: Nodes) -> str:
    """The rules for the executor: with Ray it is named, otherwise it is taken off."""
    if not (nodes.several and nodes.ray):
        return _strip_executor(command)
    if "vllm serve" in command and "--distributed-executor-backend" not in command:
        return f"{command} --distributed-executor-backend ray"
    return command


def count_needed(serve: ServeCommand) -> int:
    """How many GPUs, one in each machine, the parallel sizes of a command take.

    Raises:
        ValueError: a size is not a number.
    """
    needed = 1
    for names in _SIZES:
        values = [value for name in names if (value := serve.flag(name))]
        needed *= int(values[-1]) if values else 1
    return needed


def node_arguments(nodes: Nodes, rank: int) -> tuple[str, ...]:
    """VLLM's own flags for one of several machines (vllm/engine/arg_utils.py, 0.16 to 0.32)."""
    if not nodes.several or nodes.ray:
        return ()
    head = nodes.addresses[0]
    return (
        *("--nnodes", str(len(nodes.addresses)), "--node-rank", str(rank)),
        *("--master-addr", head, "--master-port", str(MASTER_PORT)),
        *(("--headless",) if rank else ()),
    )


def _strip_executor(command: str) -> str:
    """Without the executor, and without blank and lone-backslash lines: those go in any case, and a
    continuation that a blank line has cut off is one again.
    """
    stripped = _BACKEND.sub("", command)
    lines = [line for line in stripped.split("\n") if line.strip() not in ("", "\\")]
    return "\n".join(lines).rstrip().removesuffix("\\").rstrip()
