"""The text of a structured recipe, with the comments of the recipe that it was."""

from __future__ import annotations

import re
from typing import Any

import yaml

from spark_vllm_docker.recipe.comments import Comments, read_comments
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.source import KeyPath

SCHEMA_LINE = "# yaml-language-server: $schema="
_WIDTH = 96
_BLOCK_TEXT = re.compile(r"[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]*")
_ITEM_ON_EACH_LINE = ("setup", "mods", "volumes", "build_args")


class _Dumper(yaml.SafeDumper):
    """Block text for several lines, and lists below their key."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent list items below their key."""
        del indentless
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    block = "\n" in text.strip() and not text.endswith("\n\n")
    style = "|" if block and _BLOCK_TEXT.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def write_recipe(
    recipe: Recipe,
    data: dict[str, Any],
    serve: dict[str, Any],
    in_command: dict[str, list[str]],
    keys: dict[str, str],
) -> str:
    """The keys, then `serve`. `in_command` are the comments inside the old command, by the section
    that they belong to; `keys` maps parameters to flags, for the comments at them.
    """
    comments = _move(read_comments(recipe.source), keys, set(data), set(serve))
    for section, found in in_command.items():
        comments.above[(section,)] += found
    rows = [row for row in comments.head if not row.startswith(SCHEMA_LINE)]
    for key, value in data.items():
        if key == "env":
            rows += _write_section(key, value, comments)
        else:
            rows += _write_entry((key,), value, comments, "")
    rows += _write_section("serve", serve, comments)
    return "\n".join([*rows, *comments.left]) + "\n"


def dump_entry(key: str, value: object) -> list[str]:
    """`key: value` as lines of YAML."""
    short = isinstance(value, dict) and value and len(str(value)) < _WIDTH
    flow = True if short and _depth(value) < 3 else None
    if not isinstance(value, (dict, list)) or key in _ITEM_ON_EACH_LINE:
        flow = False
    if flow is True:
        inner = yaml.dump(
            value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=400
        )
        head = yaml.dump({key: 0}, Dumper=_Dumper).rsplit(":", 1)[0]
        return [f"{head}: {inner.strip()}"]
    text = yaml.dump(
        {key: value},
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=flow,
        width=1 << 16 if isinstance(value, str) else _WIDTH,
        allow_unicode=True,
    )
    return text.rstrip("\n").split("\n")


def _depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max((_depth(inner) for inner in value.values()), default=0)
    return 1 if isinstance(value, list) else 0


def _write_section(key: str, values: dict[str, Any], comments: Comments) -> list[str]:
    beside = comments.beside.get((key,), "")
    rows = [*comments.above.get((key,), []), f"{key}:{'  ' if beside else ''}{beside}"]
    for name, value in values.items():
        rows += _write_entry((key, name), value, comments, "  ")
    return rows


def _write_entry(path: KeyPath, value: object, comments: Comments, indent: str) -> list[str]:
    rows = dump_entry(str(path[-1]), value)
    beside = comments.beside.get(path)
    if beside and len(rows) == 1:
        rows[0] += f"  {beside}"
    elif beside:
        rows.insert(0, beside)
    return [indent + row if row else row for row in (*comments.above.get(path, ()), *rows)]


def _move(comments: Comments, keys: dict[str, str], top: set[str], serve: set[str]) -> Comments:
    """The comments at the keys that they speak of in the new file."""
    moved = Comments(head=list(comments.head), left=list(comments.left))

    def find_new(path: KeyPath) -> KeyPath | None:
        match path:
            case ("command", *_):
                return ("serve",)
            case ("defaults", name, *_):
                flag = keys.get(str(name), "")
                return ("serve", flag) if flag in serve else None
            case ("defaults",):
                return ("serve",)
            case ("env", name, *_):
                return ("env", name)
            case (name, *_):
                return (name,) if name in top else None
        return None

    for path, rows in comments.above.items():
        new = find_new(path)
        if new is None:
            moved.head += rows
        else:
            moved.above[new] += rows
    for path, row in comments.beside.items():
        new = find_new(path)
        if new is not None and new not in moved.beside:
            moved.beside[new] = row
        elif new is None and path[0] != "recipe_version":
            moved.head.append(row)
    return moved
