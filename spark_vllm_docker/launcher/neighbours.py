"""What runs on the engine already, and holds memory that a plan found missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.findings import Finding

NOT_FREE = "MEM003"
"""The planner's code for memory that is asked for and not free now."""


class Neighbourhood(Protocol):
    """The part of an engine that is asked here."""

    def list_ours(self) -> list[Deployed]:
        """As `Engine.list_ours`."""
        ...


def judge_free_memory(
    findings: Sequence[Finding], engine: Neighbourhood, name: str
) -> tuple[Finding, ...]:
    """The findings, with the containers that hold the memory; without the one that tells of missing
    memory where the deployment of that name holds it itself, as it will be attached or replaced.
    """
    if not any(finding.code == NOT_FREE for finding in findings):
        return tuple(findings)
    running = [one.name for one in engine.list_ours() if one.state == "running"]
    if name in running:
        return tuple(finding for finding in findings if finding.code != NOT_FREE)
    if not running:
        return tuple(findings)
    here = f"; running here: {', '.join(running)}"
    return tuple(
        replace(finding, message=finding.message + here) if finding.code == NOT_FREE else finding
        for finding in findings
    )
