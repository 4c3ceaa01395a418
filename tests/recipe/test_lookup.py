from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.errors import RecipeNotFound, UsageError
from spark_vllm_docker.recipe.load import parse_recipe
from spark_vllm_docker.recipe.lookup import find_recipe, find_recipes
from spark_vllm_docker.recipe.overrides import Override, parse_set, resolve_parameters


def test_a_shipped_recipe_is_found_by_name() -> None:
    assert find_recipe("nemotron-omni", {}).name == "nemotron-omni.yaml"


def test_paths_win_and_suffixes_are_optional(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes/4x").mkdir(parents=True)
    for name in ("mine.yaml", "recipes/mine.yaml", "recipes/other.yml", "recipes/4x/nested.yaml"):
        (tmp_path / name).write_text("")
    assert find_recipe("mine", {}) == Path("mine.yaml")
    assert find_recipe("other", {}) == Path("recipes/other.yml")
    assert find_recipe("4x/nested", {}) == Path("recipes/4x/nested.yaml")
    assert find_recipe("nested", {}) == Path("recipes/4x/nested.yaml")
    assert [p.name for p in find_recipes(Path("recipes"))] == [
        "nested.yaml",
        "mine.yaml",
        "other.yml",
    ]


def test_the_search_path_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("")
    assert find_recipe("x", {"SPARK_RECIPE_PATH": f"/nowhere:{tmp_path}"}) == tmp_path / "x.yaml"


@pytest.mark.parametrize("name", ["nemotron-omi", "*", "[a", "../../etc", "", "a\nb"])
def test_an_unknown_name_says_what_is_close(name: str) -> None:
    with pytest.raises(RecipeNotFound, match="there is no recipe") as caught:
        find_recipe(name, {})
    if name == "nemotron-omi":
        assert "did you mean 'nemotron-omni'?" in caught.value.message


RECIPE = parse_recipe(
    'recipe_version: "1"\nname: a\ncontainer: i\ndefaults:\n  port: 1\ncommand: serve {port}\n',
    Path("a.yaml"),
)


def test_a_parameter_remembers_where_it_came_from() -> None:
    assert str(resolve_parameters(RECIPE, [])["port"].origin) == "a.yaml:5:3"
    assert resolve_parameters(RECIPE, [parse_set("port=2")])["port"].origin == "--set"


def test_an_override_that_nothing_uses_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"has no \{prot\}; did you mean 'port'\?") as caught:
        resolve_parameters(RECIPE, [parse_set("prot=2")])
    assert "-- --prot" in caught.value.hint


@pytest.mark.parametrize("text", ["port", "=1", "a b=1", "1a=2", ""])
def test_a_malformed_override(text: str) -> None:
    with pytest.raises(UsageError, match="expected name=value"):
        parse_set(text)


def test_a_value_may_hold_anything() -> None:
    assert parse_set("a=b=c d") == Override("a", "b=c d", "--set")
