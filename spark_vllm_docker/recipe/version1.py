"""Version-1 recipe file → `Recipe`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from spark_vllm_docker.findings import Finding, Severity, did_you_mean
from spark_vllm_docker.recipe.faults import (
    SUGGESTIONS,
    drop_foreign,
    raise_sorted,
    validate_keys,
)
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.models import Keys, Version1
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.source import KeyPath, Source
from spark_vllm_docker.recipe.template import Template, parse_lenient, parse_template
from spark_vllm_docker.recipe.template_command import CommandPlaces, TemplateCommand

MODEL = "model"


def read_version1(source: Source, path: Path, hardware: str = "") -> Recipe:
    """Check the keys and the command; `hardware` changes nothing in this form.

    Raises:
        InvalidRecipe: with every fault of the file.
    """
    data, notes = drop_foreign(source, Version1)
    keys, findings = validate_keys(Version1, data, source)
    # The command is checked even when another key is at fault, so that one run shows everything.
    command, told = _read_command(source)
    findings += [finding for finding in told if finding.severity is Severity.ERROR]
    if findings or keys is None or command is None:
        raise_sorted([*findings, *notes, *source.duplicates], path)
    values: Mapping[str, object] = keys.defaults
    paths: dict[str, KeyPath] = {name: ("defaults", name) for name in values}
    if MODEL in command.names and MODEL not in values:
        values, paths = {MODEL: keys.model, **values}, {MODEL: (MODEL,), **paths}
    return Recipe(
        file=path,
        form=Form.VERSION_1,
        keys=Keys.model_construct(
            **keys.model_dump(exclude={"recipe_version", "command", "defaults"})
        ),
        command=command,
        values=values,
        paths=paths,
        source=source,
        notes=(*source.duplicates, *notes, *told),
        unused=tuple(name for name in keys.defaults if name not in command.names),
        hardware=hardware,
    )


def _read_command(source: Source) -> tuple[TemplateCommand | None, list[Finding]]:
    """The command, and what is to be said about it: faults, or a note that it is read leniently."""
    data = source.data
    text = data.get("command") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(text, str):
        return None, []
    defaults = data.get("defaults")
    known = set(defaults) if isinstance(defaults, dict) else set()
    template = parse_template(text)
    faults = _check_template(template, source, known)
    if faults:
        # Of another runner: the model as a parameter, or raw JSON.
        known |= {MODEL} if isinstance(data.get(MODEL), str) else set()
        if not _check_template(template, source, known):
            return TemplateCommand(text, template, parse_template, source), [
                _say_lenient(template, source, braces=False)
            ]
        lenient = parse_lenient(text, known)
        if lenient is None:
            return None, faults
        scan = partial(_scan_leniently, known=frozenset(known))
        return TemplateCommand(text, lenient, scan, source), [
            _say_lenient(lenient, source, braces=True)
        ]
    return TemplateCommand(text, template, parse_template, source), []


def _scan_leniently(text: str, known: frozenset[str]) -> Template:
    return parse_lenient(text, known) or parse_template(text)


def _check_template(template: Template, source: Source, known: set[str]) -> list[Finding]:
    """Findings for stray braces and for placeholders without a value."""
    place = CommandPlaces(source).find
    findings = [
        Finding(
            "REC006", Severity.ERROR, f"command: {fault.message}", place(fault.offset), fault.fix
        )
        for fault in template.faults
    ]
    for part in template.parts:
        if isinstance(part, str) or part.name in known:
            continue
        close = did_you_mean(part.name, known) if len(findings) < SUGGESTIONS else ""
        message = f"command: {{{part.name}}} has no value{close}"
        fix = f"add '{part.name}:' to defaults"
        findings.append(Finding("REC007", Severity.ERROR, message, place(part.offset), fix))
    return findings


def _say_lenient(template: Template, source: Source, *, braces: bool) -> Finding:
    what = ["other braces stay"] if braces else []
    what += ["{model} is from model:"] if MODEL in template.names else []
    message = f"read leniently: {' and '.join(what)}; the file was made for another runner"
    return Finding("REC011", Severity.NOTE, message, source.where(("command",), value=True))
