"""The second half of `up`: from a container that runs to a proven server, and what comes after."""

from __future__ import annotations

from collections.abc import Callable

from spark_vllm_docker.diagnose.death import NOT_EXECUTABLE, explain_death
from spark_vllm_docker.diagnose.matcher import Diagnosis
from spark_vllm_docker.diagnose.reader import LogReader
from spark_vllm_docker.diagnose.root_line import RootLine
from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.errors import NotProven, Remedy, ServerFailed, TimedOut
from spark_vllm_docker.events import Note, ServerReady
from spark_vllm_docker.health.log_lines import LogLine
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
from spark_vllm_docker.launcher.oom_kills import KillCounter, find_oom_kill
from spark_vllm_docker.launcher.start import Launch, find_new_key
from spark_vllm_docker.launcher.watched import EngineContainer, find_api_key, find_wanted

OpenProbe = Callable[[str, str], Asked]


def follow_deployment(
    launch: Launch, cleaning: Cleaning, deployed: Deployed, open_probe: OpenProbe
) -> None:
    """Watch a deployment to ready, and (unless detached) stay with it until Ctrl-C or its end.

    Raises:
        ServerFailed, NotProven, TimedOut: the container and its log stay until `down`.
        KeyboardInterrupt: while it loads; `cleaning` removes it, unless it is to be kept.
    """
    reader = LogReader(launch.clock.tracker)
    with watch_deployment(launch, deployed, reader.feed, open_probe) as watcher:
        ready = _require_ready(watcher.until_ready(), launch, deployed, reader)
        cleaning.release()
        _announce(launch, deployed, ready)
        if not launch.request.detach:
            _stay(launch, watcher, deployed, reader)


def watch_deployment(
    launch: Launch, deployed: Deployed, on_line: Callable[[LogLine], None], open_probe: OpenProbe
) -> Watcher:
    """A watcher of a deployment, not begun yet; `on_line` sees every line of its log."""
    request = launch.request
    key = find_api_key(deployed)
    return Watcher(
        EngineContainer(launch.engine, deployed, request.environ),
        lambda: open_probe(deployed.endpoint, key),
        deployed.served,
        Limits(request.deployment.stall_timeout_s, request.total_s),
        launch.clock,
        emit=launch.emit,
        on_line=on_line,
        wanted=find_wanted(deployed, request.environ),
    )


def _require_ready(
    outcome: Outcome, launch: Launch, deployed: Deployed, reader: LogReader
) -> Ready:
    if isinstance(outcome, Ready):
        reader.forget()
        return outcome
    raise build_failure(outcome, launch.engine, deployed, reader, launch.clock, launch.kills)


def build_failure(
    outcome: Outcome,
    engine: Engine,
    deployed: Deployed,
    reader: LogReader,
    clock: PhaseClock,
    kills: KillCounter,
) -> ServerFailed | NotProven | TimedOut:
    """The error for an outcome that is not `Ready`, with cause and fix."""
    name, phase = deployed.name, clock.tracker.phase
    at = f"in phase {phase}, after {clock.elapsed_s:.1f} s"
    logs = f"spark-recipe logs {name} shows everything; spark-recipe down {name} removes it"
    if isinstance(outcome, Died):
        ended = outcome.exit
        report = reader.report()
        root, diagnosis = report.root, report.failure
        if root is None and 0 < ended.code < NOT_EXECUTABLE:
            root = reader.roots.before_the_server()
        if ended.stopped:
            root, diagnosis = RootLine("the engine was asked to stop it"), None
        death = explain_death(
            ended.code,
            root,
            name,
            out_of_memory=find_oom_kill(engine, deployed, ended, root, kills),
            diagnosis=diagnosis,
        )
        return ServerFailed(
            f"{name}: the server ended {at} (exit code {ended.code})",
            cause=death.cause,
            hint=death.fix,
            remedy=find_remedy(diagnosis),
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
    reason, fix = getattr(outcome, "reason", ""), getattr(outcome, "fix", "")
    return NotProven(
        f"{name}: /health is 200, but the server did not prove itself",
        cause=reason,
        hint=f"{fix}; {logs}" if fix else logs,
    )


def find_remedy(diagnosis: Diagnosis | None) -> Remedy | None:
    """What a diagnosis changes without anybody's judgement."""
    if diagnosis is None:
        return None
    return Remedy(
        diagnosis.rule.id,
        diagnosis.flags if diagnosis.automatic else (),
        diagnosis.env if diagnosis.automatic else (),
        diagnosis.rule.fix.kind,
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
            needs_key=bool(find_api_key(deployed)),
            api_key=find_new_key(launch.request, deployed),
        )
    )


def _stay(launch: Launch, watcher: Watcher, deployed: Deployed, reader: LogReader) -> None:
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
    failure = build_failure(died, launch.engine, deployed, reader, launch.clock, launch.kills)
    if isinstance(failure, ServerFailed):
        failure.served = True
    raise failure
