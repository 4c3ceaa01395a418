"""As much of bash as is needed to find `vllm serve` in a command: words, operators, comments.

Words are given with their offsets, so that a caller can put text between them. Substitutions,
here-documents and control structures are not understood; `Line.plain` says whether any is there.
"""

from __future__ import annotations

from dataclasses import dataclass

_OPERATORS = "();<>|&\n"


@dataclass(frozen=True, slots=True)
class Word:
    """A word of the text: where it stands, and its value with quotes removed."""

    start: int
    end: int
    value: str


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """Words up to an operator. `after` is the operator that ends it, empty at the end of the
    text.
    """

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
    plain = "$(" not in text and "`" not in text and "<<" not in text
    at = 0
    while at < len(text):
        char = text[at]
        if char in " \t\r":
            at += 1
        elif text.startswith("\\\n", at):
            at += 2
        elif char == "#":
            end = text.find("\n", at)
            comment_at = at if end < 0 or not text[end:].strip() else -1
            at = len(text) if end < 0 else end
        elif char in _OPERATORS:
            end = at + 1
            while end < len(text) and text[end] in _OPERATORS and "\n" not in text[at : end + 1]:
                end += 1
            if words:
                commands.append(SimpleCommand(tuple(words), text[at:end]))
                words = []
            at = end
        else:
            word = _scan_word(text, at)
            words.append(word)
            at = word.end
    if words:
        commands.append(SimpleCommand(tuple(words), ""))
    return Line(tuple(commands), plain, comment_at)


def _scan_word(text: str, start: int) -> Word:
    value: list[str] = []
    at = start
    while at < len(text) and text[at] not in " \t\r" and text[at] not in _OPERATORS:
        char = text[at]
        if char == "'":
            end = text.find("'", at + 1)
            end = len(text) if end < 0 else end
            value.append(text[at + 1 : end])
            at = end + 1
        elif char == '"':
            piece, at = _scan_double_quotes(text, at + 1)
            value.append(piece)
        elif char == "\\":
            if text[at + 1 : at + 2] != "\n":
                value.append(text[at + 1 : at + 2])
            at += 2
        else:
            value.append(char)
            at += 1
    return Word(start, min(at, len(text)), "".join(value))


def _scan_double_quotes(text: str, at: int) -> tuple[str, int]:
    value: list[str] = []
    while at < len(text) and text[at] != '"':
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
            if text[at + 1] != "\n":
                value.append(text[at + 1])
            at += 2
        else:
            value.append(text[at])
            at += 1
    return "".join(value), at + 1
