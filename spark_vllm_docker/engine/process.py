"""The process engine: a spec's command as a supervised child of its own process group, no
container.

For machines without an engine: CI runners, HPC nodes, notebooks. The state of a deployment is a
folder under the user's state directory; `supervisor.py` keeps it true. Image, mounts, GPUs and the
network of a spec have no meaning here: the host's own files and devices are used. Linux only.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from spark_vllm_docker import __version__
from spark_vllm_docker.engine.process_streams import ExitFile, LogFile
from spark_vllm_docker.engine.process_table import (
    Identity,
    group_activity,
    group_is_alive,
    group_processes,
    is_alive,
    is_taken_over,
)
from spark_vllm_docker.engine.protocol import (
    Activity,
    BuildRequest,
    Deployed,
    EngineInfo,
    Exit,
    Image,
    PullProgress,
    Stream,
)
from spark_vllm_docker.errors import EngineError, NameTaken, NoSpace, NotDeployed
from spark_vllm_docker.render.masking import find_secret_values
from spark_vllm_docker.render.spec import API_KEY_VARIABLE, ContainerSpec

_POLL_S = 0.05


def find_state_folder(environ: Mapping[str, str]) -> Path:
    """`$XDG_STATE_HOME/spark-recipe/processes`."""
    home = environ.get("XDG_STATE_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".local/state"
    )
    return Path(home) / "spark-recipe" / "processes"


class ProcessEngine:
    """Deployments as folders under `folder`, one for each name."""

    kind = "process"
    uses_images = False
    runs_here = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Of deployments that are created and not started yet: secrets are not written to disk.
        self._environ: dict[str, dict[str, str]] = {}

    def check(self) -> EngineInfo:
        """The state folder must be writable; nothing else can be missing."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EngineError(f"{self._folder} cannot be made: {error.strerror}") from error
        return EngineInfo(self.kind, __version__, str(self._folder))

    def can_use_gpus(self) -> bool:
        """The server sees what this machine has."""
        return True

    def find_image(self, reference: str) -> Image | None:
        """Images do not exist here, so none is ever missing."""
        return None

    def find_in_registry(self, reference: str) -> tuple[str, ...] | None:
        """No registry is asked."""
        return None

    def pull_image(self, reference: str) -> Iterator[PullProgress]:
        """Nothing to pull."""
        return iter(())

    def build_image(self, request: BuildRequest) -> Iterator[str]:
        """Nothing to build."""
        return iter(())

    def create(self, spec: ContainerSpec, environ: Mapping[str, str]) -> str:
        """Make the folder of a deployment. The environment of the server is kept in memory only
        until `start`, so secrets of the host are not written.
        """
        self.check()
        data = {"spec": asdict(spec), "labels": dict(spec.labels)}
        # Made whole under another name: a folder without its spec never exists.
        part = self._folder / f".{spec.name}.{uuid.uuid4().hex}"
        try:
            part.mkdir(mode=0o700)
            _write_json(part / "spec.json", data)
            (part / "log").touch(mode=0o600)
            part.rename(self._folder / spec.name)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                hint = f"spark-recipe down {spec.name}"
                raise NameTaken(f"the name {spec.name} is taken", hint=hint) from None
            raise _disk_error(error, self._folder) from error
        own = {"PYDANTIC_DISABLE_PLUGINS"}  # set by our command line, for itself
        inherited = {name: value for name, value in environ.items() if name not in own}
        self._environ[spec.name] = inherited | dict(spec.env)
        return spec.name

    def start(self, container_id: str) -> None:
        """Run the supervisor, which returns as soon as the server runs."""
        folder = self._existing(container_id)
        spec = _read_json(folder / "spec.json")["spec"]
        environ = self._environ.pop(container_id, None) or {**os.environ, **dict(spec["env"])}
        if key := environ.get(API_KEY_VARIABLE):
            _write_json(folder / "api-key.json", {"api_key": key})
        argv = [spec["entrypoint"], *spec["command"]]
        command = [sys.executable, "-m", "spark_vllm_docker.engine.supervisor", str(folder), *argv]
        package = str(Path(__file__).resolve().parents[2])
        paths = [package, *filter(None, [environ.get("PYTHONPATH")])]
        # The supervisor takes PYTHONPATH off again before it starts the server.
        environ = {**environ, "PYTHONPATH": os.pathsep.join(paths)}
        environ["SPARK_RECIPE_PYTHONPATH"] = os.pathsep.join(paths[1:])
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise EngineError(f"{argv[0]} cannot be started: {done.stderr.strip()}")

    def find(self, name: str) -> Deployed | None:
        """The deployment of that name."""
        folder = self._folder / name
        return (
            self._read(folder)
            if name and "/" not in name and (folder / "spec.json").exists()
            else None
        )

    def list_ours(self) -> list[Deployed]:
        """Every folder that holds a spec."""
        paths = sorted(self._folder.glob("[!.]*/spec.json"))
        return [self._read(path.parent) for path in paths]

    def inspect(self, container_id: str) -> Deployed:
        """The deployment as it is now."""
        return self._read(self._existing(container_id))

    def follow_log(
        self, container_id: str, *, tail: int | None = None, follow: bool = True
    ) -> Stream[bytes]:
        """The log file as it grows."""
        return LogFile(
            self.inspect, container_id, self._existing(container_id) / "log", tail, follow
        )

    def follow_exit(self, container_id: str) -> Stream[Exit]:
        """The exit that the supervisor writes."""
        self._existing(container_id)
        return ExitFile(self.read_exit, container_id)

    def activity(self, container_id: str) -> Activity | None:
        """CPU time and disk traffic of the whole process group."""
        server = self._server(self._existing(container_id))
        return group_activity(server.pid) if server else None

    def processes(self, container_id: str) -> frozenset[int]:
        """The whole process group."""
        server = self._server(self._existing(container_id))
        return group_processes(server.pid) if server else frozenset()

    def signal(self, container_id: str, name: str) -> None:
        """Send a signal to the main process, not to its group."""
        server = self._server(self._existing(container_id))
        if server and is_alive(server):
            with suppress(ProcessLookupError):
                os.kill(server.pid, signal.Signals[name])

    def stop(self, container_id: str, grace_s: float) -> None:
        """SIGTERM to the main process, then SIGKILL to the group."""
        with suppress(NotDeployed):
            folder = self._existing(container_id)
            server = self._server(folder)
            if server is None:
                return
            with suppress(OSError):
                (folder / "stopping").touch()
            self.signal(container_id, "SIGTERM")
            end = time.monotonic() + grace_s
            while time.monotonic() < end and is_alive(server):
                time.sleep(_POLL_S)
            # A pid that another process has now leads another group: that one is left alone.
            if not is_taken_over(server) and group_is_alive(server.pid):
                with suppress(ProcessLookupError):
                    os.killpg(server.pid, signal.SIGKILL)
            for _ in range(100):  # the supervisor writes the exit
                if self._read(folder).state != "running":
                    return
                time.sleep(_POLL_S)

    def remove(self, container_id: str) -> None:
        """Stop what still runs and remove the folder."""
        self.stop(container_id, 0)
        shutil.rmtree(self._folder / container_id, ignore_errors=True)

    def read_exit(self, container_id: str) -> Exit | None:
        """The end of a deployment, with whether `stop` was called for it; None while it runs."""
        ended = self.inspect(container_id).exit
        stopped = (self._folder / container_id / "stopping").exists()
        return None if ended is None else replace(ended, stopped=stopped)

    def _existing(self, name: str) -> Path:
        folder = self._folder / name
        if not name or "/" in name or not (folder / "spec.json").exists():
            raise NotDeployed(f"the process {name} is gone", hint="spark-recipe ps")
        return folder

    def _server(self, folder: Path) -> Identity | None:
        path = folder / "running.json"
        return Identity(**_read_json(path)["server"]) if path.exists() else None

    def _read(self, folder: Path) -> Deployed:
        data = _read_json(folder / "spec.json")
        key = folder / "api-key.json"
        server, ended = self._server(folder), None
        state: str = "created" if server is None else "running"
        if (folder / "exit.json").exists():
            ended = Exit(int(_read_json(folder / "exit.json")["code"]))
        elif server is not None and not is_alive(server):
            supervisor = Identity(**_read_json(folder / "running.json")["supervisor"])
            if not is_alive(supervisor):  # killed before it could write the exit
                ended = Exit(128 + signal.SIGKILL)
        if ended is not None:
            state = "exited"
        return Deployed(
            id=folder.name,
            name=folder.name,
            image=data["spec"]["image"],
            state=state,  # type: ignore[arg-type]
            labels=data["labels"],
            started_at=(folder / "running.json").stat().st_mtime if server else 0.0,
            exit=ended,
            api_key=_read_json(key)["api_key"] if key.exists() else "",
            script=(data["spec"]["command"] or [""])[-1],
            secrets=find_secret_values(dict(data["spec"]["env"])),
        )


def _disk_error(error: OSError, folder: Path) -> EngineError:
    if error.errno == errno.ENOSPC:
        return NoSpace(f"the disk that holds {folder} is full", hint=f"df -h {folder}")
    return EngineError(f"{folder} cannot be written: {error.strerror}")


def _write_json(path: Path, data: Any) -> None:
    part = path.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text(json.dumps(data), encoding="utf-8")
    part.replace(path)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
