"""What `ask` and `watch` share: the server that is meant, and the files that were named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from spark_vllm_docker.cli.options import Command

if TYPE_CHECKING:
    from spark_vllm_docker.launcher.server_view import ServerView
    from spark_vllm_docker.media.chat import ChatServer, Listed
    from spark_vllm_docker.media.content import Media

NEEDS = "pip install 'spark-recipe[media]'"
MOST_TEXT_BYTES = 1 << 20


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


def is_url(source: str) -> bool:
    """Whether a file or a server is named by its address."""
    return source.startswith(("http://", "https://"))


def require_media() -> None:
    """The libraries of the extra are there.

    Raises:
        Refused: they are not.
    """
    from spark_vllm_docker.errors import Refused

    try:
        import av  # noqa: F401
    except ImportError as error:
        raise Refused("PyAV, which looks into sound and video, is missing", hint=NEEDS) from error


def open_server(
    name: str | None,
    url: str | None,
    api_key: str | None,
    model: str | None,
    engine: str | None,
    words: tuple[str, ...] = (),
) -> tuple[ChatServer, ServerView]:
    """The server and what must be known of it: of a deployment, or of any address. `words` are
    those of the command line, for a hint.

    Raises:
        UsageError, NotDeployed, RequestRefused: it is not clear which is meant, or none answers.
    """
    from spark_vllm_docker.errors import UsageError
    from spark_vllm_docker.launcher.server_view import view_deployment, view_listed
    from spark_vllm_docker.media.chat import ChatServer

    if url is not None:
        if name is not None:
            raise UsageError("a name and --url are two servers; give one")
        server = ChatServer(url, api_key or os.environ.get("VLLM_API_KEY", ""))
        return server, view_listed(_choose(server.list_models(), model), os.environ)
    from spark_vllm_docker.cli.engines import find_target, list_deployed
    from spark_vllm_docker.errors import NotDeployed
    from spark_vllm_docker.launcher.watched import find_api_key

    if name is None:
        running = [pair for pair in list_deployed(engine) if pair[1].state == "running"]
        if len(running) != 1:
            names = ", ".join(deployed.name for _, deployed in running)
            if names:
                raise UsageError(f"which one? {names} run")
            raise NotDeployed("nothing runs", hint="spark-recipe up RECIPE, or --url ADDRESS")
        opened, deployed = running[0]
        if words == (deployed.name,):
            raise UsageError(f'the question is missing: ask {deployed.name} "…"')
    else:
        try:
            opened, deployed = find_target(engine, name)
        except NotDeployed as error:
            if words:
                error.hint = f'{error.hint}; a question of several words stands in "quotes"'
            raise
    if deployed.state != "running":
        raise NotDeployed(f"{deployed.name} does not run", hint=f"spark-recipe up {deployed.name}")
    server = ChatServer(deployed.endpoint, api_key or find_api_key(deployed))
    listed = _choose(server.list_models(), model or next(iter(deployed.served), None))
    in_container = opened.kind != "process"
    return server, view_deployment(deployed, listed, os.environ, in_container=in_container)


def _choose(models: list[Listed], wanted: str | None) -> Listed:
    from spark_vllm_docker.errors import Refused

    for model in models:
        if wanted is None or model.name == wanted:
            return model
    names = ", ".join(model.name for model in models) or "none"
    raise Refused(f"the server has no model {wanted or ''}; it has: {names}")


def gather(named: dict[str, tuple[str, ...]], folder: Path) -> tuple[tuple[Media, ...], str]:
    """The files of `--image`, `--audio`, `--video` and `--file`, URLs fetched and PDFs drawn into
    `folder`; and the text of text files.

    Raises:
        BadMedia: one of them is not what it is called, or cannot be read.
    """
    found: list[Media] = []
    texts: list[str] = []
    for option, sources in named.items():
        for number, source in enumerate(sources):
            media = look_at(source, folder / f"{option}-{number}")
            if media.kind == "pdf" and option in ("file", "image"):
                found += _draw(media.path, folder / f"{option}-{number}")
            elif media.kind == "text" and option == "file":
                texts.append(_read_text(source, media))
            else:
                found.append(_as_option(option, source, media))
    return tuple(found), "\n\n".join(texts)


def look_at(source: str, folder: Path) -> Media:
    """A file, or what a URL gives, downloaded into `folder`, which is made."""
    from spark_vllm_docker.media.probing import probe

    if is_url(source):
        from spark_vllm_docker.media.download import fetch

        folder.mkdir()
        return probe(fetch(source, folder))
    return probe(Path(source))


def _as_option(option: str, source: str, media: Media) -> Media:
    """A file under `--video` that has no picture is a mistake; one with sound may be heard."""
    from dataclasses import replace

    from spark_vllm_docker.errors import BadMedia

    if option in ("file", media.kind):
        return media
    if option == "audio" and media.kind == "video" and media.has_sound:
        return replace(media, kind="audio", mime=media.mime.replace("video/", "audio/"))
    if option == "audio" and media.kind == "video":
        raise BadMedia(f"{source} is a video without sound")
    what = {"image": "a picture", "audio": "sound alone", "video": "a video"}
    told = what.get(media.kind, f"a {media.kind} file")
    right = media.kind if media.kind in what else "file"
    raise BadMedia(f"{source} is {told}", hint=f"--{right} {source}")


def _draw(path: Path, folder: Path) -> list[Media]:
    from spark_vllm_docker.errors import Refused
    from spark_vllm_docker.media.probing import probe

    try:
        from spark_vllm_docker.media.pages import draw_pages
    except ImportError as error:
        raise Refused("pypdfium2, which draws PDFs, is missing", hint=NEEDS) from error

    folder.mkdir(exist_ok=True)
    return [probe(page) for page in draw_pages(path, folder)]


def _read_text(source: str, media: Media) -> str:
    from spark_vllm_docker.errors import BadMedia

    if media.size > MOST_TEXT_BYTES:
        raise BadMedia(f"{source} is {media.size >> 20} MiB of text: no model reads that at once")
    return f"{Path(source).name}:\n{media.path.read_text(encoding='utf-8', errors='replace')}"
