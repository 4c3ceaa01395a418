"""`ContainerSpec`: what an engine is asked to run. Every renderer and every engine reads this."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace

LABEL = "spark-recipe"
"""The prefix of the labels that say whose a container is, and what it serves."""
SECRET_FROM_HOST = "HF_TOKEN"  # noqa: S105 - the name of a variable, never its value
API_KEY_VARIABLE = "VLLM_API_KEY"


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path inside the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PublishedPort:
    """A TCP port of the container on an address of the host."""

    container: int
    host_address: str
    host: int


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of a container: `ids` (NVML numbers), or all of them when it is empty."""

    ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container, complete and immutable.

    `env_from_host` names variables whose values are taken from the launcher's environment at create
    time, so that no secret is ever part of a spec. `labels` carry the ownership; they are not part
    of `digest`, which says whether two specs run the same thing.
    """

    name: str
    image: str
    entrypoint: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    env_from_host: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    ports: tuple[PublishedPort, ...] = ()
    network: str = "bridge"
    gpus: Gpus | None = None
    ipc: str = "private"
    shm_size_bytes: int = 64 << 20
    init: bool = True
    security_opt: tuple[str, ...] = ("no-new-privileges",)
    labels: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def digest(self) -> str:
        """16 hexadecimal digits over everything that decides what runs."""
        data = asdict(replace(self, labels=()))
        text = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
