"""Putting a flag or a variable into the text of a structured recipe, with all comments kept.

Works line by line on sections that are written with one key on each line; another way of writing
is left alone, and said.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from spark_vllm_docker.errors import InvalidRecipe, Refused
from spark_vllm_docker.recipe.flag_command import flag_name
from spark_vllm_docker.recipe.source import Source, parse_yaml

_VALUE = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|.*?)(\s+#.*)?$""")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def set_in_recipe(text: str, file: str, section: str, name: str, value: str | None) -> str:
    """The text with `name: value` in `serve` or `env`; without the name where the value is None.

    Raises:
        Refused: the section is written in a way that is not edited here.
    """
    unix = text.replace("\r\n", "\n")
    source = parse_yaml(unix, file)
    if _is_set_by_condition(source, section, name):
        raise Refused(
            f"{file}: {name} is set in a when: block too, which counts more; nothing was changed"
        )
    lines = unix.split("\n")
    key = _find_key(source, section, name)
    if key is None:
        changed = lines if value is None else _insert(source, lines, file, section, name, value)
    else:
        changed = _change(source, lines, file, (section, key), value)
    if not _is_as_meant(source, "\n".join(changed), file, (section, name, value)):
        raise Refused(f"{file}: {section} is written in a way that is left alone here")
    return ("\r\n" if unix != text else "\n").join(changed)


def _is_as_meant(before: Source, text: str, file: str, change: tuple[str, str, str | None]) -> bool:
    """Whether the new text holds the value, and else exactly what it held before."""
    section, name, value = change
    try:
        after = parse_yaml(text, file)
    except InvalidRecipe:
        return False
    found = _find_key(after, section, name)
    data = after.data if isinstance(after.data, dict) else {}
    written = data[section][found] if found else None
    if not _is_same(written, value):
        return False
    return _without(before, section, name) == _without(after, section, name)


def _without(source: Source, section: str, name: str) -> dict[str, Any]:
    """All of a recipe but one key, and but a section that has nothing else."""
    data = dict(source.data) if isinstance(source.data, dict) else {}
    key = _find_key(source, section, name)
    own = data.pop(section, None)
    rest = {k: v for k, v in own.items() if k != key} if isinstance(own, dict) else own
    return {**data, section: rest} if rest else data


def _is_same(written: object, value: str | None) -> bool:
    if written is None or value is None:
        return written is None and value is None
    if isinstance(written, float):
        with suppress(ValueError):
            return written == float(value)
    return _text(written) == value


def _is_set_by_condition(source: Source, section: str, name: str) -> bool:
    blocks = source.data.get("when") if isinstance(source.data, dict) else None
    for block in blocks.values() if isinstance(blocks, dict) else ():
        inside = block.get(section) if isinstance(block, dict) else None
        for key in inside if isinstance(inside, dict) else ():
            if key == name or (section == "serve" and flag_name(str(key), "") == name):
                return True
    return False


def _find_key(source: Source, section: str, name: str) -> str | None:
    data = source.data.get(section) if isinstance(source.data, dict) else None
    for key in data if isinstance(data, dict) else ():
        if key == name or (section == "serve" and flag_name(str(key), "") == name):
            return str(key)
    return None


def _change(
    source: Source, lines: list[str], file: str, path: tuple[str, str], value: str | None
) -> list[str]:
    where, at_key = source.where(path, value=True), source.where(path)
    row = lines[where.line - 1]
    if where.line != at_key.line or row[: at_key.column - 1].strip():
        raise Refused(
            f"{file}:{at_key.line}: {path[1]} does not stand on a line of its own; "
            "nothing was changed"
        )
    if value is None:
        return [*lines[: where.line - 1], *lines[where.line :]]
    found = _VALUE.match(row[where.column - 1 :])
    comment = (found[2] or "") if found else ""
    changed = row[: where.column - 1] + _quote(value) + comment
    return [*lines[: where.line - 1], changed, *lines[where.line :]]


def _insert(
    source: Source, lines: list[str], file: str, section: str, name: str, value: str
) -> list[str]:
    row = f"{name}: {_quote(value)}"
    if not isinstance(source.data, dict) or section not in source.data:
        kept = lines[:-1] if lines and not lines[-1] else lines
        return [*kept, f"{section}:", f"  {row}", ""]
    keys = [path for path in source.keys if len(path) == 2 and path[0] == section]
    at = source.where((section,))
    first = source.where(keys[0]) if keys else None
    if first is None or first.line == at.line:
        raise Refused(f"{file}:{at.line}: {section} is not written one key on each line")
    # Right below the section's own line: a comment stays with the key that it stands above.
    return [*lines[: at.line], " " * (first.column - 1) + row, *lines[at.line :]]


def _quote(value: str) -> str:
    quoted = value.replace("'", "''")
    return value if _PLAIN.fullmatch(value) else f"'{quoted}'"


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
