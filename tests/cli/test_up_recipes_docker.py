"""What a recipe puts around its server, on a real engine: steps, mods, variables, hardware."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.conftest import STAND_IN_IMAGE, CommandLine

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("no_leftovers", "stand_in_image")]

STEPS = [["play", "ok-tiny-llama-compiled-cold.log", 0.1], ["serve"]]


def write(cli: CommandLine, port: int, **more: object) -> str:
    data = {
        "name": "sr-test",
        "model": "m",
        "container": STAND_IN_IMAGE,
        "gpus": "none",
        "env": {"STAND_IN": json.dumps(STEPS)},
        "serve": {"port": port},
        **more,
    }
    path = cli.home / "recipes/r.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(data))
    return str(path)


def test_steps_mods_and_variables_are_there_before_the_server(cli: CommandLine, port: int) -> None:
    mod = cli.home / "mods/fix"
    mod.mkdir(parents=True)
    (mod / "value").write_text("patched")
    (mod / "run.sh").write_text('cp value "$WORKSPACE_DIR/from-the-mod"; echo changed > value\n')
    recipe = write(
        cli,
        port,
        mods=["mods/fix"],
        setup=['echo "mod $(cat from-the-mod), A is $A, B is $B"  # a comment', "true"],
    )
    cli.environ["B"] = "from the host"
    up = cli("up", recipe, "-d", "--env", "A=$x y", "--env", "B")
    assert up.code == 0, up.err
    log = cli("logs", "sr-test").out
    assert "mod patched, A is $x y, B is from the host" in log
    assert (mod / "value").read_text() == "patched"
    assert cli("down", "sr-test").code == 0


@pytest.mark.parametrize("where", ["mod", "step"])
def test_a_failing_mod_or_step_ends_it_before_the_server(
    cli: CommandLine, port: int, where: str
) -> None:
    mod = cli.home / "mods/bad"
    mod.mkdir(parents=True)
    (mod / "run.sh").write_text("echo Hunk FAILED; exit 3\n")
    around: dict[str, object] = (
        {"mods": ["mods/bad"]} if where == "mod" else {"setup": ["echo Hunk FAILED; exit 3"]}
    )
    up = cli("up", write(cli, port, **around), "-d")
    assert up.code == 5
    assert "exit code 3" in up.err
    told = "the mod bad ended with 3" if where == "mod" else "a step ended with 3: exit 3"
    assert f"\ncause: {told}; its last line: Hunk FAILED\n" in up.err
    assert "\nfix: the server was not begun; mend the step or the mod" in up.err
    log = cli("logs", "sr-test").out
    assert "Hunk FAILED" in log
    assert "vLLM" not in log
    assert cli("down", "sr-test").code == 0


def test_a_when_block_runs_on_its_hardware(cli: CommandLine, port: int) -> None:
    when = {"cpu": {"setup": ["echo this is a cpu"]}, "h100": {"setup": ["exit 9"]}}
    recipe = write(cli, port, when=when)
    up = cli("up", recipe, "-d", "--no-gpu")
    assert up.code == 0, up.err
    assert "this is a cpu" in cli("logs", "sr-test").out
    assert cli("down", "sr-test").code == 0
