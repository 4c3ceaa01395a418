"""The Hugging Face Hub, asked for one small file."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from spark_vllm_docker.catalog.layers import UnknownShape

LIMIT_S = 5.0


def fetch_config(model: str, environ: Mapping[str, str]) -> bytes:
    """The config.json of a model. `HF_ENDPOINT` and `HF_TOKEN` are honoured.

    Raises:
        UnknownShape: the Hub does not give it, or not in time.
    """
    endpoint = environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    token = environ.get("HF_TOKEN", "")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"{endpoint}/{model}/resolve/main/config.json"
    try:
        answer = httpx.get(url, headers=headers, timeout=LIMIT_S, follow_redirects=True)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnknownShape(f"the Hub did not give its config.json: {error}") from error
    return answer.content


def ping_hub(environ: Mapping[str, str]) -> str:
    """Why the Hub does not answer; empty when it does."""
    endpoint = environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    try:
        httpx.head(f"{endpoint}/api/models", timeout=LIMIT_S, follow_redirects=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return f"{endpoint} does not answer: {error}"
    return ""
