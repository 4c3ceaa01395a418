"""The first half of `up`: from a deployment to a container that runs.

Apart from `up.py`, so that nothing of the watching is loaded before the container has started.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.errors import (
    GPU_HINT,
    EngineError,
    ImageMissing,
    NameTaken,
    NoGpuSupport,
    Refused,
    SpecDiffers,
)
from spark_vllm_docker.events import Emit, Note
from spark_vllm_docker.health.phases import PhaseClock
from spark_vllm_docker.launcher.cleaning import Cleaning
from spark_vllm_docker.launcher.images import ImageSource, provide_image
from spark_vllm_docker.launcher.old_logs import save_log
from spark_vllm_docker.launcher.oom_kills import KillCounter
from spark_vllm_docker.launcher.ports import check_port_free
from spark_vllm_docker.launcher.start_lock import start_lock
from spark_vllm_docker.launcher.ticking import ticking
from spark_vllm_docker.launcher.watched import find_api_key
from spark_vllm_docker.recipe.serve import parse_serve
from spark_vllm_docker.render.deployment import HUGGING_FACE_CACHE, LOOPBACK, Deployment

STOP_SERVING_S = 20.0


@dataclass(frozen=True, slots=True)
class UpRequest:
    """What `up` was asked for.

    Without `wait` it ends when the container has started; with `detach` when the server is proven;
    else it stays and hands on the log until Ctrl-C. `keep` leaves a container that is interrupted
    while it loads. `new_api_key` is a key made for this launch, to be shown once.
    """

    deployment: Deployment
    image: ImageSource
    environ: Mapping[str, str] = field(repr=False)
    wait: bool = True
    detach: bool = False
    replace: bool = False
    keep: bool = False
    total_s: float | None = None
    new_api_key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Launch:
    """The request with everything that it is carried out with."""

    engine: Engine
    request: UpRequest
    emit: Emit
    clock: PhaseClock
    kills: KillCounter = field(default_factory=KillCounter)


def start_deployment(launch: Launch, cleaning: Cleaning) -> Deployed:
    """Start the deployment, or find it running already.

    Raises:
        NameTaken, SpecDiffers, PortTaken, NoGpuSupport, ImageMissing, …: nothing runs then.
    """
    _check_engine(launch)
    name = launch.request.deployment.spec.name
    with start_lock(name, launch.request.environ, launch.emit):
        deployed = _find_same(launch)
        return _start(launch, cleaning) if deployed is None else deployed


def find_new_key(request: UpRequest, deployed: Deployed) -> str:
    """The key that was made for this start; empty when the server has another one, or none."""
    key = request.new_api_key
    return key if key and find_api_key(deployed) == key else ""


def _check_engine(launch: Launch) -> None:
    info = launch.engine.check()
    if launch.request.wait and not launch.engine.runs_here:
        raise Refused(
            f"the engine at {info.address} is on another machine, whose ports this one cannot ask",
            hint="--no-wait starts it without waiting; or run spark-recipe on that machine",
        )
    if not launch.engine.uses_images and launch.engine.runs_here:
        _check_program(launch)
    if launch.request.deployment.spec.gpus is not None and not launch.engine.can_use_gpus():
        raise NoGpuSupport(
            f"{launch.request.deployment.recipe} wants GPUs, and the engine at {info.address} "
            "has no NVIDIA runtime",
            hint=GPU_HINT,
        )


def _check_program(launch: Launch) -> None:
    """Without an image the server's program must be on this machine."""
    request = launch.request
    serve = parse_serve(request.deployment.command)
    path = dict(request.deployment.spec.env).get("PATH") or request.environ.get("PATH")
    if serve is not None and shutil.which("vllm", path=path) is None:
        raise ImageMissing(
            "vllm is not on the PATH, and the process engine uses no image",
            hint="pip install vllm in an environment and put its bin folder on the PATH, "
            "or use --engine docker",
        )


def _find_same(launch: Launch) -> Deployed | None:
    """The deployment, if it runs already with this spec. What is in the way and ours is removed."""
    engine, request = launch.engine, launch.request
    spec = request.deployment.spec
    found = engine.find(spec.name)
    if found is None:
        return None
    if not found.ours:
        raise NameTaken(
            f"a container named {spec.name} exists, and spark-recipe did not make it",
            hint=f"docker rename {spec.name} <another name>, or give the recipe another name:",
        )
    if found.recipe != request.deployment.recipe:
        raise NameTaken(
            f"the recipe {found.recipe} is deployed under the container name {spec.name}",
            hint=f"give this recipe another name:, or spark-recipe down {spec.name}",
        )
    if found.state == "running" and not request.replace:
        if found.spec_digest == spec.digest():
            launch.emit(Note(f"{found.name} is running already with this spec"))
            return found
        raise SpecDiffers(
            f"{found.name} is running with another spec",
            hint=f"up --replace starts this one instead; spark-recipe down {found.name} ends it",
        )
    if found.state != "created":
        try:
            path = save_log(engine, found, request.environ)
        except OSError as error:
            raise EngineError(
                f"the log of {found.name} cannot be kept: {error.strerror}",
                hint=f"spark-recipe down {found.name} removes it with its log",
            ) from error
        launch.emit(Note(f"replacing {found.name}; its log is kept in {path}"))
    engine.stop(found.id, STOP_SERVING_S)
    engine.remove(found.id)
    return None


def _start(launch: Launch, cleaning: Cleaning) -> Deployed:
    engine, request = launch.engine, launch.request
    deployment = request.deployment
    ports = deployment.spec.ports
    address = ports[0].host_address if ports else LOOPBACK
    if engine.runs_here:
        check_port_free(address, deployment.port, engine)
        if engine.uses_images:
            _make_cache_folder(deployment)
    if engine.uses_images:
        with ticking(launch.clock, launch.emit) as emit:
            provide_image(engine, request.image, request.environ, emit)
    launch.clock.enter("create")
    container_id = engine.create(cleaning.mark(deployment.spec), request.environ)
    engine.start(container_id)
    cleaning.started()
    launch.clock.enter("setup")
    return engine.inspect(container_id)


def _make_cache_folder(deployment: Deployment) -> None:
    """An engine would make the folder of a missing mount itself, and as root."""
    for mount in deployment.spec.mounts:
        if mount.target == HUGGING_FACE_CACHE:
            try:
                Path(mount.source).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise EngineError(
                    f"the cache folder {mount.source} cannot be made: {error.strerror}",
                    hint="set HF_HOME to a folder that this user may write",
                ) from error
