"""pydantic's errors → findings with line, column, the found and the expected."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from spark_vllm_docker.errors import InvalidRecipe
from spark_vllm_docker.findings import Finding, Severity, Where, did_you_mean
from spark_vllm_docker.recipe.source import KeyPath, Source

_FORMS = {
    "volumes": "SOURCE:/TARGET or SOURCE:/TARGET:ro",
    "env": "a name of letters, digits and _",
    "container": "an image such as vllm/vllm-openai:v0.20.0",
    "shm_size": "a size such as 16g",
    "name": "a name in one line",
}
Model = TypeVar("Model", bound=BaseModel)
SUGGESTIONS = 20  # after so many faults nobody reads on, and each costs a search
FOREIGN = frozenset(
    {
        "api_key_file",
        "benchmark",
        "builder",
        "builder_config",
        "cluster_config",
        "containers",
        "distribution_config",
        "executor",
        "executor_config",
        "launch",
        "max_nodes",
        "metadata",
        "min_nodes",
        "mmproj",
        "mode",
        "model_required_files",
        "model_revision",
        "post_commands",
        "post_exec",
        "pre_exec",
        "pull_image",
        "runtime",
        "runtime_cache",
        "runtime_config",
        "runtime_version",
        "stop_after_post",
        "tags",
        "turboquant_calibration_model",
    }
)
"""Keys that other runners of these files know, and that are told here instead of refused."""
_EXPECTED = {
    "string_type": "text",
    "string_pattern_mismatch": "text of another form",
    "string_too_short": "some text",
    "string_too_long": "a shorter text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "list_type": "a list",
    "model_type": "a mapping of recipe keys",
}


def validate_keys(
    model: type[Model], data: object, source: Source
) -> tuple[Model | None, list[Finding]]:
    """The keys as `model`, or what is wrong with them."""
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        return None, build_findings(error, source, model)


def drop_foreign(source: Source, model: type[BaseModel]) -> tuple[object, list[Finding]]:
    """The data without the keys that only other runners act on, and a finding for each of those."""
    data = source.data
    if not isinstance(data, dict):
        return data, []
    dropped = [key for key in data if key in FOREIGN and key not in model.model_fields]
    findings = [say_not_acted_on(key, source) for key in dropped]
    return {key: value for key, value in data.items() if key not in dropped}, findings


def say_not_acted_on(key: str, source: Source, why: str = "") -> Finding:
    """A key of another runner does nothing here."""
    message = f"{key}: spark-recipe does not act on this key{why}"
    return Finding("REC015", Severity.WARNING, message, source.where((key,)))


def raise_sorted(findings: Iterable[Finding], path: Path) -> NoReturn:
    """End the reading with everything that was found, in the order of the file."""
    raise InvalidRecipe(sorted(findings, key=lambda f: f.where or Where(str(path))))


def build_findings(error: ValidationError, source: Source, model: type[BaseModel]) -> list[Finding]:
    """One finding for each place that has a fault; a union's branches count as one."""
    findings: dict[KeyPath, Finding] = {}
    misspelt = _misspelt(error, model)
    for detail in error.errors(include_url=False, include_context=True):
        path = _path_in_file(detail["loc"], source)
        if detail["type"] == "missing" and detail["loc"][-1] in misspelt:
            continue  # told once, at the key that is meant
        code, message = _describe(detail, path, model, suggest=len(findings) < SUGGESTIONS)
        value = detail["type"] not in ("extra_forbidden", "missing")
        where = source.where(path, value=value) if path else source.start
        known = findings.get(path)
        if known is None or detail["type"] == "missing":
            key = path if detail["type"] != "missing" else (*path, str(detail["loc"][-1]))
            findings[key] = Finding(code, Severity.ERROR, message, where)
    return sorted(findings.values(), key=lambda f: (f.where or source.where(()), f.message))


def _misspelt(error: ValidationError, model: type[BaseModel]) -> set[str]:
    """The keys that unknown keys seem to mean."""
    unknown = [str(d["loc"][0]) for d in error.errors() if d["type"] == "extra_forbidden"]
    fields = model.model_fields
    return {match for key in unknown[:SUGGESTIONS] for match in get_close_matches(key, fields, n=1)}


def _path_in_file(loc: tuple[str | int, ...], source: Source) -> KeyPath:
    """Pydantic's location without the names of union branches, which are not in the file."""
    path: KeyPath = ()
    for part in loc:
        if (*path, part) not in source.keys:
            break
        path = (*path, part)
    return path


def _describe(
    detail: ErrorDetails, path: KeyPath, model: type[BaseModel], *, suggest: bool
) -> tuple[str, str]:
    kind = detail["type"]
    key = ".".join(str(part) for part in path)
    if kind == "missing":
        return "REC002", f"the key '{detail['loc'][-1]}' is missing"
    if kind == "extra_forbidden":
        known = model.model_fields if len(path) == 1 else _inner_fields(model)
        close = did_you_mean(str(path[-1]), known) if suggest else ""
        return "REC003", f"{key}: unknown key{close}"
    found = _name_of(detail["input"])
    if kind == "literal_error":
        expected = str(detail["ctx"]["expected"])
        if "'all' or 'none'" in expected:
            expected += " or a list of GPU numbers"
        return "REC004", f"{key}: expected {expected}, found {found}"
    expected = _EXPECTED.get(kind, "")
    if kind == "string_pattern_mismatch":
        expected = _FORMS.get(str(path[0]), expected) if path else expected
    if expected:
        prefix = f"{key}: " if key else ""
        return "REC004", f"{prefix}expected {expected}, found {found}"
    return "REC005", f"{key}: {_lower(detail['msg'])}, found {found}"


def _inner_fields(model: type[BaseModel]) -> set[str]:
    """The keys of the models inside a model."""
    names: set[str] = set()
    todo: list[Any] = [field.annotation for field in model.model_fields.values()]
    while todo:
        annotation = todo.pop()
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = annotation.model_fields.items()
            names |= {field.alias or name for name, field in fields}
        todo += get_args(annotation)
    return names


def _name_of(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case str() if len(value) > 60:
            return f"'{value[:57]}...'"
        case str():
            return f"'{value}'"
        case _:
            return f"{value}"


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
