"""The comments of a YAML file, each with the key that it speaks of."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import yaml

from spark_vllm_docker.recipe.source import KeyPath, Source, scan_tokens

_WITHOUT_TEXT = (yaml.BlockEndToken, yaml.StreamStartToken, yaml.StreamEndToken)


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
    ends, inside = _scan(source.text)
    pending: list[str] = []
    for number, row in enumerate(source.text.splitlines(), start=1):
        text = row.strip()
        if number in inside:
            continue
        if text.startswith("#") and not ends.get(number):
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


def _scan(text: str) -> tuple[dict[int, int], set[int]]:
    """Line → the column behind its last token, and the lines that only continue a scalar."""
    ends: dict[int, int] = {}
    inside: set[int] = set()
    for token in scan_tokens(text):
        if isinstance(token, _WITHOUT_TEXT):
            continue
        first, last = token.start_mark, token.end_mark
        ends[last.line + 1] = max(last.column, ends.get(last.line + 1, 0))
        if isinstance(token, yaml.ScalarToken):
            # A block's end is at the start of the line that follows it.
            whole = last.line if last.column == 0 else last.line + 1
            inside |= set(range(first.line + 2, whole + 1))
    return ends, inside
