"""`up`: from a deployment to a proven server. The steps stand in order in `run_up`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from spark_vllm_docker.diagnose.death import explain_death
from spark_vllm_docker.diagnose.root_line import RootLine, RootLineFinder
from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.errors import (
    GPU_HINT,
    NameTaken,
    NoGpuSupport,
    NotProven,
    Refused,
    ServerFailed,
    SpecDiffers,
    TimedOut,
)
from spark_vllm_docker.events import Emit, Note, ServerReady
from spark_vllm_docker.health.phases import PhaseClock
from spark_vllm_docker.health.watch import (
    Asked,
    Died,
    Limits,
    Outcome,
    OutOfTime,
    Ready,
    Stalled,
    Watcher,
)
from spark_vllm_docker.launcher.cleaning import Cleaning
from spark_vllm_docker.launcher.images import ImageSource, provide_image
from spark_vllm_docker.launcher.old_logs import save_log
from spark_vllm_docker.launcher.ports import check_port_free
from spark_vllm_docker.launcher.ticking import ticking
from spark_vllm_docker.launcher.watched import EngineContainer, find_api_key
from spark_vllm_docker.render.deployment import HUGGING_FACE_CACHE, LOOPBACK, Deployment

STOP_SERVING_S = 20.0
OpenProbe = Callable[[str, str], Asked]


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
    open_probe: OpenProbe
    clock: PhaseClock


def run_up(launch: Launch) -> Deployed:
    """Start (or find) the deployment, watch it to ready, and stay with it unless told otherwise.

    Raises:
        NameTaken, SpecDiffers, PortTaken, NoGpuSupport, ImageMissing, …: before anything runs.
        ServerFailed, NotProven, TimedOut: the container and its log stay until `down`.
        KeyboardInterrupt: while it loads; what was made here is removed, unless `keep`.
    """
    engine, request = launch.engine, launch.request
    with ExitStack() as stack:
        cleaning = stack.enter_context(
            Cleaning(engine, request.deployment, launch.emit, keep=request.keep)
        )
        _check_engine(launch)
        deployed = _find_same(launch)
        if deployed is None:
            deployed = _start(launch, cleaning)
        if not request.wait:
            cleaning.release()
            return deployed
        roots = RootLineFinder()
        watcher = stack.enter_context(_watch(launch, deployed, roots))
        ready = _require_ready(watcher.until_ready(), launch, deployed, roots)
        cleaning.release()
        _announce(launch, deployed, ready)
        if not request.detach:
            _stay(launch, watcher, deployed, roots)
        return deployed


def _check_engine(launch: Launch) -> None:
    info = launch.engine.check()
    if launch.request.wait and not launch.engine.runs_here:
        raise Refused(
            f"the engine at {info.address} is on another machine, whose ports this one cannot ask",
            hint="--no-wait starts it without waiting; or run spark-recipe on that machine",
        )
    if launch.request.deployment.spec.gpus is not None and not info.can_use_gpus:
        raise NoGpuSupport(
            f"{launch.request.deployment.recipe} wants GPUs, and the engine at {info.address} "
            "has no NVIDIA runtime",
            hint=GPU_HINT,
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
    if found.state == "running" and not request.replace:
        if found.spec_digest == spec.digest():
            launch.emit(Note(f"{found.name} is running already with this spec"))
            return found
        raise SpecDiffers(
            f"{found.name} is running with another spec",
            hint=f"up --replace starts this one instead; spark-recipe down {found.name} ends it",
        )
    if found.state != "created":
        path = save_log(engine, found, request.environ)
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
        _make_cache_folder(deployment)
    if engine.uses_images:
        with ticking(launch.clock, launch.emit) as emit:
            provide_image(engine, request.image, request.environ, emit)
    launch.clock.enter("create")
    cleaning.begin()
    container_id = engine.create(deployment.spec, request.environ)
    engine.start(container_id)
    cleaning.started()
    launch.clock.enter("setup")
    return engine.inspect(container_id)


def _make_cache_folder(deployment: Deployment) -> None:
    """An engine would make the folder of a missing mount itself, and as root."""
    for mount in deployment.spec.mounts:
        if mount.target == HUGGING_FACE_CACHE:
            Path(mount.source).mkdir(parents=True, exist_ok=True)


def _watch(launch: Launch, deployed: Deployed, roots: RootLineFinder) -> Watcher:
    request = launch.request
    key = find_api_key(deployed)
    return Watcher(
        EngineContainer(launch.engine, deployed.id),
        lambda: launch.open_probe(deployed.endpoint, key),
        deployed.served,
        Limits(request.deployment.stall_timeout_s, request.total_s),
        launch.clock,
        emit=launch.emit,
        on_line=roots.feed,
    )


def _require_ready(
    outcome: Outcome, launch: Launch, deployed: Deployed, roots: RootLineFinder
) -> Ready:
    if isinstance(outcome, Ready):
        roots.forget()
        return outcome
    raise build_failure(outcome, deployed, roots, launch.clock)


def build_failure(
    outcome: Outcome, deployed: Deployed, roots: RootLineFinder, clock: PhaseClock
) -> ServerFailed | NotProven | TimedOut:
    """The error for an outcome that is not `Ready`, with cause and fix."""
    name, phase = deployed.name, clock.tracker.phase
    at = f"in phase {phase}, after {clock.elapsed_s:.1f} s"
    logs = f"spark-recipe logs {name} shows everything; spark-recipe down {name} removes it"
    if isinstance(outcome, Died):
        ended = outcome.exit
        root = roots.result()
        if ended.stopped:
            root = RootLine("the engine was asked to stop it")
        death = explain_death(ended.code, root, name, out_of_memory=ended.out_of_memory)
        return ServerFailed(
            f"{name}: the server ended {at} (exit code {ended.code})",
            cause=death.cause,
            hint=death.fix,
        )
    if isinstance(outcome, Stalled):
        return ServerFailed(
            f"{name}: stalled {at}",
            cause=f"{outcome.idle} for {outcome.silent_s:.0f} s",
            hint=f"stall_timeout_s in the recipe is the limit; {logs}",
        )
    if isinstance(outcome, OutOfTime):
        return TimedOut(
            f"{name}: not ready {at}",
            cause=f"the limit of {outcome.limit_s:g} s has passed; the server goes on",
            hint=f"spark-recipe wait {name} waits on; {logs}",
        )
    reason = getattr(outcome, "reason", "")
    return NotProven(
        f"{name}: /health is 200, but the server did not prove itself", cause=reason, hint=logs
    )


def _announce(launch: Launch, deployed: Deployed, ready: Ready) -> None:
    launch.clock.enter("ready")
    launch.emit(
        ServerReady(
            name=deployed.name,
            endpoint=deployed.endpoint,
            served=deployed.served,
            proof=ready.proof,
            elapsed_s=launch.clock.elapsed_s,
            phase_s=launch.clock.durations()[:-1],
            api_key=launch.request.new_api_key,
        )
    )


def _stay(launch: Launch, watcher: Watcher, deployed: Deployed, roots: RootLineFinder) -> None:
    """Hand on the log. Ctrl-C ends this command, not the server."""
    try:
        died = watcher.until_end()
    except KeyboardInterrupt:
        launch.emit(
            Note(f"detached; {deployed.name} goes on: spark-recipe down {deployed.name} ends it")
        )
        return
    if died.exit.stopped:
        launch.emit(Note(f"{deployed.name} was stopped"))
        return
    raise build_failure(died, deployed, roots, launch.clock)


def describe_result(deployed: Deployed) -> dict[str, object]:
    """A deployment as it stands in JSON documents."""
    return {
        "name": deployed.name,
        "recipe": deployed.recipe,
        "image": deployed.image,
        "state": deployed.state,
        "endpoint": deployed.endpoint,
        "served": list(deployed.served),
        "spec": deployed.spec_digest,
        "started_at": deployed.started_at or None,
        "server_exit_code": deployed.exit.code if deployed.exit else None,
        "out_of_memory": deployed.exit.out_of_memory if deployed.exit else None,
    }
