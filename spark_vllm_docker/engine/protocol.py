"""What every engine can do, and the values that it gives back.

The contract suite (`tests/engine/test_contract.py`) runs against all engines; what is promised here
is tested there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from spark_vllm_docker.render.spec import LABEL, ContainerSpec

State = Literal["created", "running", "exited"]
Item_co = TypeVar("Item_co", covariant=True)


class Stream(Protocol[Item_co]):
    """Items as they come. `close` may be called from another thread and ends the iteration."""

    def __iter__(self) -> Iterator[Item_co]: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine that answered."""

    kind: str
    version: str
    address: str


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a server's main process. 128 + n means that signal n ended it.

    `stopped` is true when the engine was asked to stop it; only `follow_exit` can tell, and only of
    a stop that it saw.
    """

    code: int
    out_of_memory: bool = False
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Activity:
    """Work done so far, ever growing: CPU seconds, and bytes read from and written to disks."""

    cpu_s: float
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Image:
    """An image on the engine. `architecture` is as Docker names it (`amd64`, `arm64`),
    `entrypoint` its own, empty when it has none.
    """

    id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    architecture: str = ""
    size_bytes: int = 0
    entrypoint: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PullProgress:
    """A pull so far. `bytes_total` grows while the registry names the sizes of its layers."""

    layers_done: int
    layers_total: int
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """An image to build. `from_links` packs what symbolic links in the context point to; `offline`
    gives the build no network.
    """

    tag: str
    context: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    from_links: bool = False
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Deployed:
    """A container as the engine knows it; ours or, when `find` met it by name, anybody's.

    `api_key` is the one of its environment, `secrets` are all secret values there; `script` is the
    last word of its command; `mounts` are folders of this machine and their paths inside.
    """

    id: str
    name: str
    image: str
    state: State
    labels: Mapping[str, str]
    started_at: float = 0.0
    exit: Exit | None = None
    api_key: str = field(default="", repr=False)
    script: str = field(default="", repr=False)
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    mounts: tuple[tuple[str, str], ...] = ()

    @property
    def ours(self) -> bool:
        """Ownership is by label, never by name."""
        return f"{LABEL}.recipe" in self.labels

    @property
    def recipe(self) -> str:
        """The name of the recipe that it was made from."""
        return self.labels.get(f"{LABEL}.recipe", "")

    @property
    def spec_digest(self) -> str:
        """`ContainerSpec.digest` of the spec that it was made from."""
        return self.labels.get(f"{LABEL}.spec", "")

    @property
    def endpoint(self) -> str:
        """`http://address:port` on this machine."""
        return self.labels.get(f"{LABEL}.endpoint", "")

    @property
    def served(self) -> tuple[str, ...]:
        """The model names that it lists."""
        return self._names("served")

    @property
    def modalities(self) -> tuple[str, ...]:
        """What its recipe says that it understands."""
        return self._names("modalities") or ("text",)

    def _names(self, label: str) -> tuple[str, ...]:
        with suppress(ValueError):
            names = json.loads(self.labels.get(f"{LABEL}.{label}", "[]"))
            return tuple(map(str, names)) if isinstance(names, list) else ()
        return ()

    @property
    def stall_timeout_s(self) -> float:
        """The recipe's limit for silence without work."""
        with suppress(ValueError):
            return float(self.labels.get(f"{LABEL}.stall_s", "900"))
        return 900.0


class Engine(Protocol):
    """Runs containers, or what stands for them.

    Every method raises an `EngineError` of the tree in `errors.py` for what can go wrong outside,
    and `NotDeployed` for an id that does not exist.
    """

    kind: str
    uses_images: bool

    @property
    def runs_here(self) -> bool:
        """Whether its ports and paths are those of this machine."""
        ...

    def check(self) -> EngineInfo:
        """Ask the engine whether it is there."""
        ...

    def can_use_gpus(self) -> bool:
        """Whether it has the means to hand out GPUs, as far as it can tell before a start."""
        ...

    def find_image(self, reference: str) -> Image | None:
        """The image, or None when it is not on the engine."""
        ...

    def find_in_registry(self, reference: str) -> tuple[str, ...] | None:
        """The architectures that its registry has it for: empty when it does not give it, None when
        that cannot be told.
        """
        ...

    def pull_image(self, reference: str) -> Iterator[PullProgress]:
        """Fetch an image from its registry."""
        ...

    def build_image(self, request: BuildRequest) -> Iterator[str]:
        """Build an image; gives the lines of the build's output."""
        ...

    def create(self, spec: ContainerSpec, environ: Mapping[str, str]) -> str:
        """Make a container and return its id. Nothing runs yet."""
        ...

    def start(self, container_id: str) -> None:
        """Start a container that was created."""
        ...

    def find(self, name: str) -> Deployed | None:
        """The container of exactly that name, whoever made it."""
        ...

    def list_ours(self) -> list[Deployed]:
        """All containers with our label, running or not, by name."""
        ...

    def inspect(self, container_id: str) -> Deployed:
        """The container as it is now."""
        ...

    def follow_log(
        self, container_id: str, *, tail: int | None = None, follow: bool = True
    ) -> Stream[bytes]:
        """The log, both streams as one, from its start or from its last `tail` lines. With
        `follow`,
        until the container ends.
        """
        ...

    def follow_exit(self, container_id: str) -> Stream[Exit]:
        """One item: the end of the container. Nothing if it is closed before."""
        ...

    def activity(self, container_id: str) -> Activity | None:
        """The work done by the container so far; None when it cannot be told."""
        ...

    def processes(self, container_id: str) -> frozenset[int]:
        """The ids of its processes as the engine's machine counts them; empty when they cannot be
        told.
        """
        ...

    def signal(self, container_id: str, name: str) -> None:
        """Send a signal such as SIGKILL to the main process."""
        ...

    def stop(self, container_id: str, grace_s: float) -> None:
        """SIGTERM, then SIGKILL after the grace time: a loading vLLM may swallow SIGTERM."""
        ...

    def remove(self, container_id: str) -> None:
        """Remove a container and its log. Removing twice is no error."""
        ...
