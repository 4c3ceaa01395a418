"""A container of an engine as the watcher and the probe see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_vllm_docker.engine.protocol import Deployed, Engine, Exit, Stream
from spark_vllm_docker.health.answers import Wanted
from spark_vllm_docker.health.work import Work
from spark_vllm_docker.launcher.clip_tokens import expect_clips
from spark_vllm_docker.launcher.outside_work import look_at_work
from spark_vllm_docker.recipe.serve import parse_serve
from spark_vllm_docker.render.masking import SHORTEST
from spark_vllm_docker.render.spec import SECRET_FROM_HOST


@dataclass(frozen=True, slots=True)
class EngineContainer:
    """Three questions about one container."""

    engine: Engine
    deployed: Deployed
    environ: Mapping[str, str]

    def follow_log(self) -> Stream[bytes]:
        """The log from its beginning."""
        return self.engine.follow_log(self.deployed.id)

    def follow_exit(self) -> Stream[Exit]:
        """The end of the main process."""
        return self.engine.follow_exit(self.deployed.id)

    def work(self) -> Work:
        """The work done so far."""
        return look_at_work(self.engine, self.deployed, self.environ)


def find_api_key(deployed: Deployed) -> str:
    """The key that its server asks for: of `--api-key`, which wins in vLLM, else of its
    environment.
    """
    serve = parse_serve(deployed.script)
    return (serve.api_key if serve else "") or deployed.api_key


def find_wanted(deployed: Deployed, environ: Mapping[str, str]) -> Wanted:
    """What its recipe promises: the modalities, and tools and structured output where its command
    turns them on; and what clips cost, by the formula of its model.
    """
    serve = parse_serve(deployed.script)
    given = serve.arguments if serve else ()
    flags = {word.partition("=")[0].partition(".")[0].replace("_", "-") for word in given}
    return Wanted(
        deployed.modalities,
        tools="--enable-auto-tool-choice" in flags,
        structured="--structured-outputs-config" in flags,
        clip_tokens=expect_clips(deployed, environ),
    )


def find_deployed_secrets(deployed: Deployed, environ: Mapping[str, str]) -> frozenset[str]:
    """What must not be shown of a deployment's log."""
    values = {find_api_key(deployed), environ.get(SECRET_FROM_HOST, "")}
    return deployed.secrets | {value for value in values if len(value) >= SHORTEST}
