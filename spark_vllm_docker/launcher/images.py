"""The image of a spec: here already, built from a context, or pulled."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_vllm_docker.catalog.images import BuildableImage, load_buildable_images, split_reference
from spark_vllm_docker.engine.protocol import BuildRequest, Engine
from spark_vllm_docker.errors import BuildFailed
from spark_vllm_docker.events import Emit, Note, Progress
from spark_vllm_docker.render.spec import LABEL

CONTEXT_LABEL = f"{LABEL}.context"


@dataclass(frozen=True, slots=True)
class ImageSource:
    """Where the image of a recipe can come from: a `build:` folder, or one of ours, or a
    registry.
    """

    reference: str
    build: Path | None
    buildable: BuildableImage | None


def find_image_source(reference: str, build: Path | None) -> ImageSource:
    """How to get an image; `build` is the recipe's own context."""
    repository, _ = split_reference(reference)
    return ImageSource(reference, build, load_buildable_images().get(repository))


def provide_image(
    engine: Engine, source: ImageSource, environ: Mapping[str, str], emit: Emit
) -> None:
    """Make sure that the image is on the engine.

    An image that we build is built again when the files that it is made from have changed.

    Raises:
        ImageMissing, PullFailed, BuildFailed, NoSpace: it cannot be had.
    """
    if source.build is not None:
        _build_if_changed(engine, source.reference, source.build, emit)
    elif source.buildable is not None:
        _build_own_if_changed(engine, source.reference, source.buildable, environ, emit)
    elif engine.find_image(source.reference) is None:
        _pull(engine, source.reference, emit)


def _pull(engine: Engine, reference: str, emit: Emit) -> None:
    began, detail = time.monotonic(), ""
    for progress in engine.pull_image(reference):
        elapsed = max(time.monotonic() - began, 0.001)
        rate = progress.bytes_done / elapsed / 1e6
        detail = f"{progress.layers_done} of {progress.layers_total} layers, {rate:.1f} MB/s"
        emit(Progress("pull", progress.bytes_done / 1e6, progress.bytes_total / 1e6, "MB", detail))


def _build_if_changed(engine: Engine, reference: str, context: Path, emit: Emit) -> None:
    if not (context / "Dockerfile").is_file():
        raise BuildFailed(
            f"{context} has no Dockerfile", hint="build: names a folder with a Dockerfile"
        )
    key = _hash_folder(context)
    if _is_current(engine, reference, key):
        return
    _build(engine, BuildRequest(reference, context, labels={CONTEXT_LABEL: key}), emit)


def _build_own_if_changed(
    engine: Engine, reference: str, image: BuildableImage, environ: Mapping[str, str], emit: Emit
) -> None:
    if image.keep_existing and engine.find_image(reference) is not None:
        return
    if not image.prepare:
        _build_if_changed(engine, reference, image.folder, emit)
        return
    tag = split_reference(reference)[1] or image.default_tag
    key = _hash_folder(image.folder)
    if _is_current(engine, reference, key):
        return
    with tempfile.TemporaryDirectory(prefix="spark-recipe-build-") as folder:
        context = Path(folder)
        _prepare(image, tag, context, environ, emit)
        lines = (context / "build-args").read_text(encoding="utf-8").splitlines()
        arguments = dict(line.partition("=")[::2] for line in lines)
        request = BuildRequest(
            tag=reference,
            context=context,
            arguments={image.tag_build_arg: tag, **arguments},
            labels={CONTEXT_LABEL: key},
            from_links=True,
            offline=True,
        )
        _build(engine, request, emit)


def _is_current(engine: Engine, reference: str, key: str) -> bool:
    found = engine.find_image(reference)
    return found is not None and found.labels.get(CONTEXT_LABEL) == key


def _build(engine: Engine, request: BuildRequest, emit: Emit) -> None:
    emit(Note(f"building {request.tag}"))
    for line in engine.build_image(request):
        emit(Progress("pull", 0, 0, "", line))


def _prepare(
    image: BuildableImage, tag: str, context: Path, environ: Mapping[str, str], emit: Emit
) -> None:
    """Run the image's script on the host; its lines are progress, its last lines the reason of a
    failure.
    """
    script = image.folder / image.prepare
    settings = {"IMAGE_TAG": tag, "CONTEXT": str(context), "CACHE": str(find_cache_folder(environ))}
    with subprocess.Popen(  # noqa: S603
        ["/bin/bash", str(script)],
        env={**environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        last: list[str] = []
        try:
            for line in process.stdout or ():
                last = [*last[-4:], line.strip()]
                emit(Progress("pull", 0, 0, "", line.strip()))
        except BaseException:
            os.killpg(process.pid, 15)
            raise
    if process.returncode != 0:
        reason = "; ".join(line for line in last if line) or f"exit code {process.returncode}"
        raise BuildFailed(f"{image.repository}:{tag} cannot be built: {reason}")


def find_cache_folder(environ: Mapping[str, str]) -> Path:
    """Outside every checkout: `SPARK_RECIPE_CACHE`, else `$XDG_CACHE_HOME/spark-recipe`."""
    if own := environ.get("SPARK_RECIPE_CACHE"):
        return Path(own)
    home = environ.get("XDG_CACHE_HOME") or str(
        Path(environ.get("HOME", "~")).expanduser() / ".cache"
    )
    return Path(home) / "spark-recipe"


def _hash_folder(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if "__pycache__" in path.parts:
            continue
        digest.update(str(path.relative_to(folder)).encode() + b"\0")
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
