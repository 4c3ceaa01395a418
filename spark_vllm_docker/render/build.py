"""`Recipe` and options → `Deployment`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from spark_vllm_docker import __version__
from spark_vllm_docker.errors import Refused, UsageError
from spark_vllm_docker.recipe import nodes as rules
from spark_vllm_docker.recipe.models import size_in_bytes
from spark_vllm_docker.recipe.nodes import Nodes
from spark_vllm_docker.recipe.overrides import (
    resolve_env,
)
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import exec_serve, parse_serve
from spark_vllm_docker.recipe.shell import scan_shell
from spark_vllm_docker.render.command import LaunchOptions
from spark_vllm_docker.render.deployment import LOOPBACK, Deployment
from spark_vllm_docker.render.outline import Outline, outline_launch
from spark_vllm_docker.render.script import render_script
from spark_vllm_docker.render.spec import (
    API_KEY_VARIABLE,
    LABEL,
    SECRET_FROM_HOST,
    ContainerSpec,
    Gpus,
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
    keys = recipe.keys
    outline = outline_launch(recipe, options, environ)
    spec = _build_spec(recipe, options, outline)
    # The address to ask, which is not the address to listen on.
    address = LOOPBACK if options.listen in ("0.0.0.0", "::", "") else options.listen  # noqa: S104
    bracketed = f"[{address}]" if ":" in address else address
    endpoint = f"http://{bracketed}:{outline.port}"
    served = outline.serve.served if outline.serve else ()
    return Deployment(
        recipe=recipe.name,
        spec=replace(spec, labels=_build_labels(recipe, spec, endpoint, served)),
        command=outline.command,
        script=spec.command[-1],
        endpoint=endpoint,
        served=served,
        stall_timeout_s=keys.stall_timeout_s,
        ready_timeout_s=keys.ready_timeout_s,
    )


def _build_spec(recipe: Recipe, options: LaunchOptions, outline: Outline) -> ContainerSpec:
    keys = recipe.keys
    env = resolve_env(recipe, options.overrides.env)
    expanded = [(name, value.value) for name, value in env.items() if value.expand]
    fixed = {n: v.value for n, v in env.items() if not v.expand and not v.from_host}
    script = render_script(
        " ".join(recipe.name.split()),
        exec_serve("\n".join([*(mod.lines for mod in outline.mods), outline.command])),
        expanded,
        has_steps=bool(outline.mods) or len(scan_shell(outline.command).commands) > 1,
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
        mounts=outline.mounts,
        ports=outline.ports,
        network=outline.network,
        gpus=_build_gpus(keys.gpus) if options.use_gpus else None,
        ipc=keys.ipc,
        shm_size_bytes=size_in_bytes(keys.shm_size),
    )


def container_name(recipe_name: str) -> str:
    """The recipe's name as engines allow it: letters, digits, `_`, `.` and `-`."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", recipe_name).strip("-.")
    return name if re.match(r"[A-Za-z0-9].", name) else f"recipe-{name}"


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


def _build_gpus(gpus: str | list[int]) -> Gpus | None:
    if gpus == "none":
        return None
    return Gpus() if isinstance(gpus, str) else Gpus(tuple(gpus))


def _build_labels(
    recipe: Recipe, spec: ContainerSpec, endpoint: str, served: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Ownership and what `ps`, `health` and `wait` need: the engine is the only store of state."""
    return (
        (f"{LABEL}.endpoint", endpoint),
        (f"{LABEL}.file", recipe.file.stem),
        (f"{LABEL}.modalities", json.dumps(list(recipe.keys.modalities))),
        (f"{LABEL}.recipe", recipe.name),
        (f"{LABEL}.served", json.dumps(list(served))),
        (f"{LABEL}.spec", spec.digest()),
        (f"{LABEL}.stall_s", f"{recipe.keys.stall_timeout_s:g}"),
        (f"{LABEL}.version", __version__),
    )
