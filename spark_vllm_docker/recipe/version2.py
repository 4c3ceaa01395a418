"""Version-2 recipe file (the format of sparkrun) → `Recipe`.

Facts of the format: the model is a parameter; `{key}` is a placeholder where the key is known and
stays where it is not; a value may hold placeholders itself; without `command` one is built from
`defaults`; `include:` merges a file of the same folder; the entries of `overrides:` whose `when:`
holds are laid over `defaults` and `env` in order; values in `env` are literal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.catalog.image_versions import read_vllm_version
from spark_vllm_docker.findings import Finding, Severity, Where, did_you_mean
from spark_vllm_docker.recipe.bases import read_chain
from spark_vllm_docker.recipe.conditions import find_layers
from spark_vllm_docker.recipe.faults import (
    SUGGESTIONS,
    drop_foreign,
    raise_sorted,
    say_not_acted_on,
    validate_keys,
)
from spark_vllm_docker.recipe.flag_command import MODEL, FlagCommand, flag_name
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.merge import lift, merge_sources, pick
from spark_vllm_docker.recipe.models import Keys, Version2, name_of_file
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.source import KeyPath, Source
from spark_vllm_docker.recipe.template import Template, parse_version2, resolve_values
from spark_vllm_docker.recipe.template_command import CommandPlaces, TemplateCommand

RUNTIMES = ("", "vllm", "vllm-distributed", "vllm-ray", "eugr-vllm")
_NAMES = {
    "tensor_parallel": "-tp",
    "pipeline_parallel": "-pp",
    "data_parallel": "data-parallel-size",
}
_ONE_MACHINE = "distributed_executor_backend"
_NESTING = 8


def read_version2(source: Source, path: Path, hardware: str) -> Recipe:
    """Merge what the file includes, lay its overrides over it, check the result.

    Raises:
        InvalidRecipe: with every fault of the file.
    """
    merged = reduce(_lay, read_chain(source, path, "include"))
    layers, notes = find_layers(merged, hardware)
    for index in layers:
        layer = pick(lift(merged, ("overrides", index)), lambda key: key != "when")
        merged = merge_sources(merged, layer, _same_name, layer=f"overrides[{index}]")
    data, foreign = drop_foreign(merged, Version2)
    keys, findings = validate_keys(Version2, data, merged)
    findings += _check_runtime(merged)
    if keys is not None and keys.max_nodes is not None and keys.max_nodes < keys.min_nodes:
        message = f"max_nodes: {keys.max_nodes} is less than min_nodes, {keys.min_nodes}"
        where = merged.where(("max_nodes",), value=True)
        findings.append(Finding("REC005", Severity.ERROR, message, where))
    if findings or keys is None:
        raise_sorted([*findings, *source.duplicates, *foreign], path)
    values: dict[str, object] = {MODEL: keys.model, **keys.defaults}
    command, told = _build_command(keys, values, merged)
    names = set(command.names) if isinstance(command, TemplateCommand) else set(values)
    steps, skipped = _find_steps(keys, merged)
    if isinstance(command, FlagCommand):
        shown, paths = command.values, _flag_paths(keys, command.version)
    else:
        shown = {name: values[name] for name in values if name in names}
        paths = {name: ("defaults", name) for name in shown}
    return Recipe(
        file=path,
        form=Form.VERSION_2,
        keys=_build_keys(keys, path, steps),
        command=command,
        values=shown,
        paths={**paths, MODEL: (MODEL,)},
        source=merged,
        notes=(*source.duplicates, *notes, *foreign, *told, *skipped),
        hardware=hardware,
        step_values=values,
        unused=tuple(
            name for name in keys.defaults if name not in names and not _used_in_values(name, keys)
        )
        if isinstance(command, TemplateCommand)
        else (),
    )


def _lay(base: Source, over: Source) -> Source:
    """As `include:` merges: entries of `overrides` add up, the base's first."""
    below: Any = base.data
    mine: Any = over.data
    first, then = below.get("overrides"), mine.get("overrides")
    if not isinstance(first, list) or not isinstance(then, list):
        return merge_sources(base, over, _same_name)
    keys = {_shift(p, len(first)): where for p, where in over.keys.items()}
    values = {_shift(p, len(first)): where for p, where in over.values.items()}
    keys |= {p: where for p, where in base.keys.items() if p[:1] == ("overrides",) and len(p) > 1}
    values |= {p: w for p, w in base.values.items() if p[:1] == ("overrides",) and len(p) > 1}
    data = {**mine, "overrides": [*first, *then]}
    return merge_sources(base, replace(over, data=data, keys=keys, values=values), _same_name)


def _shift(path: KeyPath, by: int) -> KeyPath:
    """The place of an entry of `overrides` behind those of the base."""
    if path[:1] == ("overrides",) and len(path) > 1 and isinstance(path[1], int):
        return (path[0], path[1] + by, *path[2:])
    return path


def _same_name(section: str, name: str) -> str:
    del section
    return name


def _check_runtime(source: Source) -> list[Finding]:
    data: Any = source.data
    runtime = data.get("runtime", "") if isinstance(data, dict) else ""
    if runtime in RUNTIMES or not isinstance(runtime, str):
        return []
    where = source.where(("runtime",), value=True)
    message = f"runtime: '{runtime}' is not vLLM, the only one that spark-recipe starts"
    close = did_you_mean(runtime, RUNTIMES)
    if isinstance(data.get("command"), str):
        return []  # a command says itself what it starts
    return [Finding("REC020", Severity.ERROR, message + close, where, "write a command:")]


