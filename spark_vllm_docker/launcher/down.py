"""`down`: stop a deployment and remove it with its log."""

from __future__ import annotations

from spark_vllm_docker.engine.protocol import Deployed, Engine


def run_down(engine: Engine, deployed: Deployed, grace_s: float) -> None:
    """Stop within the grace time (SIGTERM, then SIGKILL) and remove. Ours only: the caller looked
    it
    up by label.
    """
    if deployed.state == "running":
        engine.stop(deployed.id, grace_s)
    engine.remove(deployed.id)
