"""Is a port free, and if not, who has it? Asked before anything is pulled or started."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from pathlib import Path

from spark_vllm_docker.engine.protocol import Engine
from spark_vllm_docker.errors import PortTaken

_LISTEN = "0A"  # the state TCP_LISTEN in /proc/net/tcp


def check_port_free(address: str, port: int, engine: Engine) -> None:
    """Try to listen where the server will.

    Raises:
        PortTaken: with the container or the process that listens there, when it can be told.
    """
    if owner := _find_deployment(port, engine):  # it may still be loading, and not listen yet
        raise PortTaken(f"port {port} is taken by {owner}", hint="--set port=<a free port>")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
            probe.listen(1)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return  # a privileged port or a foreign address: the engine decides
        else:
            return
    owner = _name_owner(port)
    raise PortTaken(
        f"port {port} is taken{f' by {owner}' if owner else ''}",
        hint="--set port=<a free port>, or end what has it",
    )


def _find_deployment(port: int, engine: Engine) -> str:
    for deployed in engine.list_ours():
        if deployed.state == "running" and deployed.endpoint.endswith(f":{port}"):
            return f"the deployment {deployed.name} (spark-recipe down {deployed.name})"
    return ""


def _name_owner(port: int) -> str:
    process = find_listener(port)
    if process is None:
        return ""
    pid, name = process
    if name == "docker-proxy":
        return "another container (docker ps shows its port)"
    return f"the process {name} (pid {pid})"


def find_listener(port: int) -> tuple[int, str] | None:
    """Pid and name of the process that listens on a TCP port, from /proc; None when not visible."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for row in Path(table).read_text(encoding="ascii").splitlines()[1:]:
                fields = row.split()
                if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for process in Path("/proc").iterdir() if inodes else ():
        if process.name.isdecimal() and _has_socket(process, inodes):
            with suppress(OSError):
                name = (process / "comm").read_text(encoding="utf-8").strip()
                return int(process.name), name
    return None


def _has_socket(process: Path, inodes: set[str]) -> bool:
    with suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                if str(descriptor.readlink()) in inodes:
                    return True
    return False
