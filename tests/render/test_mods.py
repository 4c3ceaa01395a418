"""Mods are found above the recipe, mounted read-only, and run before the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_vllm_docker.errors import Refused
from spark_vllm_docker.recipe.load import load_recipe
from spark_vllm_docker.render.build import build_deployment
from spark_vllm_docker.render.command import LaunchOptions

TEXT = (
    'recipe_version: "1"\nname: a\ncontainer: i\nmods: [{mods}]\ndefaults: {{port: 1}}\n'
    "command: vllm serve m --port {{port}}\n"
)


def recipe_in(folder: Path, mods: str) -> Path:
    (folder / "repo/recipes/nested").mkdir(parents=True)
    (folder / "repo/mods/fix").mkdir(parents=True)
    (folder / "repo/mods/fix/run.sh").write_text("echo fixed\n")
    path = folder / "repo/recipes/nested/a.yaml"
    path.write_text(TEXT.format(mods=mods))
    return path


def test_a_mod_is_mounted_and_run_before_the_server(tmp_path: Path) -> None:
    recipe = load_recipe(recipe_in(tmp_path, "mods/fix"))
    made = build_deployment(recipe, LaunchOptions(), {"HOME": "/h"})
    mount = made.spec.mounts[-1]
    assert (mount.source, mount.target, mount.read_only) == (
        str(tmp_path / "repo/mods/fix"),
        "/spark-recipe/mods/0-fix",
        True,
    )
    assert made.script.splitlines()[-3:] == [
        "mkdir -p mods && rm -rf mods/fix && cp -r /spark-recipe/mods/0-fix mods/fix || exit",
        '(export WORKSPACE_DIR="$PWD"; cd mods/fix && bash ./run.sh) || { told=$?; '
        'echo "spark-recipe: the mod fix ended with $told" >&2; exit $told; }',
        "exec vllm serve m --port 1",
    ]


@pytest.mark.parametrize(
    "name", ["mods/nothing", "../mods/fix", "/etc", "'mods/a b'", "'mods/$(x)'"]
)
def test_a_mod_that_is_not_there_is_refused(tmp_path: Path, name: str) -> None:
    recipe = load_recipe(recipe_in(tmp_path, name))
    with pytest.raises(Refused, match=r"without its patches the image would serve something else"):
        build_deployment(recipe, LaunchOptions(), {})


def test_without_a_container_there_is_nothing_to_patch(tmp_path: Path) -> None:
    recipe = load_recipe(recipe_in(tmp_path, "mods/fix"))
    with pytest.raises(Refused, match="there is no container"):
        build_deployment(recipe, LaunchOptions(in_container=False), {})
