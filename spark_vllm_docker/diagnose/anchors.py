"""Which words a line must hold for a pattern to match: what makes many rules cheap.

A line is cut into words once; only the patterns one of whose words is there are tried. The words
are read from the parsed pattern: literal text that every match holds, bounded on both sides.
"""

from __future__ import annotations

import re
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

_EDGE = "\0"
"""Stands for a word boundary of the pattern."""
_EDGES = (codes.AT_BOUNDARY, codes.AT_BEGINNING, codes.AT_END)
WORD = re.compile(r"[A-Za-z0-9_]{4,}")


def find_anchor(pattern: str) -> str:
    """The longest word that every match of a pattern holds whole; empty where there is none."""
    runs = _runs(parser.parse(pattern))
    words = [found[0] for run in runs for found in WORD.finditer(run) if _is_bounded(found, run)]
    return max(words, key=len, default="")


def _is_bounded(found: re.Match[str], run: str) -> bool:
    """Whether the text of a match cannot go on with the same word."""
    return found.start() > 0 and found.end() < len(run)


def _runs(parsed: Any) -> list[str]:
    """Literal text that every match holds, in pieces."""
    runs = [""]
    for code, argument in parsed:
        if code is codes.LITERAL:
            runs[-1] += chr(argument)
        elif code is codes.AT and argument in _EDGES:
            runs[-1] += _EDGE
        elif code is codes.SUBPATTERN:
            inner = _runs(argument[3])
            runs[-1] += inner[0]
            runs += inner[1:]
        else:
            runs.append("")
    return runs
