"""`ContainerSpec` → keyword arguments of docker-py's `containers.create`, as data or as Python
text.
"""

from __future__ import annotations

from collections.abc import Mapping
from pprint import pformat
from typing import Any

from spark_vllm_docker.render.spec import ContainerSpec


def docker_py_kwargs(spec: ContainerSpec, environ: Mapping[str, str]) -> dict[str, Any]:
    """The arguments; `environ` gives the values of `env_from_host` (absent ones are left out)."""
    environment = dict(spec.env)
    environment |= {name: environ[name] for name in spec.env_from_host if name in environ}
    kwargs: dict[str, Any] = {
        "image": spec.image,
        "name": spec.name,
        "entrypoint": [spec.entrypoint],
        "command": list(spec.command),
        "environment": environment,
        "volumes": [f"{m.source}:{m.target}:{'ro' if m.read_only else 'rw'}" for m in spec.mounts],
        "ports": {f"{p.container}/tcp": (p.host_address, p.host) for p in spec.ports},
        "ipc_mode": spec.ipc,
        "shm_size": spec.shm_size_bytes,
        "init": spec.init,
        "security_opt": list(spec.security_opt),
        "labels": dict(spec.labels),
        "detach": True,
    }
    if spec.network != "bridge":
        kwargs["network_mode"] = spec.network
    if spec.gpus is not None:
        ids = [str(number) for number in spec.gpus.ids]
        request: dict[str, Any] = {"driver": "", "capabilities": [["gpu"]], "options": {}}
        request |= {"device_ids": ids, "count": 0} if ids else {"device_ids": [], "count": -1}
        kwargs["device_requests"] = [request]
    return kwargs


def render_docker_py(spec: ContainerSpec) -> str:
    """A Python program that starts the same container with docker-py.

    The variables of `env_from_host` are read when it runs, so that no secret is printed.
    """
    kwargs = docker_py_kwargs(spec, {})
    lines = []
    for name, value in kwargs.items():
        text = pformat(value, width=96, sort_dicts=False).replace("\n", "\n    ")
        if name == "environment" and spec.env_from_host:
            names = list(spec.env_from_host)
            text += f" | {{n: os.environ[n] for n in {names} if n in os.environ}}"
        lines.append(f"    {name}={text},")
    imports = ["import os", "", "import docker"] if spec.env_from_host else ["import docker"]
    return "\n".join([*imports, "", "docker.from_env().containers.run(", *lines, ")"])
