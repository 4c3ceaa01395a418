"""`down`: stop a deployment and remove it with its log; on a GPU, see that its memory is back."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.recipe.serve import parse_serve

MEMORY_WAIT_S = 15.0
_STEP_S = 0.5
_DEFAULT_SHARE = 0.92
_HALF = 0.5
"""A server that had not loaded yet, or shared its memory with the page cache, gives back less."""


@dataclass(frozen=True, slots=True)
class FreedMemory:
    """GiB that are free now, and whether what the server asked for is among them."""

    free_gib: float
    is_back: bool


def run_down(engine: Engine, deployed: Deployed, grace_s: float) -> None:
    """Stop within the grace time (SIGTERM, then SIGKILL) and remove. Ours only: the caller looked
    it up by label.
    """
    if deployed.state == "running":
        engine.stop(deployed.id, grace_s)
    engine.remove(deployed.id)


def asked_share(deployed: Deployed) -> float:
    """The share of the GPU's memory that its command asks for."""
    serve = parse_serve(deployed.script)
    try:
        return float(serve.flag("--gpu-memory-utilization")) if serve else _DEFAULT_SHARE
    except ValueError:
        return _DEFAULT_SHARE


def wait_for_memory(
    before_gib: float,
    asked_gib: float,
    read_free: Callable[[], float | None],
    sleep: Callable[[float], None] = time.sleep,
) -> FreedMemory | None:
    """Wait until memory has come back; None where nothing tells."""
    waited = 0.0
    while True:
        free = read_free()
        if free is None:
            return None
        if free >= before_gib + _HALF * asked_gib:
            return FreedMemory(free, is_back=True)
        if waited >= MEMORY_WAIT_S:
            return FreedMemory(free, is_back=False)
        sleep(_STEP_S)
        waited += _STEP_S
