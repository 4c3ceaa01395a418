"""What other tools put before the lines of a log: compose, swarm, kubectl, stern, journald, syslog,
docker with time stamps; and docker's own log files, where each line is JSON.
"""

from __future__ import annotations

import json
import re

_PREFIXES = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?"
    r"|[\w.@-]{1,128} +[|│] ?"
    r"|\[pod/[^\]]{1,256}\] ?"
    r"|\[[\w.-]{1,64}/[\w.-]{1,64}\] ?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} [\w.@/-]{1,64}(?:\[\d+\])?: "
    r"|[\w.-]{1,64} [\w.@/-]{1,64}\[\d+\]: "
    r"|[\w.-]{1,128} [\w.-]{1,64} (?=\([\w.:\[\]-]+ pid=\d+\)|(?:DEBUG|INFO|WARNING|ERROR) \d)"
    r"){1,3}"
)
_JSON = '{"log":'


def strip_prefix(line: str) -> str:
    """A line as the server wrote it."""
    if line.startswith(_JSON):
        try:
            line = str(json.loads(line)["log"]).rstrip("\n")
        except (ValueError, LookupError, TypeError):
            return line
    found = _PREFIXES.match(line)
    return line[found.end() :] if found else line
