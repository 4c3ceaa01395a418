"""Putting a flag or a variable into the text of a structured recipe, with all comments kept.

Works line by line on sections that are written with one key on each line; another way of writing
is left alone, and said.
"""

from __future__ import annotations

import re

from spark_vllm_docker.errors import Refused
from spark_vllm_docker.recipe.flag_command import flag_name
from spark_vllm_docker.recipe.source import Source, parse_yaml

_VALUE = re.compile(r"""("(?:[^"\\]|\\.)*"|'[^']*'|[^#]*?)(\s+#.*)?$""")
_PLAIN = re.compile(r"[A-Za-z0-9_./-]+")


def set_in_recipe(text: str, file: str, section: str, name: str, value: str | None) -> str:
    """The text with `name: value` in `serve` or `env`; without the name where the value is None.

    Raises:
        Refused: the section is written in a way that is not edited here.
    """
    source = parse_yaml(text, file)
    lines = text.split("\n")
    key = _find_key(source, section, name)
    if key is None:
        changed = lines if value is None else _insert(source, lines, file, section, name, value)
    else:
        changed = _change(source, lines, file, (section, key), value)
    after = parse_yaml("\n".join(changed), file)
    found = _find_key(after, section, name)
    data = after.data if isinstance(after.data, dict) else {}
    written = data[section][found] if found else None
    if (None if written is None else _text(written)) != value:
        raise Refused(f"{file}: {section} is not written one key on each line; nothing was changed")
    return "\n".join(changed)


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
        while lines and not lines[-1].strip():
            lines = lines[:-1]
        return [*lines, f"{section}:", f"  {row}", ""]
    keys = [path for path in source.keys if len(path) == 2 and path[0] == section]
    at = source.where((section,))
    first = source.where(keys[0]) if keys else None
    if first is None or first.line == at.line:
        raise Refused(f"{file}:{at.line}: {section} is not written one key on each line")
    return [
        *lines[: first.line - 1],
        " " * (first.column - 1) + row,
        *lines[first.line - 1 :],
    ]


def _quote(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else f"'{value}'"


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
