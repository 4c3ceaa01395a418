"""From `--engine` to engines. docker-py is loaded only when a docker engine is asked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_vllm_docker.engine.protocol import Deployed, Engine


def open_engine(kind: str | None) -> Engine:
    """The engine that starts things."""
    if kind == "process":
        from spark_vllm_docker.engine.process import ProcessEngine, find_state_folder

        return ProcessEngine(find_state_folder(os.environ))
    from spark_vllm_docker.engine.docker import (
        DockerEngine,
        find_docker_address,
        find_podman_address,
    )

    if kind == "podman":
        return DockerEngine(find_podman_address(os.environ), "podman")
    return DockerEngine(find_docker_address(os.environ))


def list_deployed(kind: str | None) -> list[tuple[Engine, Deployed]]:
    """Deployments of the named engine; without a name, of the process engine and of docker.

    Raises:
        EngineError: the named engine, or the only one that could have any, does not answer.
    """
    from spark_vllm_docker.errors import EngineError

    if kind is not None:
        engine = open_engine(kind)
        return [(engine, deployed) for deployed in engine.list_ours()]
    processes = open_engine("process")
    found = [(processes, deployed) for deployed in processes.list_ours()]
    docker = open_engine("docker")
    try:
        return found + [(docker, deployed) for deployed in docker.list_ours()]
    except EngineError:
        if not found:
            raise
        return found


def find_target(kind: str | None, name: str) -> tuple[Engine, Deployed]:
    """The deployment that NAME means, on whichever engine it is."""
    from spark_vllm_docker.launcher.targets import choose_target

    rows = list_deployed(kind)
    chosen = choose_target([deployed for _, deployed in rows], name)
    engine = next(engine for engine, deployed in rows if deployed is chosen)
    return engine, chosen
