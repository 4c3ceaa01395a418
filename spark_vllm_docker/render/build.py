"""`Recipe` and options → `Deployment`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from spark_vllm_docker import __version__
from spark_vllm_docker.errors import Refused, UsageError
from spark_vllm_docker.recipe import nodes as rules
from spark_vllm_docker.recipe.models import size_in_bytes
from spark_vllm_docker.recipe.nodes import Nodes
from spark_vllm_docker.recipe.overrides import (
    Parameter,
    resolve_env,
    resolve_parameters,
)
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import exec_serve, parse_serve
from spark_vllm_docker.render.command import LaunchOptions, render_command
from spark_vllm_docker.render.deployment import HUGGING_FACE_CACHE, LOOPBACK, Deployment
from spark_vllm_docker.render.mods import Mod, find_mods
from spark_vllm_docker.render.script import render_script
from spark_vllm_docker.render.spec import (
    API_KEY_VARIABLE,
    LABEL,
    SECRET_FROM_HOST,
    ContainerSpec,
    Gpus,
    Mount,
    PublishedPort,
)


def build_deployment(
    recipe: Recipe, options: LaunchOptions, environ: Mapping[str, str]
) -> Deployment:
    """Render a recipe.

    `environ` is used for the place of the Hugging Face cache only; values of secrets stay out.

    Raises:
        UsageError: an override that nothing uses, or options that contradict each other.
        Refused: the recipe asks for what cannot be done on one machine.
    """
    _refuse_wrong_machines(recipe, options)
    keys = recipe.keys
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
    ports = (PublishedPort(port, options.listen, port),) if published else ()
    spec = _build_spec(recipe, options, environ, command, ports, mods)
    # The address to ask, which is not the address to listen on.
    address = LOOPBACK if options.listen in ("0.0.0.0", "::", "") else options.listen  # noqa: S104
    bracketed = f"[{address}]" if ":" in address else address
    endpoint = f"http://{bracketed}:{port}"
    served = serve.served if serve else ()
    return Deployment(
        recipe=recipe.name,
        spec=replace(spec, labels=_build_labels(recipe, spec, endpoint, served)),
        command=command,
        script=spec.command[-1],
        endpoint=endpoint,
        served=served,
        stall_timeout_s=keys.stall_timeout_s,
        ready_timeout_s=keys.ready_timeout_s,
    )


def _check_reachable(name: str, host: str, port: int, *, published: bool) -> None:
    if not port:
        raise UsageError(f"{name}: the port of the server is not a number from 1 to 65535")
    if published and host in (LOOPBACK, "localhost", "::1"):
        raise UsageError(
            f"{name}: --host {host} is loopback inside the container: nobody outside reaches it",
            hint="--host 0.0.0.0 in the command: the port is still published on 127.0.0.1 only",
        )


def _build_spec(
    recipe: Recipe,
    options: LaunchOptions,
    environ: Mapping[str, str],
    command: str,
    ports: tuple[PublishedPort, ...],
    mods: tuple[Mod, ...],
) -> ContainerSpec:
    keys = recipe.keys
    env = resolve_env(recipe, options.overrides.env)
    expanded = [(name, value.value) for name, value in env.items() if value.expand]
    fixed = {n: v.value for n, v in env.items() if not v.expand and not v.from_host}
    script = render_script(
        " ".join(recipe.name.split()),
        exec_serve("\n".join([*(mod.lines for mod in mods), command])),
        expanded,
    )
    from_host = [name for name, value in env.items() if value.from_host]
    from_host += [SECRET_FROM_HOST] if SECRET_FROM_HOST not in env else []
    from_host += [API_KEY_VARIABLE] if options.with_api_key and API_KEY_VARIABLE not in env else []
    if options.nodes.several:
        fixed.setdefault("VLLM_HOST_IP", options.nodes.addresses[options.rank])
    return ContainerSpec(
        name=container_name(recipe.name),
        image=keys.container,
        entrypoint="/bin/bash",
        command=("-c", script),
        env=tuple(fixed.items()),
        env_from_host=tuple(from_host),
        mounts=_check_mounts(
            recipe, [*_build_mounts(recipe, environ), *(mod.mount for mod in mods)]
        ),
        ports=ports,
        network=_choose_network(recipe, options),
        gpus=_build_gpus(keys.gpus) if options.use_gpus else None,
        ipc=keys.ipc,
        shm_size_bytes=size_in_bytes(keys.shm_size),
    )


def container_name(recipe_name: str) -> str:
    """The recipe's name as engines allow it: letters, digits, `_`, `.` and `-`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", recipe_name).strip("-.")
    return name if re.match(r"[A-Za-z0-9].", name) else f"recipe-{name}"


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


def build_gang(
    recipe: Recipe, options: LaunchOptions, environ: Mapping[str, str]
) -> tuple[Deployment, ...]:
    """One deployment for each machine; as many machines as the command's parallel sizes take.

    Raises:
        Refused: they take more machines than there are.
    """
    if not options.nodes.several:
        return (build_deployment(recipe, options, environ),)
    head = build_deployment(recipe, options, environ)
    if options.nodes.ray:
        return (head,)
    serve = parse_serve(head.command)
    try:
        needed = rules.count_needed(serve) if serve else len(options.nodes.addresses)
    except ValueError as error:
        raise UsageError(f"{recipe.name}: a parallel size is not a number: {error}") from error
    given = options.nodes.addresses
    if needed > len(given):
        raise Refused(
            f"{recipe.name}: its parallel sizes take {needed} machines, and --nodes names "
            f"{len(given)}",
            hint="name more machines, or --set tensor_parallel=N",
        )
    used = replace(options, nodes=Nodes(given[:needed]))
    return tuple(
        build_deployment(recipe, replace(used, rank=rank), environ) for rank in range(needed)
    )


def _port_parameter(parameters: Mapping[str, Parameter]) -> int:
    value = str(parameters["port"].value) if "port" in parameters else "8000"
    return int(value) if value.isdecimal() and 0 < int(value) < 65536 else 0


def _build_gpus(gpus: str | list[int]) -> Gpus | None:
    if gpus == "none":
        return None
    return Gpus() if isinstance(gpus, str) else Gpus(tuple(gpus))


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


def _build_labels(
    recipe: Recipe, spec: ContainerSpec, endpoint: str, served: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Ownership and what `ps`, `health` and `wait` need: the engine is the only store of state."""
    return (
        (f"{LABEL}.endpoint", endpoint),
        (f"{LABEL}.file", recipe.file.stem),
        (f"{LABEL}.recipe", recipe.name),
        (f"{LABEL}.served", json.dumps(list(served))),
        (f"{LABEL}.spec", spec.digest()),
        (f"{LABEL}.stall_s", f"{recipe.keys.stall_timeout_s:g}"),
        (f"{LABEL}.version", __version__),
    )
