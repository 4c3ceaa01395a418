"""Which variables hold secrets, by their names, and how a secret is replaced in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEYS?|TOKEN|KEYS?|SECRETS?|PASS|PASSWD|CREDENTIALS?)$|PASSWORDS?$",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(r"""\b([A-Za-z_][A-Za-z0-9_]*)=('[^']*'|"[^"]*"|[^\s'"$;&|]+)""")
MASK = "********"
SHORTEST = 4
"""A shorter value is replaced where its name stands, not wherever its letters do."""
_API_KEY = re.compile(r"(--api[-_]key(?:=|\s+))('[^']*'|\"[^\"]*\"|[^\s'\"]+)")


def find_secret_values(environment: Mapping[str, object]) -> frozenset[str]:
    """The values of variables whose names say that they are secret."""
    values = (str(value) for name, value in environment.items() if is_secret_name(name))
    return frozenset(value for value in values if len(value) >= SHORTEST)


def is_secret_name(name: str) -> bool:
    """Whether a variable's or a parameter's name says that its value is secret."""
    return _SECRET_NAME.search(name.replace("-", "_")) is not None


_TOKEN = re.compile(
    r"\bhf_[A-Za-z0-9]{8,}\b|(?<=Bearer )[\w.~+/-]{8,}=*|(?<=Authorization: Basic )[\w+/]{4,}=*"
    r"|\bnvapi-[\w-]{8,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9][\w-]{15,}"
)
_IN_MAPPING = re.compile(
    r"""((?<![\w-])[\w-]{0,40}(?:token|api[_-]?keys?|secret|passw(?:or)?d|credentials?)"""
    r"""['"]?: ?\[?)"""
    r"""('[^']{1,512}'|"[^"]{1,512}"|[^\s'"\[\]{},]{4,})""",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(r"(?<=://)([^/\s:@'\"]*):[^/\s@'\"]+@")


def mask_text(text: str) -> str:
    """A foreign text, such as a log, without what looks like a secret by itself: tokens of the Hub,
    of NVIDIA, of GitHub and of OpenAI's kind, bearer tokens, passwords in addresses, values beside
    names that are secret in mappings (`'api_key': ['…']`), and all of `mask_api_key`.
    """

    def replace(found: re.Match[str]) -> str:
        value = found[2]
        if value in ("None", "null", "True", "False"):
            return found[0]
        quote = value[0] if value[0] in "'\"" else ""
        return f"{found[1]}{quote}{MASK}{quote}"

    return mask_api_key(_IN_MAPPING.sub(replace, _TOKEN.sub(MASK, text)))


def mask_api_key(text: str) -> str:
    """A command with the values of `--api-key` replaced, short ones too, and those of variables
    with secret names that are set in it; and passwords in addresses.
    """
    text = _IN_ADDRESS.sub(lambda found: f"{found[1]}:{MASK}@", text)

    def replace(found: re.Match[str]) -> str:
        return f"{found[1]}={MASK}" if is_secret_name(found[1]) else found[0]

    return _ASSIGNED.sub(replace, _API_KEY.sub(lambda found: f"{found[1]}{MASK}", text))


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
