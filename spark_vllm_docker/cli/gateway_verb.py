"""`spark-recipe gateway`."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import engine_option

if TYPE_CHECKING:
    from spark_vllm_docker.gateway.forwarding import Backend
    from spark_vllm_docker.gateway.tenants import Tenant

NEEDS = "pip install 'spark-recipe[gateway]'"
_COUNT = click.IntRange(min=1)
_LOOK_S = 3.0
_LONGEST_NAMES = 500
_QUEUE = click.IntRange(min=0)


@click.command("gateway")
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True)
@click.option("--keys", type=click.Path(dir_okay=False), help="YAML: tenants: {NAME: {key: …}}.")
@click.option("--backend", "urls", multiple=True, metavar="URL", help="A server besides ours.")
@click.option("--media-at-once", type=_COUNT, default=1, show_default=True)
@click.option("--media-queue", type=_QUEUE, default=8, show_default=True)
@click.option("--text-at-once", type=_COUNT, default=64, show_default=True)
@click.option("--text-queue", type=_QUEUE, default=256, show_default=True)
@click.option("--drain", "drain_s", type=_COUNT, default=120, show_default=True, metavar="SECONDS")
@engine_option
def command(
    listen: str,
    port: int,
    keys: str | None,
    urls: tuple[str, ...],
    media_at_once: int,
    media_queue: int,
    text_at_once: int,
    text_queue: int,
    drain_s: int,
    engine: str | None,
) -> None:
    """One OpenAI-compatible address in front of all deployments, by the name of the model.

    Requests with video or sound wait in a queue of their own, so that chat goes on; a full queue is
    answered 429 with Retry-After. The sound of videos is asked for where a client forgets it. On
    SIGTERM no more is taken and what runs is finished.
    """
    from spark_vllm_docker.errors import Refused
    from spark_vllm_docker.render.deployment import LOOPBACK

    try:
        import uvicorn

        from spark_vllm_docker.gateway.app import Gateway, Limits
        from spark_vllm_docker.gateway.lanes import LaneLimits
        from spark_vllm_docker.media.chat import ChatServer
    except ImportError as error:
        raise Refused(f"a library of the gateway is missing ({error.name})", hint=NEEDS) from error

    tenants = _find_tenants(keys, is_open=listen not in (LOOPBACK, "::1", "localhost"))
    limits = Limits(LaneLimits(text_at_once, text_queue), LaneLimits(media_at_once, media_queue))
    _require_free(listen, port)
    for url in urls:
        ChatServer(url).close()  # an address that is none is told at once
    signal.signal(signal.SIGTERM, _end)
    with suppress(_ToldToEnd):
        found = _discover(engine, urls)
        gateway = Gateway(lambda: _discover(engine, urls), limits, tenants, found)
        click.echo(f"gateway at http://{listen}:{port}/v1; Ctrl-C ends it", err=True)
        _say_what_is_behind(engine, found, also=bool(urls))
        # It takes the signals; when it has drained, it raises the one that ended it once more.
        uvicorn.run(
            gateway.build(),
            host=listen,
            port=port,
            log_level="warning",
            timeout_graceful_shutdown=drain_s,
            server_header=False,
        )


class _ToldToEnd(Exception):
    """SIGTERM, which is how services are ended: no failure."""


def _end(*_: object) -> None:
    raise _ToldToEnd


def _find_tenants(keys: str | None, *, is_open: bool) -> tuple[Tenant, ...]:
    """Those of the file; for an address that others reach, else one with a new key."""
    from spark_vllm_docker.gateway.tenants import Tenant, read_tenants

    if keys:
        return read_tenants(Path(keys))
    if not is_open:
        return ()
    import secrets

    key = secrets.token_urlsafe(24)
    click.echo(f"api key   {key}   (shown once)", err=True)
    return (Tenant("all", key),)


def _require_free(listen: str, port: int) -> None:
    import socket

    from spark_vllm_docker.errors import PortTaken, UsageError

    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((listen, port))
    except OSError as error:
        if error.errno == 98:
            raise PortTaken(f"port {port} is taken", hint="--port another") from error
        raise UsageError(f"--listen {listen}: {error.strerror or error}") from error


def _say_what_is_behind(engine: str | None, found: Sequence[Backend], *, also: bool) -> None:
    """At the start; what comes later is found later. Names are those that servers gave."""
    from spark_vllm_docker.cli.engines import list_deployed
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.findings import printable

    try:
        list_deployed(engine)
    except SparkRecipeError as error:
        what = "--backend" if also else "nothing, until it does"
        click.echo(f"note: {error.message}: behind the gateway is {what}", err=True)
        click.echo(f"fix: {error.hint}", err=True)
    for backend in found:
        names = printable(", ".join(backend.models))[:_LONGEST_NAMES]
        click.echo(f"{names}  at {_without_password(backend.address)}", err=True)
    if not found:
        click.echo("no server answers yet; each is served as soon as it runs", err=True)


def _without_password(address: str) -> str:
    """An address as others may see it."""
    scheme, mark, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{mark}{host.rpartition('@')[2]}{slash}{path}"


def _discover(engine: str | None, urls: Sequence[str]) -> list[Backend]:
    """Deployments that run, and the servers that were named; those that do not answer are left
    out.
    """
    from spark_vllm_docker.cli.engines import list_deployed
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.gateway.forwarding import Backend
    from spark_vllm_docker.launcher.server_view import view_deployment
    from spark_vllm_docker.launcher.watched import find_api_key
    from spark_vllm_docker.media.chat import Listed

    found: list[Backend] = []
    deployments = []
    with suppress(SparkRecipeError):
        deployments = [pair for pair in list_deployed(engine) if pair[1].state == "running"]
    for opened, deployed in deployments:
        listed = Listed(next(iter(deployed.served), ""))
        in_container = opened.kind != "process"
        view = view_deployment(deployed, listed, os.environ, in_container=in_container)
        found.append(
            Backend(
                deployed.name,
                deployed.endpoint,
                deployed.served,
                find_api_key(deployed),
                view.takes_kwargs,
            )
        )
    if urls:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(urls)) as pool:  # one that is silent takes its time
            found += [backend for backend in pool.map(_ask_backend, urls) if backend]
    return found


def _ask_backend(url: str) -> Backend | None:
    """A server that was named, and its models; None when it does not answer."""
    from spark_vllm_docker.errors import SparkRecipeError
    from spark_vllm_docker.gateway.forwarding import Backend
    from spark_vllm_docker.media.chat import ChatServer

    key = os.environ.get("VLLM_API_KEY", "")
    server = ChatServer(url, key)
    try:
        listed = server.list_models(limit_s=_LOOK_S)
        names = tuple(model.name for model in listed if model.name.isprintable())
    except SparkRecipeError:
        return None
    finally:
        server.close()
    return Backend(_without_password(server.address), server.address, names, key)
