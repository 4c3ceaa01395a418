"""The flags of a recipe against the vLLM release in its image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from spark_vllm_docker.catalog.flags import (
    VersionFlags,
    find_release,
    load_flag_changes,
    load_versions,
    version_key,
)
from spark_vllm_docker.catalog.image_versions import read_vllm_version
from spark_vllm_docker.findings import Finding, Severity, did_you_mean
from spark_vllm_docker.plan.flag_values import find_value_fault
from spark_vllm_docker.recipe.arguments import Arguments, Given, read_arguments
from spark_vllm_docker.recipe.faults import SUGGESTIONS
from spark_vllm_docker.recipe.recipe import Recipe

_PARSERS = {"--tool-call-parser": "tool_call_parser", "--reasoning-parser": "reasoning_parser"}
_OPEN_SETS = {
    **_PARSERS,
    "--attention-backend": "attention_backend",
    "--quantization": "quantization",
}
_PLUGINS = {
    "--tool-call-parser": "--tool-parser-plugin",
    "--reasoning-parser": "--reasoning-parser-plugin",
}


def check_flags(recipe: Recipe) -> list[Finding]:
    """All findings about the words after `vllm serve`; none for a command of something else."""
    words = recipe.command.read_arguments(recipe.values)
    if words is None:
        return []
    version, findings = _choose_version(recipe)
    arguments = read_arguments(words, version.flags)
    for given in arguments.given:
        findings += _check_given(given, version, arguments, suggest=len(findings) < SUGGESTIONS)
    findings += _check_repeated(arguments, version)
    findings += _check_dotted(arguments)
    findings += _check_conflicts(arguments)
    findings += _check_model(recipe, arguments)
    return findings


def check_added(recipe: Recipe, arguments: Arguments, written: Sequence[Finding]) -> list[Finding]:
    """Findings about the final words of a command that its file alone does not have: an override or
    an argument that was added is at fault. Their place is the recipe.
    """
    version, _ = _choose_version(recipe)
    known = {(finding.code, finding.message) for finding in written}
    findings: list[Finding] = []
    for given in arguments.given:
        findings += _check_given(given, version, arguments, suggest=True)
    findings += _check_conflicts(arguments)
    return [
        replace(finding, message=f"{finding.message} (set from outside)")
        for finding in findings
        if (finding.code, finding.message) not in known
    ]


def _choose_version(recipe: Recipe) -> tuple[VersionFlags, list[Finding]]:
    """The release in the image; without one, all that any release knows."""
    image = recipe.keys.container
    version = read_vllm_version(image)
    release = find_release(version)
    if release.version:
        return release, []
    versions = load_versions()
    where = recipe.source.where(("container",), value=True)
    known_range = f"{next(iter(versions))} to {next(reversed(versions))}"
    what = f"vLLM {version} is not known" if version else f"the vLLM in {image} is not known"
    message = f"{what}; flags are checked against all of {known_range}"
    return release, [Finding("FLAG010", Severity.NOTE, message, where)]


def _check_given(
    given: Given, version: VersionFlags, arguments: Arguments, *, suggest: bool
) -> Iterator[Finding]:
    flag = version.flags.get(given.name)
    if flag is None:
        yield _unknown(given, version, suggest=suggest)
        return
    word, message = find_value_fault(given, flag)
    if message:
        where = word.where if word else given.where
        yield Finding("FLAG002", Severity.ERROR, f"{given.written} {message}", where)
    elif given.name in _OPEN_SETS and given.values and not _registers(given, arguments):
        yield from _check_open_set(given, version)


def _registers(given: Given, arguments: Arguments) -> bool:
    """A plugin may bring the name with it."""
    plugin = _PLUGINS.get(given.name)
    return plugin is not None and arguments.find(plugin) is not None


def _check_open_set(given: Given, version: VersionFlags) -> Iterator[Finding]:
    """Argparse takes any name here; vLLM fails with it later, before the engine starts."""
    known = version.sets.get(_OPEN_SETS[given.name], [])
    value = given.values[0]
    if given.name == "--attention-backend":
        matches = value.value.upper() in known or value.value == "auto"
    else:
        matches = value.value in known
    if known and not matches and "." not in value.value:
        release = f"vLLM {version.version}" if version.version else "any release"
        message = f"{given.written}: '{value.value}' does not exist in {release}"
        close = did_you_mean(value.value, known)
        # An image of unknown contents may be patched.
        severity = Severity.ERROR if version.version else Severity.WARNING
        yield Finding("FLAG003", severity, message + close, value.where)


def _unknown(given: Given, version: VersionFlags, *, suggest: bool) -> Finding:
    name = given.written.partition(".")[0].replace("_", "-")
    where = given.where
    if given.candidates:
        both = ", ".join(given.candidates[:4])
        return Finding("FLAG004", Severity.ERROR, f"{given.written} could be {both}", where)
    instead = load_flag_changes().get(name, "")
    having = [v for v, known in load_versions().items() if name in known.flags]
    if not version.version:
        close = did_you_mean(name, _spellings(version.flags)) if suggest else ""
        message = f"{given.written}: no release of vLLM has this flag{close}"
        return Finding("FLAG001", Severity.WARNING, message, where, instead)
    release = f"vLLM {version.version} does not have it"
    if having and version_key(having[-1]) < version_key(version.version):
        release = f"gone after vLLM {having[-1]}, and the image has {version.version}"
    elif having:
        release = f"new in vLLM {having[0]}, and the image has {version.version}"
    close = did_you_mean(name, _spellings(version.flags)) if suggest and not having else ""
    return Finding("FLAG001", Severity.ERROR, f"{given.written}: {release}{close}", where, instead)


def _spellings(flags: Mapping[str, dict[str, Any]]) -> list[str]:
    negated = [f"--no-{name[2:]}" for name, flag in flags.items() if flag.get("negatable")]
    return [*flags, *negated]


def _check_repeated(arguments: Arguments, version: VersionFlags) -> Iterator[Finding]:
    seen: dict[str, Given] = {}
    for given in arguments.given:
        kind = version.flags.get(given.name, {}).get("kind", "")
        if not given.name or given.key or kind == "append":
            continue
        if given.name in seen:
            message = f"{given.written} is given twice; the last one counts"
            yield Finding("FLAG005", Severity.WARNING, message, given.where)
        seen[given.name] = given


def _check_dotted(arguments: Arguments) -> Iterator[Finding]:
    """A parser of vLLM puts the dotted keys of a flag together and behind everything else: the
    flag's own value is then lost (utils/argparse_utils.py, 0.16 to 0.32).
    """
    whole = {given.name for given in arguments.given if given.name and not given.key}
    for given in arguments.given:
        if given.key and given.name in whole:
            message = f"{given.written}: its dotted form replaces all that {given.name} says"
            fix = f"write {given.key} into the value of {given.name}"
            yield Finding("FLAG008", Severity.ERROR, message, given.where, fix)


def _check_conflicts(arguments: Arguments) -> Iterator[Finding]:
    """Pairs that vLLM refuses (entrypoints/openai/cli_args.py, validate_parsed_serve_args)."""
    for name, needed in (
        ("--enable-auto-tool-choice", "--tool-call-parser"),
        ("--enable-log-outputs", "--enable-log-requests"),
    ):
        given = arguments.find(name)
        if given is not None and not given.negated and arguments.find(needed) is None:
            message = f"{name} needs {needed}"
            yield Finding("FLAG006", Severity.ERROR, message, given.where, f"add {needed}")
    served = arguments.find("--served-model-name")
    if served and not arguments.positional and arguments.find("--model") is None:
        message = "--served-model-name without a model"
        fix = "write the model after vllm serve"
        yield Finding("FLAG007", Severity.ERROR, message, served.where, fix)


def _check_model(recipe: Recipe, arguments: Arguments) -> Iterator[Finding]:
    """`model:` is what tools download; the command is what is served."""
    named = recipe.keys.model
    if named and arguments.positional and arguments.positional[0].value != named:
        served = arguments.positional[0]
        message = f"the command serves {served.value}, and model: says {named}"
        yield Finding("REC009", Severity.WARNING, message, served.where)
