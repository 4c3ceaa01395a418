"""A finding: something noticed, with the place and the edit that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    """How much a finding weighs. Only errors stop a command."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """A place in a file; line and column count from 1, and 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is stable and never reused; `message` is one lower-case sentence."""

    code: str
    severity: Severity
    message: str
    where: Where | None = None
    fix: str = ""

    def to_json(self) -> dict[str, object]:
        """The finding as it stands in every JSON document."""
        where = self.where
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "file": where.file if where else None,
            "line": where.line if where else None,
            "column": where.column if where else None,
            "fix": self.fix or None,
        }


def printable(text: str) -> str:
    """A foreign text as it may stand in a message: control characters, lone surrogates and what
    else nobody sees are written as escapes.
    """
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'shm_size'?`, or the empty string when nothing known is close."""
    close = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""
