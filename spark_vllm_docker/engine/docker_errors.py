"""docker-py's and the operating system's exceptions → ours. The only place that knows both."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import docker.errors
import requests.exceptions

from spark_vllm_docker.errors import (
    DISK_HINT,
    GPU_HINT,
    EngineError,
    EngineForbidden,
    EngineUnavailable,
    ImageMissing,
    NameTaken,
    NoGpuSupport,
    NoSpace,
    NotDeployed,
    PortTaken,
    SparkRecipeError,
)

_PORT = re.compile(
    r"port is already allocated|address already in use|ports are not available"
    r"|failed to bind (?:host )?port"
)
_GPU = re.compile(
    r"could not select device driver|nvidia-container-cli|unknown or invalid runtime name: nvidia"
    r"|unresolvable CDI devices|failed to inject CDI|discovering GPU vendor",
    re.IGNORECASE,
)


def describe(error: docker.errors.DockerException, address: str) -> SparkRecipeError:
    """The error of ours that stands for what the engine said."""
    text = _text_of(error)
    if "no space left on device" in text:
        return NoSpace(
            f"the disk of the engine at {address} is full: {_short(text)}",
            hint=DISK_HINT,
        )
    if _PORT.search(text):
        return PortTaken(
            f"the port cannot be published: {_short(text)}", hint="--set port=<a free port>"
        )
    if _GPU.search(text):
        return NoGpuSupport(
            f"the engine cannot give a GPU to a container: {_short(text)}", hint=GPU_HINT
        )
    if isinstance(error, docker.errors.ImageNotFound):
        return ImageMissing(f"the image is not there: {_short(text)}")
    if isinstance(error, docker.errors.NotFound):
        return NotDeployed(f"the container is gone: {_short(text)}", hint="spark-recipe ps")
    if isinstance(error, docker.errors.APIError):
        if "name" in text and "is already in use" in text:  # 409 from Docker, 500 from Podman
            return NameTaken(f"the name is taken: {_short(text)}")
        hint = "sudo apt-get install catatonit" if "container-init binary not found" in text else ""
        return EngineError(f"the engine at {address} refused: {_short(text)}", hint=hint)
    return _unreachable(text, address)


@contextmanager
def engine_errors(address: str) -> Iterator[None]:
    """Map what docker-py raises inside the block."""
    try:
        yield
    except docker.errors.DockerException as error:
        raise describe(error, address) from error
    except requests.exceptions.RequestException as error:
        raise _unreachable(str(error), address) from error
    except (OSError, ValueError, LookupError) as error:  # also of an address that is none
        raise _unreachable(str(error), address) from error


def _unreachable(text: str, address: str) -> SparkRecipeError:
    if "Permission denied" in text or "PermissionError" in text:
        return EngineForbidden(
            f"this user may not open {address}",
            hint="sudo usermod -aG docker $USER, then log in again",
        )
    if "podman" in address:
        return EngineUnavailable(
            f"no Podman answers at {address}",
            hint="systemctl --user start podman.socket, or use --engine docker",
        )
    return EngineUnavailable(
        f"no container engine answers at {address}",
        hint="start it (sudo systemctl start docker), install it (sudo apt-get install docker.io), "
        "or use --engine process",
    )


def _text_of(error: docker.errors.DockerException) -> str:
    explanation = getattr(error, "explanation", None)
    return str(explanation or error)


def _short(text: str) -> str:
    """One line of the engine's words, without the noise of nested error prefixes."""
    line = " ".join(text.split())
    line = re.sub(r"^.*?error (?:gathering|while creating|response from daemon)[^:]*: ", "", line)
    return line if len(line) <= 300 else line[:297] + "..."
