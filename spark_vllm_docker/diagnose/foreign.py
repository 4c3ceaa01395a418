"""What other tools put before the lines of a log: compose, kubectl, docker with time stamps."""

from __future__ import annotations

import re

_PREFIXES = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?"
    r"|[\w.-]{1,64} +\| ?"
    r"|\[pod/[^\]]{1,256}\] ?"
    r"|\[[\w.-]{1,64}/[\w.-]{1,64}\] ?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w.@-]{1,64}\[\d+\]: "
    r"){1,3}"
)


def strip_prefix(line: str) -> str:
    """A line as the server wrote it."""
    found = _PREFIXES.match(line)
    return line[found.end() :] if found else line