def _build_command(
    keys: Version2, values: dict[str, object], source: Source
) -> tuple[TemplateCommand | FlagCommand, list[Finding]]:
    if keys.command is None:
        return _command_of_defaults(keys, values, source)
    known = frozenset(values)
    scan = partial(_scan, known=known, doubled="{{" in keys.command)
    template = scan(keys.command)
    inner = frozenset(name for name in values if _used_in_values(name, keys))
    command = TemplateCommand(keys.command, template, scan, source, nested=True, inner=inner)
    return command, _check_template(keys.command, known, source)


def _scan(text: str, known: frozenset[str], *, doubled: bool) -> Template:
    return parse_version2(text, known, doubled=doubled)


def _check_template(text: str, known: frozenset[str], source: Source) -> list[Finding]:
    place = CommandPlaces(source).find
    findings: list[Finding] = []
    for at, name in _unknown_names(text, known):
        close = did_you_mean(name, known) if len(findings) < SUGGESTIONS else ""
        message = f"command: {{{name}}} has no value and stays as it is{close}"
        fix = f"add '{name}:' to defaults"
        findings.append(Finding("REC007", Severity.WARNING, message, place(at), fix))
    if "{{" in text:
        message = "command: doubled braces are the older spelling; write single ones"
        findings.append(Finding("REC021", Severity.NOTE, message, place(text.index("{{"))))
    return findings


def _unknown_names(text: str, known: frozenset[str]) -> list[tuple[int, str]]:
    template = parse_version2(text, _Every(), doubled="{{" in text)
    return [
        (part.offset, part.name)
        for part in template.parts
        if not isinstance(part, str)
        and part.name not in known
        and text[part.offset - 1 : part.offset] != "$"
    ]


class _Every(frozenset[str]):
    """Knows every name."""

    def __contains__(self, name: object) -> bool:
        return True


def _command_of_defaults(
    keys: Version2, values: dict[str, object], source: Source
) -> tuple[FlagCommand, list[Finding]]:
    """Every default that is a flag of vLLM. What is none is told, not dropped in silence."""
    version = read_vllm_version(keys.container) or ""
    flags: list[tuple[str, object]] = []
    places: dict[str, tuple[Where, Where]] = {
        MODEL: (source.where((MODEL,)), source.where((MODEL,), value=True)),
        "": (source.start, source.start),
    }
    told: list[Finding] = []
    known = find_release("").flags
    resolved = resolve_values(values)
    seen: set[str] = set()
    if keys.model_revision:
        flags.append(("revision", keys.model_revision))
        path: KeyPath = ("model_revision",)
        places["revision"] = (source.where(path), source.where(path, value=True))
    for name in keys.defaults:
        path = ("defaults", name)
        key = _NAMES.get(name, name.replace("_", "-"))
        if name == _ONE_MACHINE:
            continue
        if f"--{flag_name(key, '').partition('.')[0]}" not in known and not key.startswith("-"):
            shown = [flag.lstrip("-").replace("-", "_") for flag in known]
            message = f"defaults.{name}: no flag of vLLM, and nothing uses it"
            message += did_you_mean(name, shown) if len(told) < SUGGESTIONS else ""
            told.append(Finding("REC008", Severity.WARNING, message, source.where(path)))
            continue
        own = flag_name(key, version)
        if own in seen:
            message = f"defaults.{name}: the flag --{own} is there already, under another name"
            told.append(Finding("REC014", Severity.WARNING, message, source.where(path)))
            continue
        seen.add(own)
        value = values[name]
        flags.append((key, resolved[name] if isinstance(value, str) else value))
        places[key] = (source.where(path), source.where(path, value=True))
    return FlagCommand(version, keys.model, tuple(flags), places), told


def _flag_paths(keys: Version2, version: str) -> dict[str, KeyPath]:
    paths: dict[str, KeyPath] = {
        flag_name(_NAMES.get(name, name), version): ("defaults", name)
        for name in reversed(list(keys.defaults))
    }
    return paths | {"revision": ("model_revision",)}


def _used_in_values(name: str, keys: Version2) -> bool:
    texts = [*keys.defaults.values(), *keys.pre_exec]
    return any(isinstance(text, str) and f"{{{name}}}" in text for text in texts)


def _find_steps(keys: Version2, source: Source) -> tuple[list[str], list[Finding]]:
    """The steps before the server, and what of `pre_exec` is not acted on: files to be copied."""
    steps = [step for step in keys.pre_exec if isinstance(step, str)]
    if len(steps) == len(keys.pre_exec):
        return steps, []
    why = ": its files are not copied into the container"
    return steps, [say_not_acted_on("pre_exec", source, why)]


def _build_keys(keys: Version2, path: Path, steps: list[str]) -> Keys:
    metadata = keys.metadata
    tags = metadata.get("tags")
    description = keys.description or str(metadata.get("description") or "")
    shared = keys.model_dump(include=set(Keys.model_fields) - {"name", "description"})
    shared["env"] = {n: value for n, value in keys.env.items() if value is not None}
    shared["solo_only"] = keys.solo_only or keys.max_nodes == 1 or keys.mode == "solo"
    shared["cluster_only"] = keys.cluster_only or keys.min_nodes > 1 or keys.mode == "cluster"
    return Keys.model_construct(
        **shared,
        name=keys.name or name_of_file(path),
        description=description.strip(),
        tags=[str(tag) for tag in tags] if isinstance(tags, list) else [],
        setup=steps,
        env_is_literal=True,
    )
