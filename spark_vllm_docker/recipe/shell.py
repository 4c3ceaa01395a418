"""As much of bash as is needed to find `vllm serve` in a command: words, operators, comments.

Words are given with their offsets, so that a caller can put text between them. Substitutions,
here-documents, traps and functions are not understood; `Line.plain` says whether any is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_OPERATORS = "();<>|&\n"
_BLANK = re.compile(r"(?:[ \t\r]|\\\n)+")
_CONTROL = re.compile(r"\n|[();|&]+")
# `2>&1`, `>> log`, `&> log`: the number belongs to the redirection and is no word.
_REDIRECTION = re.compile(r"(?:\d*(?:>>|>\||>&|<&|<>|>|<)|&>>|&>)(?P<copy>(?<=&)(?:\d+|-))?")
_BEYOND = re.compile(r"\$\(|`|<<|\$'|[<>]\(|\(\s*\)|\b(?:trap|function|eval)\b")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text: where it stands, and its value with quotes removed.

    `fixed` is false where bash expands a part of it (`$MODEL`, `~/m`): its value is not known here.
    """

    start: int
    end: int
    value: str
    fixed: bool = True


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """Words up to an operator, without redirections. `after` is that operator, empty at the end."""

    words: tuple[Word, ...]
    after: str


@dataclass(frozen=True, slots=True)
class Line:
    """A scanned text. `comment_at` is the offset of a comment that ends the text, or -1."""

    commands: tuple[SimpleCommand, ...]
    plain: bool
    comment_at: int


def scan_shell(text: str) -> Line:
    """Scan a command. An unclosed quote ends at the end of the text."""
    commands: list[SimpleCommand] = []
    words: list[Word] = []
    comment_at = -1
    at = 0
    while at < len(text):
        if found := _BLANK.match(text, at):
            at = found.end()
        elif text[at] == "#":
            end = text.find("\n", at)
            comment_at = at if end < 0 or not text[end:].strip() else -1
            at = len(text) if end < 0 else end
        elif found := _REDIRECTION.match(text, at):
            at = found.end() if found["copy"] else _skip_target(text, found.end())
        elif found := _CONTROL.match(text, at):
            if words:
                commands.append(SimpleCommand(tuple(words), found[0]))
                words = []
            at = found.end()
        else:
            words.append(_scan_word(text, at))
            at = words[-1].end
    if words:
        commands.append(SimpleCommand(tuple(words), ""))
    return Line(tuple(commands), not _BEYOND.search(text), comment_at)


def find_command(line: Line, *names: str) -> tuple[SimpleCommand, int] | None:
    """The last simple command with these words in a row (a path before the first counts as it), and
    where in it they stand.
    """
    for simple in reversed(line.commands):
        values = [word.value for word in simple.words]
        for at in range(len(values) - len(names) + 1):
            first = values[at].rpartition("/")[2]
            if (first, *values[at + 1 : at + len(names)]) == names:
                return simple, at
    return None


def _skip_target(text: str, at: int) -> int:
    """The end of the word that a redirection goes to."""
    if found := _BLANK.match(text, at):
        at = found.end()
    return at if at >= len(text) or text[at] in _OPERATORS else _scan_word(text, at).end


def _scan_word(text: str, start: int) -> Word:
    value: list[str] = []
    fixed = text[start] != "~"
    at = start
    while at < len(text) and text[at] not in " \t\r" and text[at] not in _OPERATORS:
        char = text[at]
        if char == "'":
            end = text.find("'", at + 1)
            end = len(text) if end < 0 else end
            value.append(text[at + 1 : end])
            at = end + 1
        elif char == '"':
            piece, at, expands = _scan_double_quotes(text, at + 1)
            fixed = fixed and not expands
            value.append(piece)
        elif char == "\\":
            if text[at + 1 : at + 2] != "\n":
                value.append(text[at + 1 : at + 2])
            at += 2
        else:
            fixed = fixed and char not in "$`"
            value.append(char)
            at += 1
    return Word(start, min(at, len(text)), "".join(value), fixed)


def _scan_double_quotes(text: str, at: int) -> tuple[str, int, bool]:
    """The value, the offset behind the closing quote, and whether bash expands a part."""
    value: list[str] = []
    expands = False
    while at < len(text) and text[at] != '"':
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
            if text[at + 1] != "\n":
                value.append(text[at + 1])
            at += 2
        else:
            expands = expands or text[at] in "$`"
            value.append(text[at])
            at += 1
    return "".join(value), at + 1, expands
