"""A whole life for a test: start, prove, measure, stop, remove. What `smoke` and `compare` do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from spark_vllm_docker.diagnose.kernels import find_choice
from spark_vllm_docker.diagnose.reader import LogReader
from spark_vllm_docker.engine.protocol import Deployed
from spark_vllm_docker.errors import SparkRecipeError
from spark_vllm_docker.health.answers import Answer, Canary
from spark_vllm_docker.health.log_lines import LogLine
from spark_vllm_docker.health.questions import CHAT
from spark_vllm_docker.health.watch import Asked, Ready
from spark_vllm_docker.launcher.cleaning import Cleaning
from spark_vllm_docker.launcher.down import run_down
from spark_vllm_docker.launcher.old_logs import save_log
from spark_vllm_docker.launcher.start import Launch, start_deployment
from spark_vllm_docker.launcher.up import build_failure, watch_deployment
from spark_vllm_docker.launcher.watched import find_api_key, find_wanted

SPEED_TOKENS = 128
STOP_S = 10.0


class Answering(Asked, Protocol):
    """A probe that asks whole questions too."""

    def ask(self, path: str, body: dict[str, Any]) -> Answer | str: ...


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it. `failure` is None for a server that was proven; `speed` in tokens per second
    of one request, 0 where it was not measured; `kernels` are (for what, which).
    """

    image: str
    phases: tuple[tuple[str, float], ...]
    canaries: tuple[Canary, ...]
    kernels: tuple[tuple[str, str], ...]
    speed: float
    failure: SparkRecipeError | None

    @property
    def passed(self) -> bool:
        """Started, and every canary proved what it should."""
        return self.failure is None


def run_trial(launch: Launch, open_probe: Callable[[str, str], Answering]) -> Trial:
    """Run a deployment's whole life. Whatever happens, nothing of it is left.

    Raises:
        SparkRecipeError: it could not even be started; KeyboardInterrupt.
    """
    kernels: dict[str, str] = {}
    reader = LogReader(launch.clock.tracker)

    def on_line(line: LogLine) -> None:
        reader.feed(line)
        if choice := find_choice(line.message):
            kernels.setdefault(*choice)

    name = launch.request.deployment.spec.name
    with Cleaning(launch.engine, name, launch.emit, keep=False) as cleaning:
        deployed = start_deployment(launch, cleaning)
        try:
            failure, canaries, speed = _examine(launch, deployed, reader, on_line, open_probe)
            if failure is not None:
                failure.hint = _keep_log(launch, deployed, failure)
        finally:
            run_down(launch.engine, launch.engine.inspect(deployed.id), STOP_S)
            cleaning.release()
    return Trial(
        image=deployed.image,
        phases=launch.clock.durations(),
        canaries=canaries,
        kernels=tuple(sorted(kernels.items())),
        speed=speed,
        failure=failure,
    )


def _examine(
    launch: Launch,
    deployed: Deployed,
    reader: LogReader,
    on_line: Callable[[LogLine], None],
    open_probe: Callable[[str, str], Answering],
) -> tuple[SparkRecipeError | None, tuple[Canary, ...], float]:
    with watch_deployment(launch, deployed, on_line, open_probe) as watcher:
        outcome = watcher.until_ready()
    probe = open_probe(deployed.endpoint, find_api_key(deployed))
    wanted = find_wanted(deployed, launch.request.environ)
    try:
        if not isinstance(outcome, Ready):
            failure = build_failure(
                outcome, launch.engine, deployed, reader, launch.clock, launch.kills
            )
            if not probe.health():
                return failure, (), 0.0
            proof = probe.prove(_model(deployed), (), wanted)
            return failure, proof.canaries, 0.0
        launch.clock.enter("ready")
        tasks = launch.clock.tracker.tasks
        proof = probe.prove(_model(deployed), tasks, wanted)
        return None, proof.canaries, _measure(probe, _model(deployed))
    finally:
        probe.close()


def _keep_log(launch: Launch, deployed: Deployed, failure: SparkRecipeError) -> str:
    """The fix, without what is told of a container that stays: this one goes, its log is kept."""
    fix = failure.hint.partition("spark-recipe logs ")[0].rstrip("; ")
    try:
        kept = f"its log is kept in {save_log(launch.engine, deployed, launch.request.environ)}"
    except OSError:
        return fix
    return f"{fix}; {kept}" if fix else kept


def _model(deployed: Deployed) -> str:
    return next(iter(deployed.served), "")


def _measure(probe: Answering, model: str) -> float:
    """Tokens per second of one request; 0 where the server does not say."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Count from one to a hundred."}],
        "max_tokens": SPEED_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    answer = probe.ask(CHAT, body)
    if isinstance(answer, str) or answer.seconds <= 0:
        return 0.0
    tokens = answer.read(lambda data: int(data["usage"]["completion_tokens"]))
    return (tokens or 0) / answer.seconds
