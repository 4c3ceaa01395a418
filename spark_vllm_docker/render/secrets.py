"""Secrets do not appear in anything that is shown: render output, events, log copies, errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from spark_vllm_docker.recipe.serve import parse_serve
from spark_vllm_docker.render.spec import API_KEY_VARIABLE, SECRET_FROM_HOST, ContainerSpec

MASK = "********"
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE
)
_SHORTEST = 4


def find_secrets(spec: ContainerSpec, command: str, environ: Mapping[str, str]) -> frozenset[str]:
    """The secret values of a deployment: by the name of their variable, and of `--api-key`."""
    values = [value for name, value in spec.env if _SECRET_NAME.search(name)]
    values += [
        environ.get(name, "") for name in {SECRET_FROM_HOST, API_KEY_VARIABLE, *spec.env_from_host}
    ]
    serve = parse_serve(command)
    if serve is not None:
        values += serve.flag_values("--api-key")
    return frozenset(value for value in values if len(value) >= _SHORTEST)


def mask(text: str, secrets: Iterable[str]) -> str:
    """The text with every secret replaced, the longest first."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
