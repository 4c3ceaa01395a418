"""Which server `ask` and `watch` mean, and what became of it when it stops answering."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import click

from spark_vllm_docker.cli.options import Command

if TYPE_CHECKING:
    from spark_vllm_docker.engine.protocol import Deployed, Engine
    from spark_vllm_docker.launcher.server_view import ServerView
    from spark_vllm_docker.media.chat import ChatServer, Listed

_STILL_THERE_S = 3.0


def server_options(command: Command) -> Command:
    """--url, --api-key and --model: which server and which of its models is meant."""
    decorated: Any = command
    for decorate in reversed(
        (
            click.option("--url", help="Any OpenAI-compatible server, instead of a deployment."),
            click.option(
                "--api-key", envvar="VLLM_API_KEY", help="Its key; of a deployment it is known."
            ),
            click.option("--model", help="One of several that the server lists."),
        )
    ):
        decorated = decorate(decorated)
    return cast("Command", decorated)


@dataclass(frozen=True, slots=True)
class MeantServer:
    """A server that is asked; `deployment` is the one of ours that it is, and its engine."""

    chat: ChatServer
    view: ServerView
    deployment: tuple[Engine, Deployed] | None

    def require_running(self) -> None:
        """After requests that failed.

        Raises:
            ServerFailed: it is a deployment of ours, and that has ended.
        """
        from spark_vllm_docker.launcher.gone import find_end

        if self.deployment and (ended := find_end(*self.deployment)):
            raise ended


@contextmanager
def open_server(
    name: str | None,
    url: str | None,
    api_key: str | None,
    model: str | None,
    engine: str | None,
    words: tuple[str, ...] = (),
) -> Iterator[MeantServer]:
    """A deployment or any address, and what must be known of it. `words` are those of the command
    line, for a hint. Why it stops answering in the middle is looked up.

    Raises:
        UsageError, NotDeployed: it is not clear which is meant.
        ServerUnreachable: nothing answers there, or not yet.
        ServerFailed: the deployment has ended.
        RequestRefused: it answers, but not what it was asked.
    """
    from spark_vllm_docker.errors import RequestRefused, UsageError
    from spark_vllm_docker.launcher.gone import explain_gone
    from spark_vllm_docker.launcher.watched import find_api_key
    from spark_vllm_docker.media.chat import ChatServer
    from spark_vllm_docker.media.refusals import BROKE, NOBODY

    if url is None:
        deployment = _find_deployment(name, engine, words)
        deployed = deployment[1]
        chat = ChatServer(deployed.endpoint, api_key or find_api_key(deployed))
    elif name is not None:
        raise UsageError("a name and --url are two servers; give one")
    else:
        deployment = None
        chat = ChatServer(url, api_key or os.environ.get("VLLM_API_KEY", ""))
    try:
        yield MeantServer(chat, _view(chat, model, deployment), deployment)
    except RequestRefused as refused:
        if refused.address != chat.address:  # another server's, which is explained already
            raise
        if deployment is None and refused.kind == BROKE and not _answers(chat):
            refused.kind, refused.message = NOBODY, f"{refused.message}; nothing answers there now"
        raise explain_gone(deployment, refused) from refused
    finally:
        chat.close()


def _find_deployment(
    name: str | None, engine: str | None, words: tuple[str, ...]
) -> tuple[Engine, Deployed]:
    from spark_vllm_docker.cli.engines import find_target, list_deployed
    from spark_vllm_docker.errors import NotDeployed, UsageError

    if name is None:
        running = [pair for pair in list_deployed(engine) if pair[1].state == "running"]
        if len(running) != 1:
            names = ", ".join(deployed.name for _, deployed in running)
            if names:
                raise UsageError(
                    f"which one? {names} run; name it: ask NAME …, watch --recipe NAME"
                )
            raise NotDeployed("nothing runs", hint="spark-recipe up RECIPE, or --url ADDRESS")
        found = running[0]
        if words == (found[1].name,):
            raise UsageError(f'the question is missing: ask {found[1].name} "…"')
        return found
    try:
        found = find_target(engine, name)
    except NotDeployed as error:
        if words:
            error.hint = f'{error.hint}; a question of several words stands in "quotes"'
        raise
    deployed = found[1]
    if deployed.state != "running":
        raise NotDeployed(f"{deployed.name} does not run", hint=f"spark-recipe up {deployed.name}")
    return found


def _answers(chat: ChatServer) -> bool:
    from spark_vllm_docker.errors import RequestRefused

    try:
        chat.list_models(limit_s=_STILL_THERE_S)
    except RequestRefused:
        return False
    return True


def _view(
    chat: ChatServer, model: str | None, deployment: tuple[Engine, Deployed] | None
) -> ServerView:
    from spark_vllm_docker.launcher.server_view import view_deployment, view_listed

    models = chat.list_models()
    if deployment is None:
        return view_listed(_choose(models, model), os.environ)
    engine, deployed = deployment
    listed = _choose(models, model or next(iter(deployed.served), None))
    in_container = engine.kind != "process"
    return view_deployment(deployed, listed, os.environ, in_container=in_container)


def _choose(models: list[Listed], wanted: str | None) -> Listed:
    from spark_vllm_docker.errors import Refused

    for model in models:
        if wanted is None or model.name == wanted:
            return model
    names = ", ".join(model.name for model in models) or "none"
    raise Refused(f"the server has no model {wanted or ''}; it has: {names}")
