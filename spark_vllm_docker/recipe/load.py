"""Recipe file → `Recipe`, with all faults of the file at once."""

from __future__ import annotations

from pathlib import Path

from spark_vllm_docker.recipe.forms import Form, find_form
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.source import Source, parse_yaml, read_text
from spark_vllm_docker.recipe.structured import read_structured
from spark_vllm_docker.recipe.version1 import read_version1
from spark_vllm_docker.recipe.version2 import read_version2


def load_recipe(path: Path, hardware: str = "") -> Recipe:
    """Read and check one recipe file; `hardware` chooses among its `when:` blocks.

    Raises:
        RecipeNotFound: the file cannot be read.
        InvalidRecipe: with every fault that the file has.
    """
    return parse_recipe(read_text(path), path, hardware)


def parse_recipe(text: str, path: Path, hardware: str = "") -> Recipe:
    """Check the text of a recipe; `path` names it in findings and resolves what is relative."""
    source = parse_yaml(text, str(path))
    return read_recipe(source, path, hardware, find_form(source))


def read_recipe(source: Source, path: Path, hardware: str, form: Form) -> Recipe:
    """Check a parsed file that is written in a form.

    Raises:
        InvalidRecipe: with every fault that it has.
    """
    match form:
        case Form.VERSION_1:
            return read_version1(source, path, hardware)
        case Form.VERSION_2:
            return read_version2(source, path, hardware)
        case Form.STRUCTURED:
            return read_structured(source, path, hardware)
