"""pydantic's errors → findings with line, column, the found and the expected."""

from __future__ import annotations

from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from spark_vllm_docker.findings import Finding, Severity, did_you_mean
from spark_vllm_docker.recipe.source import KeyPath, Source

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


def build_findings(error: ValidationError, source: Source, model: type[BaseModel]) -> list[Finding]:
    """One finding for each place that has a fault; a union's branches count as one."""
    findings: dict[KeyPath, Finding] = {}
    misspelt = _misspelt(error, model)
    for detail in error.errors(include_url=False, include_context=True):
        path = _path_in_file(detail["loc"], source)
        if detail["type"] == "missing" and detail["loc"][-1] in misspelt:
            continue  # told once, at the key that is meant
        code, message = _describe(detail, path, model)
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
    return {match for key in unknown for match in get_close_matches(key, model.model_fields, n=1)}


def _path_in_file(loc: tuple[str | int, ...], source: Source) -> KeyPath:
    """Pydantic's location without the names of union branches, which are not in the file."""
    path: KeyPath = ()
    for part in loc:
        if (*path, part) not in source.keys:
            break
        path = (*path, part)
    return path


def _describe(detail: ErrorDetails, path: KeyPath, model: type[BaseModel]) -> tuple[str, str]:
    kind = detail["type"]
    key = ".".join(str(part) for part in path)
    if kind == "missing":
        return "REC002", f"the key '{detail['loc'][-1]}' is missing"
    if kind == "extra_forbidden":
        return "REC003", f"{key}: unknown key{did_you_mean(key, model.model_fields)}"
    found = _name_of(detail["input"])
    if kind == "literal_error":
        expected = str(detail["ctx"]["expected"])
        if "'all' or 'none'" in expected:
            expected += " or a list of GPU numbers"
        return "REC004", f"{key}: expected {expected}, found {found}"
    expected = _EXPECTED.get(kind, "")
    if expected:
        prefix = f"{key}: " if key else ""
        return "REC004", f"{prefix}expected {expected}, found {found}"
    return "REC005", f"{key}: {_lower(detail['msg'])}, found {found}"


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
