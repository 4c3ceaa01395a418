"""Which vLLM is in an image, as far as its reference tells."""

from __future__ import annotations

import re

_TAG = re.compile(r"v?(\d+\.\d+\.\d+)(?:\.?(?:post|rc|dev)\d+)?(?:[-+_].*)?")


def read_vllm_version(reference: str) -> str | None:
    """`vllm/vllm-openai:v0.20.0-cu130` → `0.20.0`.

    None where the tag is no release of vLLM: `latest`, `nightly`, a date, or the image of something
    else, whose tags count its own releases.
    """
    name = reference.partition("@")[0]
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag or "vllm" not in repository.rpartition("/")[2]:
        return None
    found = _TAG.fullmatch(tag)
    return found[1] if found else None
