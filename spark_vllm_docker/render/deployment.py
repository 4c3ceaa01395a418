"""`Deployment`: the spec, and what the watcher must know about the server.

Apart from `build.py`, which makes it from a recipe: whoever starts a deployment need not load what
reads recipes.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_vllm_docker.render.spec import ContainerSpec

LOOPBACK = "127.0.0.1"
HUGGING_FACE_CACHE = "/root/.cache/huggingface"


@dataclass(frozen=True, slots=True)
class Deployment:
    """One recipe on one machine, ready to run.

    `command` is the text of the recipe with its values; the spec's script is made from it.
    """

    recipe: str
    spec: ContainerSpec
    command: str
    script: str
    endpoint: str
    served: tuple[str, ...]
    stall_timeout_s: float
    ready_timeout_s: float | None

    @property
    def port(self) -> int:
        """The port of the endpoint."""
        return int(self.endpoint.rpartition(":")[2])
