"""What the version-1 format does to a command on one machine.

The rules are those of the format's own runner: `tensor_parallel` counts machines with one GPU each,
so it is 1 unless it is asked for, and a distributed executor has nobody to talk to.
"""

from __future__ import annotations

import re

PARAMETER = "tensor_parallel"
_BACKEND = re.compile(r"--distributed-executor-backend(?:\s+|=)\S+")


def strip_executor(command: str) -> str:
    """Without `--distributed-executor-backend X`, and then without blank and lone-backslash lines.

    A command that does not have the flag is left as it is.
    """
    stripped, count = _BACKEND.subn("", command)
    if not count:
        return command
    lines = [line for line in stripped.split("\n") if line.strip() not in ("", "\\")]
    return "\n".join(lines).rstrip().removesuffix("\\").rstrip()
