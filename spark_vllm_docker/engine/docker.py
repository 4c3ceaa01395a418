"""The docker engine, also through Podman's Docker-compatible socket."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import docker
import docker.errors

from spark_vllm_docker.engine.docker_build import packed, read_build
from spark_vllm_docker.engine.docker_errors import engine_errors
from spark_vllm_docker.engine.docker_streams import ExitEvents, Items
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
from spark_vllm_docker.engine.pull import pull_error, read_pull
from spark_vllm_docker.errors import SparkRecipeError
from spark_vllm_docker.render.docker_py import docker_py_kwargs
from spark_vllm_docker.render.masking import find_secret_values
from spark_vllm_docker.render.spec import API_KEY_VARIABLE, LABEL, ContainerSpec

_STATES: dict[str, State] = {"created": "created", "exited": "exited", "dead": "exited"}


def find_docker_address(environ: Mapping[str, str]) -> str:
    """`DOCKER_HOST`, else the first socket that exists (system, then rootless)."""
    if address := environ.get("DOCKER_HOST"):
        return address
    rootless = Path(environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")) / "docker.sock"
    system = Path("/var/run/docker.sock")
    return f"unix://{rootless if rootless.exists() and not system.exists() else system}"


def find_podman_address(environ: Mapping[str, str]) -> str:
    """Podman's socket: the user's own, else the system's."""
    own = Path(environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")) / "podman/podman.sock"
    return f"unix://{own if own.exists() else '/run/podman/podman.sock'}"


_NOT_GIVEN = (401, 403, 404)


class DockerEngine:
    """Containers of a Docker-compatible engine at `address`. Connects at the first use."""

    uses_images = True

    def __init__(self, address: str, kind: str = "docker") -> None:
        self.kind = kind
        self._address = address
        self._connected: docker.DockerClient | None = None

    @property
    def _client(self) -> docker.DockerClient:
        if self._connected is None:
            with engine_errors(self._address):
                tls = bool(os.environ.get("DOCKER_TLS_VERIFY"))
                if tls and "DOCKER_HOST" in os.environ:
                    self._connected = docker.from_env()
                else:
                    self._connected = docker.DockerClient(base_url=self._address)
        return self._connected

    def close(self) -> None:
        """Give the connections back. A command that ends need not: the process does."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    @property
    def runs_here(self) -> bool:
        """A socket of this machine; what is behind ssh:// or tcp:// is elsewhere."""
        return self._address.startswith(("unix://", "npipe://"))

    def check(self) -> EngineInfo:
        """Connect, which asks the engine for its version."""
        with engine_errors(self._address):
            version = str(self._client.api.api_version)
        return EngineInfo(self.kind, version, self._address)

    def can_use_gpus(self) -> bool:
        """By its runtime, its CDI devices, or the hook that dockerd looks for on its PATH.

        An engine elsewhere gets the benefit of the doubt: its start will tell.
        """
        with engine_errors(self._address):
            info = self._client.info()
        devices = info.get("DiscoveredDevices") or []
        return (
            not self.runs_here
            or "nvidia" in (info.get("Runtimes") or {})
            or any(str(device.get("ID", "")).startswith("nvidia.com/gpu") for device in devices)
            or shutil.which("nvidia-container-runtime-hook") is not None
        )

    def find_image(self, reference: str) -> Image | None:
        """Look the image up on the engine."""
        with engine_errors(self._address):
            try:
                found = self._client.images.get(reference)
            except docker.errors.ImageNotFound:
                return None
        config = found.attrs.get("Config") or {}
        return Image(
            id=str(found.id),
            labels=found.labels or {},
            architecture=str(found.attrs.get("Architecture", "")),
            size_bytes=int(found.attrs.get("Size", 0)),
            entrypoint=tuple(config.get("Entrypoint") or ()),
        )

    def find_in_registry(self, reference: str) -> tuple[str, ...] | None:
        """Ask the registry through the engine, without a pull."""
        with engine_errors(self._address):
            try:
                answer = self._client.api.inspect_distribution(reference)  # type: ignore[no-untyped-call]
            except docker.errors.APIError as error:
                return () if error.status_code in _NOT_GIVEN else None
        platforms = answer.get("Platforms") or []
        return tuple(dict.fromkeys(str(one.get("architecture", "")) for one in platforms))

    def pull_image(self, reference: str) -> Iterator[PullProgress]:
        """Pull, layer by layer. An error inside the stream is raised."""
        try:
            with engine_errors(self._address):
                yield from read_pull(
                    reference, self._client.api.pull(reference, stream=True, decode=True)
                )
        except SparkRecipeError as error:
            if isinstance(error.__cause__, docker.errors.APIError):
                raise pull_error(reference, str(error.__cause__.explanation or error)) from error
            raise

    def build_image(self, request: BuildRequest) -> Iterator[str]:
        """Build with the engine's own builder; gives its output line by line."""
        arguments: dict[str, Any] = {
            "tag": request.tag,
            "buildargs": dict(request.arguments),
            "labels": dict(request.labels),
            "rm": True,
            "forcerm": True,
            "network_mode": "none" if request.offline else None,
            "decode": True,
        }
        with engine_errors(self._address):
            if request.from_links:
                with packed(request.context) as context:
                    messages = self._client.api.build(
                        fileobj=context, custom_context=True, **arguments
                    )
                    yield from read_build(request.tag, messages)
            else:
                messages = self._client.api.build(path=str(request.context), **arguments)
                yield from read_build(request.tag, messages)

    def create(self, spec: ContainerSpec, environ: Mapping[str, str]) -> str:
        """Create the container of a spec."""
        with engine_errors(self._address):
            container = self._client.containers.create(**docker_py_kwargs(spec, environ))
        return str(container.id)

    def start(self, container_id: str) -> None:
        """Start it; errors of ports and GPUs appear here."""
        with engine_errors(self._address):
            self._client.api.start(container_id)

    def find(self, name: str) -> Deployed | None:
        """Inspect by name; an id or a part of a name does not count."""
        with engine_errors(self._address):
            try:
                found = self._client.api.inspect_container(name)
            except docker.errors.NotFound:
                return None
        deployed = _read_container(found)
        return deployed if deployed.name == name else None

    def list_ours(self) -> list[Deployed]:
        """Every container with our label."""
        with engine_errors(self._address):
            rows = self._client.api.containers(all=True, filters={"label": f"{LABEL}.recipe"})
            found = []
            for row in rows:
                with suppress(docker.errors.NotFound):  # removed in between
                    found.append(_read_container(self._client.api.inspect_container(row["Id"])))
        return sorted(found, key=lambda deployed: deployed.name)

    def inspect(self, container_id: str) -> Deployed:
        """The container as it is now."""
        with engine_errors(self._address):
            return _read_container(self._client.api.inspect_container(container_id))

    def follow_log(
        self, container_id: str, *, tail: int | None = None, follow: bool = True
    ) -> Stream[bytes]:
        """The json-file log of the engine, from its start or its last lines."""
        with engine_errors(self._address):
            container = self._client.containers.get(container_id)
            stream = container.logs(
                stream=True, follow=follow, tail="all" if tail is None else tail
            )

        def read_last_line() -> bytes:
            return bytes(container.logs(tail=1))

        return Items(stream, self._address, read_last_line if follow else None)

    def follow_exit(self, container_id: str) -> Stream[Exit]:
        """The engine's `die` event; a container that has ended before gives its exit at once."""
        return ExitEvents(self.inspect, self._client, container_id, self._address)

    def activity(self, container_id: str) -> Activity | None:
        """CPU time and block I/O of the container's cgroup."""
        with engine_errors(self._address):
            try:
                stats = self._client.api.stats(container_id, stream=False, one_shot=True)
            except docker.errors.APIError:
                return None
        cpu_ns = stats.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage", 0)
        blocks = stats.get("blkio_stats", {}).get("io_service_bytes_recursive") or []
        moved = sum(int(b["value"]) for b in blocks if str(b["op"]).lower() in ("read", "write"))
        return Activity(cpu_ns / 1e9, moved)

    def processes(self, container_id: str) -> frozenset[int]:
        """Those of `docker top`."""
        with engine_errors(self._address):
            try:
                told = self._client.api.top(container_id)
            except docker.errors.APIError:
                return frozenset()
        titles = told.get("Titles") or []
        if "PID" not in titles:
            return frozenset()
        column = titles.index("PID")
        rows = told.get("Processes") or []
        return frozenset(int(row[column]) for row in rows if row[column].isdecimal())

    def signal(self, container_id: str, name: str) -> None:
        """`docker kill --signal`."""
        with engine_errors(self._address):
            self._client.api.kill(container_id, name)

    def stop(self, container_id: str, grace_s: float) -> None:
        """`docker stop`: the engine itself kills after the grace time."""
        with engine_errors(self._address), suppress(docker.errors.NotFound):
            self._client.api.stop(container_id, timeout=max(0, round(grace_s)))

    def remove(self, container_id: str) -> None:
        """Remove it with its log and its anonymous volumes."""
        with engine_errors(self._address), suppress(docker.errors.NotFound):
            try:
                self._client.api.remove_container(container_id, v=True, force=True)
            except docker.errors.APIError as error:
                if error.status_code != 409:  # a removal is under way already
                    raise


def _read_container(data: Mapping[str, Any]) -> Deployed:
    state = data["State"]
    status = _STATES.get(state["Status"], "running")
    ended = status == "exited"
    environment = dict(item.partition("=")[::2] for item in data["Config"].get("Env") or [])
    return Deployed(
        id=data["Id"],
        name=data["Name"].lstrip("/"),
        image=data["Config"]["Image"],
        state=status,
        labels=data["Config"].get("Labels") or {},
        started_at=_read_time(state.get("StartedAt", "")),
        exit=Exit(int(state["ExitCode"]), bool(state.get("OOMKilled"))) if ended else None,
        api_key=environment.get(API_KEY_VARIABLE, ""),
        script=(data["Config"].get("Cmd") or [""])[-1],
        secrets=find_secret_values(environment),
        mounts=tuple(
            (str(mount["Source"]), str(mount["Destination"]))
            for mount in data.get("Mounts") or ()
            if mount.get("Type") == "bind"
        ),
    )


def _read_time(text: str) -> float:
    """Seconds since the epoch; 0 for a container that never ran (the engine says year 1)."""
    try:
        moment = datetime.fromisoformat(text[:19] + "+00:00")
    except ValueError:
        return 0.0
    return moment.timestamp() if moment.year > 1970 else 0.0
