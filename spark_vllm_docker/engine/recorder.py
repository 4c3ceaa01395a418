"""The recorder: an engine on which nothing runs and everything is written down.

`up --dry-run` runs the real launcher on it; tests read what was asked of it. It plays the life of a
container (created, running, exited), so that the contract suite holds for it too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from spark_vllm_docker.engine.protocol import (
    Activity,
    BuildRequest,
    Deployed,
    EngineInfo,
    Exit,
    Image,
    PullProgress,
    State,
    Stream,
)
from spark_vllm_docker.errors import NameTaken, NotDeployed
from spark_vllm_docker.render.spec import API_KEY_VARIABLE, ContainerSpec

Item = TypeVar("Item")


@dataclass(slots=True)
class _Container:
    spec: ContainerSpec
    api_key: str
    state: State = "created"
    started_at: float = 0.0
    exit: Exit | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class RecorderEngine:
    """Containers in memory. `asked` holds the calls that would have changed an engine, in order."""

    kind = "recorder"
    uses_images = False
    runs_here = False

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []
        self._containers: dict[str, _Container] = {}

    def check(self) -> EngineInfo:
        """Always there."""
        return EngineInfo(self.kind, "", "nowhere")

    def can_use_gpus(self) -> bool:
        """A dry run asks nobody."""
        return True

    def find_image(self, reference: str) -> Image | None:
        """Every image counts as present: a dry run asks no engine."""
        return Image("")

    def find_in_registry(self, reference: str) -> tuple[str, ...] | None:
        """No registry is asked."""
        return None

    def pull_image(self, reference: str) -> Iterator[PullProgress]:
        """Record the pull."""
        self.asked.append(("pull", reference))
        return iter(())

    def build_image(self, request: BuildRequest) -> Iterator[str]:
        """Record the build."""
        self.asked.append(("build", request))
        return iter(())

    def create(self, spec: ContainerSpec, environ: Mapping[str, str]) -> str:
        """Record the spec."""
        if spec.name in self._containers:
            raise NameTaken(f"the name {spec.name} is taken")
        self.asked.append(("create", spec))
        key = environ.get(API_KEY_VARIABLE, "") if API_KEY_VARIABLE in spec.env_from_host else ""
        self._containers[spec.name] = _Container(spec, key)
        return spec.name

    def start(self, container_id: str) -> None:
        """Record the start."""
        container = self._existing(container_id)
        self.asked.append(("start", container_id))
        container.state, container.started_at = "running", time.time()

    def find(self, name: str) -> Deployed | None:
        """By exact name."""
        return self._read(name) if name in self._containers else None

    def list_ours(self) -> list[Deployed]:
        """All of them."""
        return [self._read(name) for name in sorted(self._containers)]

    def inspect(self, container_id: str) -> Deployed:
        """The container as recorded."""
        self._existing(container_id)
        return self._read(container_id)

    def follow_log(
        self, container_id: str, *, tail: int | None = None, follow: bool = True
    ) -> Stream[bytes]:
        """Nothing runs, so nothing is logged; with `follow` it ends with the container."""
        ended = self._existing(container_id).ended
        return _UntilEnded(ended if follow else None, list)

    def follow_exit(self, container_id: str) -> Stream[Exit]:
        """The exit that `stop` and `signal` record."""
        container = self._existing(container_id)
        return _UntilEnded(container.ended, lambda: [container.exit] if container.exit else [])

    def activity(self, container_id: str) -> Activity | None:
        """No work is done."""
        self._existing(container_id)
        return Activity(0.0, 0)

    def processes(self, container_id: str) -> frozenset[int]:
        """There are none."""
        self._existing(container_id)
        return frozenset()

    def signal(self, container_id: str, name: str) -> None:
        """SIGKILL ends a container with 137, SIGTERM with 143."""
        container = self._existing(container_id)
        self.asked.append(("signal", (container_id, name)))
        self._end(container, {"SIGKILL": 137, "SIGTERM": 143}.get(name, 0))

    def stop(self, container_id: str, grace_s: float) -> None:
        """Ends it with 143."""
        if container_id in self._containers:
            self.asked.append(("stop", container_id))
            self._end(self._containers[container_id], 143, stopped=True)

    def remove(self, container_id: str) -> None:
        """Forget it."""
        container = self._containers.pop(container_id, None)
        if container is not None:
            self.asked.append(("remove", container_id))
            self._end(container, 137)

    def _end(self, container: _Container, code: int, *, stopped: bool = False) -> None:
        if container.state == "running":
            container.state, container.exit = "exited", Exit(code, stopped=stopped)
            container.ended.set()

    def _existing(self, name: str) -> _Container:
        if name not in self._containers:
            raise NotDeployed(f"the container is gone: {name}", hint="spark-recipe ps")
        return self._containers[name]

    def _read(self, name: str) -> Deployed:
        container = self._containers[name]
        return Deployed(
            id=name,
            name=name,
            image=container.spec.image,
            state=container.state,
            labels=dict(container.spec.labels),
            started_at=container.started_at,
            exit=container.exit,
            api_key=container.api_key,
            script=(container.spec.command or ("",))[-1],
        )


class _UntilEnded(Generic[Item]):
    """A stream that waits for an event (None: does not wait) and then gives what there is."""

    def __init__(self, ended: threading.Event | None, items: Callable[[], list[Item]]) -> None:
        self._ended, self._items = ended, items
        self._closed = threading.Event()

    def __iter__(self) -> Iterator[Item]:
        while self._ended is not None and not self._ended.wait(0.02):
            if self._closed.is_set():
                return
        yield from self._items()

    def close(self) -> None:
        self._closed.set()
