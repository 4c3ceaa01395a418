"""Which variables hold secrets, by their names, and how a secret is replaced in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
MASK = "********"
SHORTEST = 4
"""A shorter value is not masked: it would be found in every other word."""


def find_secret_values(environment: Mapping[str, object]) -> frozenset[str]:
    """The values of variables whose names say that they are secret."""
    values = (str(value) for name, value in environment.items() if _SECRET_NAME.search(name))
    return frozenset(value for value in values if len(value) >= SHORTEST)


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
