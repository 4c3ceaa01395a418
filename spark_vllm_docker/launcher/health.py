"""`health` and `wait`: the state of a deployment that runs already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_vllm_docker.diagnose.reader import LogReader
from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.errors import ServerFailed
from spark_vllm_docker.events import Emit, ServerReady
from spark_vllm_docker.health.answers import Canary, Wanted
from spark_vllm_docker.health.phases import PhaseClock
from spark_vllm_docker.health.watch import HTTP_OK, Asked, Limits, Ready, Watcher
from spark_vllm_docker.launcher.oom_kills import KillCounter
from spark_vllm_docker.launcher.up import OpenProbe, build_failure
from spark_vllm_docker.launcher.watched import EngineContainer, find_api_key, find_wanted


@dataclass(frozen=True, slots=True)
class HealthReport:
    """`ok` says whether a client can use it now; `detail` says what was found."""

    ok: bool
    detail: str
    canaries: tuple[Canary, ...] = ()


def ask_health(deployed: Deployed, probe: Asked, wanted: Wanted | None = None) -> HealthReport:
    """Ask a deployment for its health, its models and a short answer; with `wanted`, for all that
    its recipe promises.
    """
    if deployed.state == "created":
        return HealthReport(False, "it was made and never started: run up again")
    if deployed.state != "running":
        code = f" with code {deployed.exit.code}" if deployed.exit else ""
        return HealthReport(False, f"{deployed.state}{code}")
    status = probe.health()
    if status != HTTP_OK:
        return HealthReport(
            False, f"/health answers {status}" if status else "loading: nothing answers yet"
        )
    listed = probe.list_models()
    if listed.error:
        return HealthReport(False, listed.error)
    missing = [name for name in deployed.served if name not in listed.names]
    if missing:
        return HealthReport(False, f"/v1/models does not list {', '.join(missing)}")
    model = next(iter((*deployed.served, *listed.names)), "")
    if not model:
        return HealthReport(False, "/v1/models lists no model")
    proof = probe.prove(model, (), wanted)
    return HealthReport(not proof.error, proof.error or proof.shown, proof.canaries)


def run_wait(
    engine: Engine,
    deployed: Deployed,
    open_probe: OpenProbe,
    clock: PhaseClock,
    emit: Emit,
    total_s: float | None,
    environ: Mapping[str, str],
) -> None:
    """Wait until a deployment is ready.

    Raises:
        ServerFailed, NotProven, TimedOut: as `up` would.
    """
    if deployed.state == "created":
        raise ServerFailed(
            f"{deployed.name} was made and never started",
            hint=f"run up again, or spark-recipe down {deployed.name}",
        )
    reader = LogReader(clock.tracker)
    kills = KillCounter()
    watcher = Watcher(
        EngineContainer(engine, deployed, environ),
        lambda: open_probe(deployed.endpoint, find_api_key(deployed)),
        deployed.served,
        Limits(deployed.stall_timeout_s, total_s),
        clock,
        emit=emit,
        on_line=reader.feed,
        wanted=find_wanted(deployed, environ),
    )
    with watcher:
        outcome = watcher.until_ready()
    if not isinstance(outcome, Ready):
        raise build_failure(outcome, engine, deployed, reader, clock, kills)
    emit(
        ServerReady(
            deployed.name,
            deployed.endpoint,
            deployed.served,
            outcome.proof,
            clock.elapsed_s,
            (),
            needs_key=bool(find_api_key(deployed)),
        )
    )
