"""The user's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.errors import InvalidRecipe, RecipeNotFound
from spark_vllm_docker.recipe.overrides import Override
from spark_vllm_docker.recipe.user_config import find_overrides, find_user_config, load_user_config

TEXT = """\
hardware: h100
env: {A: 1}
recipes:
  one:
    set: {port: 9, limit-mm-per-prompt: {video: 1}}
    env: {B: x}
  two: {set: {port: 1}}
"""


def test_where_it_is(tmp_path: Path) -> None:
    assert find_user_config({"HOME": "/h"}) == Path("/h/.config/spark-recipe/config.yaml")
    assert find_user_config({"XDG_CONFIG_HOME": "/c"}) == Path("/c/spark-recipe/config.yaml")
    named = tmp_path / "x.yaml"
    with pytest.raises(RecipeNotFound, match="SPARK_RECIPE_CONFIG: there is no file"):
        find_user_config({"SPARK_RECIPE_CONFIG": str(named)})
    named.write_text("")
    assert find_user_config({"SPARK_RECIPE_CONFIG": str(named), "HOME": "/h"}) == named


def test_what_holds_for_all_and_for_one(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(TEXT)
    config, source = load_user_config(path)
    assert config.hardware == "h100"
    found = find_overrides(config, source, ("other-name", "one"))
    assert found.sets == (
        Override("port", 9, f"{path}:5:11"),
        Override("limit-mm-per-prompt", {"video": 1}, f"{path}:5:20"),
    )
    assert [(o.name, o.value) for o in found.env] == [("A", "1"), ("B", "x")]


@pytest.mark.parametrize("text", [None, "", "# nothing yet\n"])
def test_no_file_or_an_empty_one_says_nothing(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text)
    config, source = load_user_config(path)
    assert find_overrides(config, source, ("a",)).sets == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hardwear: x\n", "hardwear: unknown key; did you mean 'hardware'?"),
        ("hardware: mars\n", "hardware: expected 'dgx-spark', "),
        ("recipes: [a]\n", "recipes: expected a mapping, found a list"),
        ("recipes: {a: {sets: {}}}\n", "recipes.a.sets: unknown key; did you mean 'set'?"),
        ("env: {1A: x}\n", "env.1A"),
    ],
)
def test_its_faults_are_shown_like_a_recipes(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(InvalidRecipe) as caught:
        load_user_config(path)
    assert message in caught.value.findings[0].message
    assert str(caught.value.findings[0].where).startswith(f"{path}:1:")
