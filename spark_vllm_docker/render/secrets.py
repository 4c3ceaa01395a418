"""Secrets do not appear in anything that is shown: render output, events, log copies, errors."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from spark_vllm_docker.recipe.overrides import Parameter
from spark_vllm_docker.recipe.serve import UNKNOWN, parse_serve
from spark_vllm_docker.render.deployment import Deployment
from spark_vllm_docker.render.masking import (
    MASK,
    SHORTEST,
    find_secret_values,
    is_secret_name,
    mask,
    mask_api_key,
)
from spark_vllm_docker.render.script import quote_export
from spark_vllm_docker.render.spec import API_KEY_VARIABLE, SECRET_FROM_HOST


def find_secrets(
    deployment: Deployment,
    recipe_env: Mapping[str, object],
    parameters: Mapping[str, Parameter],
    environ: Mapping[str, str],
) -> frozenset[str]:
    """The secret values of a deployment.

    They are those of the recipe's `env` and parameters with secret names, of `--api-key`, and of
    the variables that are taken from the host.
    """
    secrets = find_secret_values(recipe_env)
    secrets |= find_secret_values({name: p.value for name, p in parameters.items()})
    names = {SECRET_FROM_HOST, API_KEY_VARIABLE, *deployment.spec.env_from_host}
    values = [environ.get(name, "") for name in names]
    serve = parse_serve(deployment.command)
    if serve is not None:
        values += [value for value in serve.flag_values("--api-key") if value != UNKNOWN]
    return secrets | {value for value in values if len(value) >= SHORTEST}


def mask_deployment(deployment: Deployment, secrets: frozenset[str]) -> Deployment:
    """The deployment with its secrets replaced before a renderer quotes them."""
    quoted = secrets | {quote_export(secret)[1:-1] for secret in secrets}
    quoted |= {shlex.quote(secret).strip("'") for secret in secrets}
    spec = deployment.spec
    masked = replace(
        spec,
        command=tuple(mask_api_key(mask(word, quoted)) for word in spec.command),
        env=tuple(
            (name, MASK if is_secret_name(name) and value else mask(value, secrets))
            for name, value in spec.env
        ),
        labels=tuple((name, mask(value, secrets)) for name, value in spec.labels),
    )
    return replace(
        deployment,
        spec=masked,
        command=mask_api_key(mask(deployment.command, quoted)),
        script=mask_api_key(mask(deployment.script, quoted)),
    )
