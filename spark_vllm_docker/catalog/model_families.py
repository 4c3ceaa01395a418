"""Flags that go with a family of models, for starter recipes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

from spark_vllm_docker.catalog.yaml_data import read_data


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """`model` is a pattern for the last part of a model's name; `serve` the flags that go with
    it.
    """

    model: str
    serve: dict[str, Any]


@cache
def load_model_families() -> tuple[ModelFamily, ...]:
    """All families; of those that match, the first counts."""
    return tuple(ModelFamily(**entry) for entry in read_data("model_families.yaml"))


def find_family_flags(model: str) -> dict[str, Any]:
    """The flags for a model such as `org/Name`; none for a family that is not known."""
    name = model.rpartition("/")[2].lower()
    for family in load_model_families():
        if re.search(family.model, name):
            return dict(family.serve)
    return {}
