"""An independent reader of `docker run` lines: text → keyword arguments of docker-py.

Written from Docker's documentation of the flags, not from the renderer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

WITH_VALUE = {
    "--name", "--gpus", "--network", "-p", "--shm-size", "--security-opt", "-v", "-e", "--label",
    "--entrypoint", "--ipc",
}  # fmt: skip
UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def read_docker_run(text: str, environ: Mapping[str, str]) -> dict[str, Any]:
    words = bash_words(text)
    assert words[:2] == ["docker", "run"]
    kwargs: dict[str, Any] = {
        "environment": {}, "volumes": [], "ports": {}, "security_opt": [], "labels": {}, "init": False,
    }  # fmt: skip
    at = 2
    while words[at].startswith("-"):
        flag, equals, value = words[at].partition("=")
        at += 1
        if flag in WITH_VALUE and not equals:
            value = words[at]
            at += 1
        _apply(kwargs, flag, value, environ)
    return {**kwargs, "image": words[at], "command": words[at + 1 :]}


def bash_words(text: str) -> list[str]:
    """The words of a command line, split by a real bash."""
    done = subprocess.run(
        ["/bin/bash", "-c", f"printf '%s\\0' {text}"], capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


def _apply(kwargs: dict[str, Any], flag: str, value: str, environ: Mapping[str, str]) -> None:
    if flag == "-d":
        kwargs["detach"] = True
    elif flag == "--init":
        kwargs["init"] = True
    elif flag == "--name":
        kwargs["name"] = value
    elif flag == "--gpus":
        ids = value.strip('"').removeprefix("device=").split(",") if value != "all" else []
        kwargs["device_requests"] = [
            {
                "driver": "",
                "capabilities": [["gpu"]],
                "options": {},
                "device_ids": ids,
                "count": 0 if ids else -1,
            }
        ]
    elif flag == "--network":
        kwargs["network_mode"] = value
    elif flag == "-p":
        address, host, container = value.rsplit(":", 2)
        kwargs["ports"][f"{container}/tcp"] = (address.strip("[]"), int(host))
    elif flag == "--ipc":
        kwargs["ipc_mode"] = value
    elif flag == "--shm-size":
        kwargs["shm_size"] = int(value[:-1]) * UNITS[value[-1]]
    elif flag == "--security-opt":
        kwargs["security_opt"].append(value)
    elif flag == "-v":
        kwargs["volumes"].append(value if value.count(":") == 2 else f"{value}:rw")
    elif flag == "-e":
        name, equals, text = value.partition("=")
        if equals:
            kwargs["environment"][name] = text
        elif name in environ:
            kwargs["environment"][name] = environ[name]
    elif flag == "--label":
        name, _, text = value.partition("=")
        kwargs["labels"][name] = text
    elif flag == "--entrypoint":
        kwargs["entrypoint"] = [value]
    else:
        raise AssertionError(f"unknown flag {flag}")
