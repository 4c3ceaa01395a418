"""Which kernels a server chose, from its log (facts: the lines are INFO, once for each process)."""

from __future__ import annotations

import re

_CHOICES = (
    re.compile(r"Selected (?P<value>\w+) for (?P<what>\w+)"),
    re.compile(r"Using '?(?P<value>[\w ]+?)'? (?P<what>\w+ MoE backend)"),
    re.compile(r"Using (?P<value>\w+) for (?P<what>\w+ GEMM)"),
    re.compile(r"Using (?P<value>\S+) (?P<what>attention backend)"),
)


def find_choice(message: str) -> tuple[str, str] | None:
    """What was chosen for what: (`NVFP4 GEMM`, `FlashInferCutlassNvFp4LinearKernel`)."""
    if not message.startswith(("Selected ", "Using ")):
        return None
    for pattern in _CHOICES:
        if found := pattern.match(message):
            return found["what"], found["value"].strip()
    return None
