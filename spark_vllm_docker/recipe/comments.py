"""The comments of a YAML file, each with the key that it speaks of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import yaml

from spark_vllm_docker.recipe.source import KeyPath, Source, scan_tokens


@dataclass(slots=True)
class Comments:
    """`head` is what stands at the top of the file, `above` and `beside` what stands at a key.

    Every entry is text with its `#`. `left` is what no key follows.
    """

    head: list[str] = field(default_factory=list)
    above: dict[KeyPath, list[str]] = field(default_factory=lambda: defaultdict(list))
    beside: dict[KeyPath, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


def read_comments(source: Source) -> Comments:
    """All comments outside of block scalars, whose text may hold a `#` of its own."""
    comments = Comments()
    keys: dict[int, KeyPath] = {}
    for path, where in source.keys.items():
        if where.file == source.file:
            keys.setdefault(where.line, path)
    inside = _block_lines(source)
    ends = _token_ends(source.text)
    pending: list[str] = []
    for number, row in enumerate(source.text.splitlines(), start=1):
        text = row.strip()
        if number in inside:
            continue
        if text.startswith("#") and number not in ends:
            pending.append(text)
        elif not text and pending and not comments.above and not comments.head:
            comments.head, pending = pending, []
        elif number in keys:
            if pending:
                comments.above[keys[number]] += pending
                pending = []
            rest = row[ends.get(number, len(row)) :].strip()
            if rest.startswith("#"):
                comments.beside[keys[number]] = rest
    comments.left = pending
    return comments


def _block_lines(source: Source) -> set[int]:
    rows = source.text.splitlines()
    inside: set[int] = set()
    for path, indent in source.blocks.items():
        start = source.values[path]
        if start.file != source.file:
            continue
        for number in range(start.line + 1, len(rows) + 1):
            row = rows[number - 1]
            if row.strip() and len(row) - len(row.lstrip()) < indent:
                break
            inside.add(number)
    return inside


def _token_ends(text: str) -> dict[int, int]:
    """Line → the column behind its last token."""
    ends: dict[int, int] = {}
    for token in scan_tokens(text):
        if not isinstance(token, (yaml.BlockEndToken, yaml.StreamEndToken)):
            mark = token.end_mark
            ends[mark.line + 1] = max(mark.column, ends.get(mark.line + 1, 0))
    return ends
