"""The JSON Schema: current, and of one mind with `check`."""

from __future__ import annotations

import json
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from spark_vllm_docker.catalog.hardware_names import HARDWARE
from spark_vllm_docker.recipe.load import load_recipe
from spark_vllm_docker.recipe.models import HardwareName
from spark_vllm_docker.recipe.schema import FILE_NAME, build_schema
from tests.conftest import ROOT
from tests.recipe.mutations import STRUCTURED, VERSION_1, VERSION_2

SCHEMA = build_schema()
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))
CORPUS = sorted((ROOT.parent / "shared/recipes-corpus/eugr").glob("*.yaml"))


def faults(data: object) -> list[str]:
    return [e.message for e in jsonschema.Draft7Validator(SCHEMA).iter_errors(data)]


def test_the_committed_schema_is_current() -> None:
    committed = json.loads((ROOT / "recipes" / FILE_NAME).read_text())
    assert committed == SCHEMA, "spark-recipe schema -o recipes/recipe.schema.json --force"
    jsonschema.Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: p.stem)
def test_shipped_recipes_name_the_schema_and_fit_it(path: Any) -> None:
    text = path.read_text()
    assert text.splitlines()[0] == f"# yaml-language-server: $schema={FILE_NAME}"
    assert "\n# Source: " in text
    assert faults(yaml.safe_load(text)) == []


@pytest.mark.parametrize("text", [VERSION_1, VERSION_2, STRUCTURED])
def test_every_form_fits(text: str) -> None:
    assert faults(yaml.safe_load(text)) == []


def test_the_corpus_fits_where_it_has_no_foreign_keys() -> None:
    for path in CORPUS:
        if not any(note.code == "REC015" for note in load_recipe(path).notes):
            assert faults(yaml.safe_load(path.read_text())) == [], path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("shm_size", "shm_sise"),
        ("port: 8000", "prot: 8000"),
        ("enable-prefix-caching: true", "enable-prefix-caching: 3"),
        ("max-model-len: 64K", "max-model-len: [1]"),
        ("modalities: [text", "modalities: [sound"),
        ("h100:", "h1000:"),
        ("model: org/m\n", "model: 3\n"),
    ],
)
def test_an_editor_sees_mistakes(old: str, new: str) -> None:
    assert faults(yaml.safe_load(STRUCTURED.replace(old, new, 1))) != []


def test_flags_and_parsers_have_help() -> None:
    flags = SCHEMA["definitions"]["serve"]["properties"]
    assert flags["max-model-len"]["description"] == "Model context length (prompt and output)."
    assert "nemotron_v3" in flags["reasoning-parser"]["anyOf"][0]["enum"]
    assert len(flags) > 300


def test_hardware_is_one_list_in_two_languages() -> None:
    assert get_args(HardwareName) == HARDWARE
