"""What a recipe comes to before it is rendered: command, port, mounts, and what refuses it.

Apart from `build.py`, so that `check` and `plan` need not load what makes scripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_vllm_docker.errors import Refused, UsageError
from spark_vllm_docker.recipe.overrides import Parameter, resolve_parameters
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import ServeCommand, parse_serve
from spark_vllm_docker.render.command import LaunchOptions, render_command
from spark_vllm_docker.render.deployment import HUGGING_FACE_CACHE, LOOPBACK
from spark_vllm_docker.render.mods import Mod, find_mods
from spark_vllm_docker.render.spec import Mount, PublishedPort


@dataclass(frozen=True, slots=True)
class Outline:
    """One recipe on one machine; `serve` is None for a command that is not `vllm serve`."""

    command: str
    serve: ServeCommand | None
    port: int
    ports: tuple[PublishedPort, ...]
    network: str
    mods: tuple[Mod, ...]
    mounts: tuple[Mount, ...]


def outline_launch(recipe: Recipe, options: LaunchOptions, environ: Mapping[str, str]) -> Outline:
    """Everything that can be refused is refused here.

    Raises:
        UsageError: an override that nothing uses, or options that contradict each other.
        Refused: the recipe asks for what cannot be done on one machine.
    """
    _refuse_wrong_machines(recipe, options)
    mods = find_mods(recipe)
    if mods and not options.in_container:
        raise Refused(f"{recipe.name} has mods: they patch an image, and there is no container")
    parameters = resolve_parameters(recipe, options.overrides.sets)
    network = _choose_network(recipe, options)
    if network == "host" and options.listen != LOOPBACK and options.in_container:
        raise UsageError(
            "--listen has no effect with --network host: the server itself listens there",
            hint=f"--set host={options.listen}",
        )
    command = render_command(recipe, parameters, options)
    serve = parse_serve(command)
    port = serve.port if serve else _port_parameter(parameters)
    published = network == "bridge" and options.in_container
    _check_reachable(recipe.name, serve.host if serve else "", port, published=published)
    return Outline(
        command=command,
        serve=serve,
        port=port,
        ports=(PublishedPort(port, options.listen, port),) if published else (),
        network=network,
        mods=mods,
        mounts=_check_mounts(
            recipe, [*_build_mounts(recipe, environ), *(mod.mount for mod in mods)]
        ),
    )


def _check_reachable(name: str, host: str, port: int, *, published: bool) -> None:
    if not port:
        raise UsageError(f"{name}: the port of the server is not a number from 1 to 65535")
    if published and host in (LOOPBACK, "localhost", "::1"):
        raise UsageError(
            f"{name}: --host {host} is loopback inside the container: nobody outside reaches it",
            hint="--host 0.0.0.0 in the command: the port is still published on 127.0.0.1 only",
        )


def _refuse_wrong_machines(recipe: Recipe, options: LaunchOptions) -> None:
    keys = recipe.keys
    if keys.cluster_only and not options.nodes.several:
        raise Refused(
            f"{recipe.name} is cluster_only: it needs several machines, this is one",
            hint="spark-recipe render --nodes HEAD,WORKER shows what each of them would run",
        )
    if keys.solo_only and options.nodes.several:
        raise Refused(f"{recipe.name} is solo_only: it runs on one machine")


def _choose_network(recipe: Recipe, options: LaunchOptions) -> str:
    """Machines talk to each other on ports of their choice: several need the host's network."""
    if options.nodes.several:
        return "host"
    return options.network or recipe.keys.network


def _port_parameter(parameters: Mapping[str, Parameter]) -> int:
    value = str(parameters["port"].value) if "port" in parameters else "8000"
    return int(value) if value.isdecimal() and 0 < int(value) < 65536 else 0


def _build_mounts(recipe: Recipe, environ: Mapping[str, str]) -> tuple[Mount, ...]:
    home = environ.get("HOME", str(Path.home()))
    cache = environ.get("HF_HOME") or f"{home}/.cache/huggingface"
    mounts = [Mount(str(Path(cache).absolute()), HUGGING_FACE_CACHE)]
    for index, volume in enumerate(recipe.keys.volumes):
        parts = volume.split(":")
        source = Path(f"{home}{parts[0][1:]}" if parts[0].startswith("~/") else parts[0])
        # Relative to the file that says it, so that a recipe works from any folder.
        folder = recipe.folder_of(("volumes", index))
        absolute = source if source.is_absolute() else (folder / source).resolve()
        if ":" in str(absolute):
            raise UsageError(f"{recipe.name}: a path with ':' cannot be mounted: {absolute}")
        mounts.append(Mount(str(absolute), parts[1], parts[2:] == ["ro"]))
    return tuple(mounts)


def _check_mounts(recipe: Recipe, mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """Two mounts of one place would hide each other, and an engine refuses them."""
    seen: set[str] = set()
    for mount in mounts:
        target = mount.target.rstrip("/")
        if target in seen:
            raise UsageError(f"{recipe.name}: two volumes are mounted at {target}")
        seen.add(target)
    return tuple(mounts)
