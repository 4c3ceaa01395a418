"""The forms that a recipe can be written in, and which of them a file is."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from spark_vllm_docker.recipe.source import Source

ONLY_STRUCTURED = frozenset({"serve", "extends", "setup", "when"})
ONLY_VERSION_2 = frozenset(
    {"runtime", "metadata", "include", "overrides", "min_nodes", "max_nodes", "pre_exec"}
)


class Form(StrEnum):
    """How the file is written."""

    VERSION_1 = "version 1"
    VERSION_2 = "version 2"
    STRUCTURED = "structured"


def find_form(source: Source) -> Form:
    """The form that a file is written in, by its version and by the keys that only one form has."""
    data: Any = source.data if isinstance(source.data, dict) else {}
    version = str(data.get("recipe_version", ""))
    if version == "2":
        return Form.VERSION_2
    if version and ("command" in data or "serve" not in data):
        return Form.VERSION_1
    if data.keys() & ONLY_STRUCTURED:
        return Form.STRUCTURED
    if data.keys() & ONLY_VERSION_2:
        return Form.VERSION_2
    return Form.VERSION_1 if data.keys() & {"command", "defaults"} else Form.STRUCTURED
