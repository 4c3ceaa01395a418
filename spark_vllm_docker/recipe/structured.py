"""Structured recipe file → `Recipe`: flags as YAML, on top of other recipes, by hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.catalog.hardware_names import HARDWARE
from spark_vllm_docker.catalog.image_versions import read_vllm_version
from spark_vllm_docker.findings import Finding, Severity, Where, did_you_mean
from spark_vllm_docker.recipe.bases import read_chain
from spark_vllm_docker.recipe.faults import raise_sorted, validate_keys
from spark_vllm_docker.recipe.flag_command import MODEL, FlagCommand, flag_name
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.merge import lift, merge_sources, pick
from spark_vllm_docker.recipe.models import Keys, Structured, name_of_file
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.source import KeyPath, Source

_OWN = ("name", "extends")
"""Keys that say what this file is, and that no other file inherits."""


def read_structured(source: Source, path: Path, hardware: str) -> Recipe:
    """Lay the file over what it extends, and its `when:` block over both; check the result.

    Raises:
        InvalidRecipe: with every fault of the file.
    """
    merged: Source | None = None
    chain = read_chain(source, path, "extends")
    for index, file in enumerate(chain):
        below = pick(merged, lambda key: key not in _OWN) if merged else None
        merged = merge_sources(below, file, _same_name) if below else file
        if not any(_takes_away(above, hardware) for above in chain[index + 1 :]):
            merged = _lay_block(merged, file, hardware)
    assert merged is not None  # noqa: S101 - the chain ends with the file itself
    keys, findings = validate_keys(Structured, merged.data, merged)
    findings += _refuse_twice(source) + _check_when(merged)
    findings += _check_complete(merged, source)
    if keys is not None:
        findings += _check_serve(keys, merged)
    if findings or keys is None or keys.container is None:
        raise_sorted(findings, path)
    command = _build_command(keys, merged)
    keys = keys.model_copy(update={"env": {n: v for n, v in keys.env.items() if v is not None}})
    dumped = keys.model_dump(exclude={"name", "serve", "extends", "when"})
    return Recipe(
        file=path,
        form=Form.STRUCTURED,
        keys=Keys.model_construct(name=keys.name or name_of_file(path), **dumped),
        command=command,
        values=command.values,
        paths=_find_paths(keys, command),
        source=merged,
        when=tuple(name for name in HARDWARE if name in keys.when),
        hardware=hardware,
    )


def _takes_away(above: Source, hardware: str) -> bool:
    """Whether a file says `when: {HARDWARE: null}`: the blocks of those below do not count then."""
    when = _mapping(above).get("when")
    return isinstance(when, dict) and hardware in when and when[hardware] is None


def _lay_block(merged: Source, over: Source, hardware: str) -> Source:
    data: Any = over.data
    when = data.get("when") if isinstance(data, dict) else None
    if not isinstance(when, dict) or not isinstance(when.get(hardware), dict):
        return merged
    block = lift(over, ("when", hardware))
    return merge_sources(merged, block, _same_name, layer=f"when {hardware}")


def _mapping(source: Source) -> dict[str, Any]:
    return source.data if isinstance(source.data, dict) else {}


def _same_name(section: str, name: str) -> str:
    """`max_model_len`, `max-model-len` and `-tp` meet under one name in `serve`."""
    return flag_name(name, "") if section == "serve" else name


def _refuse_twice(source: Source) -> list[Finding]:
    """A key that is there twice is a mistake; no runner before this one has ever read the file."""
    return [
        Finding("REC014", Severity.ERROR, finding.message, finding.where, finding.fix)
        for finding in source.duplicates
    ]


def _check_when(merged: Source) -> list[Finding]:
    when = _mapping(merged).get("when")
    findings = []
    for name in when if isinstance(when, dict) else ():
        if name not in HARDWARE:
            known = ", ".join(HARDWARE)
            message = f"when.{name}: unknown hardware{did_you_mean(name, HARDWARE)}"
            where = merged.where(("when", name))
            findings.append(Finding("REC018", Severity.ERROR, message, where, f"one of {known}"))
    return findings


def _check_complete(merged: Source, source: Source) -> list[Finding]:
    """What neither this file nor one that it extends has said."""
    if not isinstance(merged.data, dict):
        return []
    missing = []
    serve = merged.data.get("serve")
    names = serve if isinstance(serve, dict) else {}
    if merged.data.get("container") is None:
        missing.append(("container", "container: vllm/vllm-openai:v0.20.0"))
    if merged.data.get("model") is None and not any(flag_name(key, "") == MODEL for key in names):
        missing.append(("model", "model: org/name"))
    return [
        Finding("REC002", Severity.ERROR, f"the key '{key}' is missing", _find(source, key), fix)
        for key, fix in missing
    ]


def _find(source: Source, key: str) -> Where:
    """Where a key without a value stands; the start of the file where it does not."""
    return source.where((key,)) if (key,) in source.keys else source.start


def _check_serve(keys: Structured, merged: Source) -> list[Finding]:
    findings = []
    known = find_release("").flags
    seen: dict[str, str] = {}
    for key in keys.serve:
        where = merged.where(("serve", key))
        name = flag_name(key, "")
        if key.startswith("--") or not key or any(char.isspace() for char in key):
            message = f"serve: '{key}' is no name of a flag"
            plain = "-".join(key.strip("- \t\n").split())
            how = "without dashes in front" if key.startswith("-") else "with a dash"
            fix = f"write {plain or 'the flag'}: {how}"
            findings.append(Finding("REC019", Severity.ERROR, message, where, fix))
        elif key.startswith("no-") and f"--{key}" not in known and f"--{key[3:]}" in known:
            message = f"serve.{key}: the negation of {key[3:]} is its value false"
            fix = f"{key[3:]}: false"
            findings.append(Finding("REC019", Severity.ERROR, message, where, fix))
        elif name in seen:
            message = f"serve.{key}: the same flag as {seen[name]}"
            findings.append(Finding("REC014", Severity.ERROR, message, where))
        elif name == MODEL and keys.model:
            message = f"serve.{key}: the model is named twice, here and in model:"
            findings.append(Finding("REC014", Severity.ERROR, message, where))
        seen[name] = key
    return findings


def _build_command(keys: Structured, merged: Source) -> FlagCommand:
    places: dict[str, tuple[Where, Where]] = {
        key: (merged.where(("serve", key)), merged.where(("serve", key), value=True))
        for key in keys.serve
    }
    if keys.model:
        places[MODEL] = (merged.where((MODEL,)), merged.where((MODEL,), value=True))
    places[""] = (merged.where(("serve",)), merged.where(("serve",)))
    return FlagCommand(
        version=read_vllm_version(keys.container or "") or "",
        model=keys.model or "",
        flags=tuple(keys.serve.items()),
        places=places,
    )


def _find_paths(keys: Structured, command: FlagCommand) -> dict[str, KeyPath]:
    paths: dict[str, KeyPath] = {MODEL: (MODEL,)} if keys.model else {}
    paths |= {flag_name(key, command.version): ("serve", key) for key in keys.serve}
    return paths
