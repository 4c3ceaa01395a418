"""The JSON stream of a pull → progress in layers and bytes, or the error that it carries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from spark_vllm_docker.engine.protocol import PullProgress
from spark_vllm_docker.errors import DISK_HINT, EngineError, ImageMissing, NoSpace, PullFailed

_DONE = ("Pull complete", "Already exists")
_MISSING = ("not found", "manifest unknown", "does not exist", "pull access denied")


def read_pull(reference: str, messages: Iterable[Mapping[str, Any]]) -> Iterator[PullProgress]:
    """Progress for each message that changes it.

    A registry's error arrives inside the stream, after HTTP 200: it ends the pull.

    Raises:
        ImageMissing, NoSpace, PullFailed: what the stream said.
    """
    sizes: dict[str, tuple[int, int]] = {}
    finished: set[str] = set()
    last: PullProgress | None = None
    for message in messages:
        if "error" in message:
            raise pull_error(reference, str(message["error"]))
        layer, status = message.get("id"), str(message.get("status", ""))
        if not layer or status.startswith("Pulling from"):
            continue
        done, total = sizes.get(layer, (0, 0))
        if status.startswith("Downloading"):
            detail = message.get("progressDetail") or {}
            done, total = int(detail.get("current", 0)), int(detail.get("total", total) or total)
        elif status.startswith(("Download complete", "Verifying", "Extracting", *_DONE)):
            done = total
        sizes[layer] = (done, total)
        if status.startswith(_DONE):
            finished.add(layer)
        progress = PullProgress(
            len(finished),
            len(sizes),
            sum(size[0] for size in sizes.values()),
            sum(size[1] for size in sizes.values()),
        )
        if progress != last:
            last = progress
            yield progress


def pull_error(reference: str, text: str) -> EngineError:
    """The error for what a registry or the engine said of a pull."""
    line = " ".join(text.split())
    if "no space left on device" in line:
        return NoSpace(
            f"{reference}: the disk of the engine is full: {line}",
            hint=DISK_HINT,
        )
    if any(word in line for word in _MISSING):
        return ImageMissing(
            f"{reference} is not here and its registry does not have it: {line}",
            hint="check the name and the tag in container:, log in to the registry, "
            "or add a build: folder",
        )
    return PullFailed(
        f"{reference}: the pull broke off: {line}", hint="run it again: finished layers are kept"
    )
