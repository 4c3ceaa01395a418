"""Files that are no recipe, or a hostile one: a finding, never a traceback, and quickly."""

from __future__ import annotations

import os
import random
import resource
import time
from pathlib import Path

import pytest

from spark_vllm_docker.errors import InvalidRecipe, RecipeNotFound, SparkRecipeError
from spark_vllm_docker.plan.check import check_recipe
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.lookup import find_recipe
from tests.recipe.mutations import SEEDS, mutate


def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    with pytest.raises(InvalidRecipe, match="1 fault") as caught:
        load_recipe(path)
    assert time.perf_counter() - began < 0.5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    assert caught.value.findings[0].message == "the file is larger than 1 MiB"


def test_a_loop_of_links_and_a_folder_are_said(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    with pytest.raises(RecipeNotFound, match="cannot be read: too many levels of symbolic links"):
        load_recipe(loop)
    with pytest.raises(RecipeNotFound, match="cannot be read: is a directory"):
        load_recipe(tmp_path)


def test_a_pipe_does_not_hold_up_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    os.mkfifo(tmp_path / "recipes/pipe.yaml")
    with pytest.raises(RecipeNotFound, match="there is no recipe 'pipe'"):
        find_recipe("pipe", {})


def test_two_recipes_of_one_name_are_both_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one/same.yaml", "two/same.yml", "twice.yaml", "twice.yml"):
        (tmp_path / "recipes" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "recipes" / name).write_text("x: 1\n")
    with pytest.raises(RecipeNotFound) as caught:
        find_recipe("same", {})
    assert caught.value.message == "'same' could be recipes/one/same.yaml, recipes/two/same.yml"
    with pytest.raises(
        RecipeNotFound, match=r"'twice' could be recipes/twice.yaml, recipes/twice.yml"
    ):
        find_recipe("twice", {})
    assert find_recipe("one/same", {}) == Path("recipes/one/same.yaml")


def test_an_alias_bomb_is_refused() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe("\n".join(rows), Path("a.yaml"))
    assert "aliases make more than 20000 entries" in caught.value.findings[0].message


@pytest.mark.parametrize("seed", range(8))
def test_a_mutated_recipe_gives_findings_and_never_a_traceback(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(60):
        text = mutate(source.choice(SEEDS), source)
        began = time.perf_counter()
        try:
            recipe = parse_recipe(text, Path("a.yaml"), source.choice(("", "h100")))
            check_recipe(recipe)
        except SparkRecipeError as error:
            assert isinstance(error, InvalidRecipe), text
            assert error.findings, text
        assert time.perf_counter() - began < 2.0, text
