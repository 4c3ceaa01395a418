"""Why a server that was asked does not answer any more: it ended, it loads, or it only hung up."""

from __future__ import annotations

import time

from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.errors import (
    EngineError,
    NotDeployed,
    RequestRefused,
    ServerFailed,
    ServerUnreachable,
    SparkRecipeError,
)
from spark_vllm_docker.media.refusals import BROKE, ENGINE_DIED, NOBODY

ENDING_S = 5.0
"""An API server whose engine has died answers for a second or two more (vLLM 0.20.0, 0.32.0)."""
NOTICED_S = 1.0
"""An engine notices the end of a process, whose port is closed, in less."""
_LOOK_S = 0.2


def explain_gone(
    deployment: tuple[Engine, Deployed] | None, refused: RequestRefused
) -> SparkRecipeError:
    """The same trouble, named by what became of the server; other refusals stay as they are."""
    if refused.kind not in (NOBODY, BROKE, ENGINE_DIED):
        return refused
    if deployment is None:
        if refused.kind != NOBODY:
            return refused
        hint = "is the address right, and does the server run? curl ADDRESS/health tells"
        return ServerUnreachable(refused.message, hint=hint)
    name = deployment[1].name
    limit_s = NOTICED_S if refused.kind == NOBODY else ENDING_S
    if ended := find_end(*deployment, limit_s):
        return ended
    if refused.kind == ENGINE_DIED:
        hint = f"spark-recipe diagnose {name}"
        return ServerFailed(f"{name}: {refused.message}", hint=hint, served=True)
    if refused.kind == NOBODY:
        hint = f"spark-recipe wait {name}"
        return ServerUnreachable(f"{name} runs, but nothing answers there yet", hint=hint)
    refused.hint = f"{name} runs on; spark-recipe logs {name} shows what it said"
    return refused


def find_end(engine: Engine, deployed: Deployed, limit_s: float = ENDING_S) -> ServerFailed | None:
    """What to say of a deployment that has ended or ends within seconds; None if it runs on."""
    name, end = deployed.name, time.monotonic() + limit_s
    while True:
        try:
            now = engine.inspect(deployed.id)
        except NotDeployed:
            return ServerFailed(f"{name} was taken down", hint=f"spark-recipe up {deployed.recipe}")
        except EngineError:
            return None
        if now.state != "running":
            code = f" with code {now.exit.code}" if now.exit else ""
            told = f"{name} ended{code} while it was asked"
            return ServerFailed(told, hint=f"spark-recipe diagnose {name}", served=True)
        if time.monotonic() > end:
            return None
        time.sleep(_LOOK_S)
