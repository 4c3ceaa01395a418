"""`ContainerSpec` → the `docker run` line that starts the same container."""

from __future__ import annotations

import shlex

from spark_vllm_docker.render.spec import ContainerSpec


def render_docker_run(spec: ContainerSpec) -> str:
    """The line, one flag per row, quoted so that a shell reads back exactly these words."""
    return " \\\n  ".join(shlex.join(group) for group in _groups(spec))


def _groups(spec: ContainerSpec) -> list[list[str]]:
    groups = [["docker", "run", "-d"], ["--name", spec.name]]
    if spec.init:
        groups.append(["--init"])  # reaps vLLM's workers and hands signals on
    if spec.gpus is not None:
        ids = ",".join(str(number) for number in spec.gpus.ids)
        groups.append(["--gpus", f'"device={ids}"' if ids else "all"])
    if spec.network != "bridge":
        groups.append(["--network", spec.network])
    groups += [["-p", f"{_bracket(p.host_address)}:{p.host}:{p.container}"] for p in spec.ports]
    groups.append([f"--ipc={spec.ipc}"])  # torch hands tensors between processes through it
    groups.append(["--shm-size", _size(spec.shm_size_bytes)])
    groups += [["--security-opt", option] for option in spec.security_opt]
    groups += [["-v", f"{m.source}:{m.target}{':ro' if m.read_only else ''}"] for m in spec.mounts]
    groups += [["-e", f"{name}={value}"] for name, value in spec.env]
    groups += [["-e", name] for name in spec.env_from_host]
    groups += [["--label", f"{name}={value}"] for name, value in spec.labels]
    groups.append(["--entrypoint", spec.entrypoint])
    groups.append([spec.image, *spec.command])
    return groups


def _bracket(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _size(size_bytes: int) -> str:
    for unit, letter in ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")):
        if size_bytes % unit == 0 and size_bytes:
            return f"{size_bytes // unit}{letter}"
    return f"{size_bytes}b"
