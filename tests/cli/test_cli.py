"""The command line itself: help, usage errors, bad recipes, JSON, dry runs. No engine is needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from spark_vllm_docker import __version__
from spark_vllm_docker.cli.group import VERBS
from tests.conftest import ROOT, CommandLine, RecipeWriter

SHIPPED = len(list((ROOT / "recipes").glob("*.yaml")))


def test_version_and_help(cli: CommandLine) -> None:
    for flag in ("--version", "-V"):
        assert cli(flag).out == f"spark-recipe {__version__}\n"
    for flag in ("--help", "-h"):
        out = cli(flag).out
        assert all(verb in out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(cli: CommandLine, verb: str) -> None:
    done = cli(verb, "--help")
    assert (done.code, f"Usage: spark-recipe {verb}" in done.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["upp", "x"], "there is no command 'upp'; did you mean 'up'?"),
        (["up"], "Missing argument 'RECIPE'"),
        (["up", "a", "b"], "unexpected extra argument"),
        (["up", "tiny-cpu", "--no-such"], "No such option"),
        (["up", "tiny-cpu", "--engine", "lxc"], "is not one of"),
        (["up", "tiny-cpu", "--set", "port", "--dry-run"], "--set port: expected name=value"),
        (
            ["up", "tiny-cpu", "--set", "prot=1", "--dry-run"],
            "has no flag --prot; did you mean 'port'?",
        ),
        (
            ["up", "tiny-cpu", "--network", "host", "--listen", "0.0.0.0", "--dry-run"],
            "--listen has no effect",
        ),
        (["down"], "down needs names, or --all"),
        (["down", "x", "--all"], "down needs names, or --all"),
        (["render", "tiny-cpu", "--as", "toml"], "is not one of"),
        (["logs"], "Missing argument 'NAME'"),
    ],
)
def test_usage_errors(cli: CommandLine, arguments: list[str], message: str) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert message in done.err
    document = cli(*arguments, "--json").json() if "up" in arguments else {"ok": False}
    assert document["ok"] is False


BAD = [
    ("name: [unclosed\n", "bad.yaml:2:1: the YAML is broken"),
    ("- a\n", "bad.yaml:1:1: expected a mapping of recipe keys, found a list"),
    ('recipe_version: "1"\nname: a\ncommand: x\n', "bad.yaml:1:1: the key 'container' is missing"),
    (
        'recipe_version: "1"\nname: a\ncontainer: i\ncommand: |\n  x\n  {nope}\n',
        "bad.yaml:6:3: command: {nope} has no value",
    ),
    (
        'recipe_version: "1"\nname: a\ncontainer: i\ncommand: |\n  x }\n',
        "bad.yaml:5:5: command: a '}' without its '{'",
    ),
    (
        'recipe_version: "1"\nname: a\ncontainer: i\ndefaults: []\ncommand: x\n',
        "bad.yaml:4:11: defaults: expected a mapping, found a list",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
@pytest.mark.parametrize("verb", ["up", "check", "render", "show"])
def test_a_bad_recipe_is_answered_with_line_and_reason(
    cli: CommandLine, verb: str, text: str, message: str
) -> None:
    (cli.home / "bad.yaml").write_text(text)
    done = cli(verb, "bad.yaml")
    assert done.code == 1
    assert message in done.err + done.out
    assert "Traceback" not in done.err


def test_an_unknown_recipe(cli: CommandLine) -> None:
    done = cli("up", "nemotron-omi")
    assert done.code == 1
    assert "did you mean 'nemotron-omni'?" in done.err
    assert done.err.splitlines()[-1].startswith("fix: spark-recipe list")


def test_check_takes_a_tree_and_counts(cli: CommandLine) -> None:
    # The one note: the patched image is of a release that its name does not tell.
    assert cli("check", str(ROOT / "recipes")).out.endswith(f"{SHIPPED} recipes: 1 note\n")
    (cli.home / "r/deep").mkdir(parents=True)
    (cli.home / "r/a.yaml").write_text("x: 1\n")
    (cli.home / "r/deep/b.yml").write_text("y: 1\n")
    done = cli("check", "r")
    assert done.code == 1
    assert "2 recipes: 6 errors" in done.out
    document = cli("check", "r", "--json").json()
    assert document["schema"] == "spark-recipe/check@1"
    findings = document["findings"]
    assert isinstance(findings, list)
    assert {"file", "line", "column", "code", "message", "severity", "fix"} == set(findings[0])


def test_an_empty_folder_is_no_success(cli: CommandLine) -> None:
    (cli.home / "empty").mkdir()
    done = cli("check", "empty")
    assert (done.code, "there is no recipe under empty" in done.out) == (1, True)


def test_check_speaks_to_ci_systems(cli: CommandLine) -> None:
    (cli.home / "a.yaml").write_text("x: 1%\n")
    assert (
        "::error file=a.yaml,line=1,col=1,title=REC003::x: unknown key"
        in cli("check", "a.yaml", "--format", "github").out
    )
    suite = ElementTree.fromstring(
        cli("check", "a.yaml", str(ROOT / "recipes"), "--format", "junit").out
    )
    assert (suite.get("tests"), suite.get("failures")) == (str(SHIPPED + 1), "1")
    assert len(suite.findall("testcase/failure")) == 1


def test_vllm_flags_without_dashes_get_a_hint(cli: CommandLine) -> None:
    done = cli("up", "tiny-cpu", "--seed", "1")
    assert (done.code, "vLLM's own flags go after --" in done.err) == (2, True)


def test_no_words_at_all_are_help(cli: CommandLine) -> None:
    done = cli()
    assert (done.code, "Usage: spark-recipe" in done.out) == (0, True)
    assert "\n  spark-recipe up nemotron-omni\n" in done.out


def test_a_server_that_nobody_could_reach_is_refused(cli: CommandLine) -> None:
    done = cli("render", "tiny-cpu", "--set", "host=127.0.0.1")
    assert (done.code, "is loopback inside the container" in done.err) == (2, True)
    assert cli("render", "tiny-cpu", "--set", "host=127.0.0.1", "--network", "host").code == 0


def test_an_empty_override(cli: CommandLine) -> None:
    done = cli("render", "tiny-cpu", "--set", "max_model_len=")
    assert (done.code, "--set max_model_len=: the value is empty" in done.err) == (2, True)


@pytest.mark.parametrize("form", ["command", "script", "docker-run", "docker-py"])
def test_render_prints_text_and_json(cli: CommandLine, form: str) -> None:
    text = cli("render", "nemotron-omni", "--as", form).out
    assert "nvidia/Nemotron-3-Nano-Omni-30B-A3B-Reasoning-NVFP4" in text
    assert cli("render", "nemotron-omni", "--as", form, "--json").json()["text"] == text.rstrip(
        "\n"
    )


def test_a_dry_run_prints_what_render_prints(cli: CommandLine) -> None:
    assert cli("up", "nemotron-omni", "--dry-run").out == cli("render", "nemotron-omni").out
    assert cli("up", "nemotron-omni", "--dry-run", "--json").json()["dry_run"] is True


def test_everything_after_the_dashes_is_for_vllm(cli: CommandLine) -> None:
    extra = ["--seed", "42", "--json", '--x={"a b":1}']
    command = cli("render", "tiny-cpu", "--as", "command", "--", *extra).out
    assert command.endswith("--port 8005 --seed 42 --json '--x={\"a b\":1}'\n")


def test_show_tells_where_values_come_from(cli: CommandLine) -> None:
    out = cli("show", "tiny-cpu", "--set", "port=9").out
    assert re.search(r"^  port +9 +--set$", out, re.MULTILINE)
    assert "tiny-cpu.yaml:" in out
    document = cli("show", "tiny-cpu", "--json").json()
    assert document["endpoint"] == "http://127.0.0.1:8005"


def test_list_names_shipped_recipes_and_those_here(cli: CommandLine) -> None:
    (cli.home / "recipes").mkdir()
    (cli.home / "recipes/mine.yaml").write_text("x: 1\n")
    out = cli("list").out
    assert "nemotron-omni" in out
    assert "not valid: spark-recipe check recipes/mine.yaml" in out
    assert len(cli("list", "--json").json()["recipes"]) == SHIPPED + 1  # type: ignore[arg-type]


def test_secrets_are_masked_in_renderers(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    recipe = write_recipe(env={"MY_TOKEN": "abcdefgh"})
    for form in ("docker-run", "docker-py"):
        out = cli("render", str(recipe), "--as", form).out
        assert "abcdefgh" not in out
        assert "********" in out


def test_a_reader_that_goes_away_is_no_bug(cli: CommandLine) -> None:
    process = cli.start("render", "nemotron-omni")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=20) in (0, 141)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


def test_a_bug_is_called_a_bug(cli: CommandLine, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "jinja2.py").write_text("raise RuntimeError('broken on purpose')\n")
    cli.environ["PYTHONPATH"] = str(broken)
    done = cli("render", "tiny-cpu")
    assert done.code == 3
    assert "this is a bug in spark-recipe" in done.err


def test_output_is_plain_where_there_is_no_terminal(cli: CommandLine) -> None:
    cli.environ["TERM"] = "xterm-256color"
    done = cli("up", "nemotron-omi")
    assert "\x1b" not in done.out + done.err


def test_a_bad_recipe_is_answered_in_under_half_a_second(cli: CommandLine) -> None:
    """Not a benchmark (that is tests/bench): only that nothing slow crept in front of the answer."""
    (cli.home / "bad.yaml").write_text("name: [\n")
    best = 9.0
    for _ in range(3):
        began = time.monotonic()
        assert cli("up", "bad.yaml").code == 1
        best = min(best, time.monotonic() - began)
    assert best < 5


def test_a_terminal_gets_a_live_view(cli: CommandLine) -> None:
    """Under a real pseudo-terminal; `script` is in every Debian."""
    stand_in = ROOT / "tests/stand_in"
    cli.environ |= {
        "SPARK_RECIPE_ENGINE": "process",
        "PATH": f"{stand_in}:{os.environ['PATH']}",
        "TERM": "xterm",
    }
    steps = [["play", "ok-tiny-llama-eager.log", 1.5], ["serve"]]
    recipe = {
        "recipe_version": "1",
        "name": "sr-test-tty",
        "container": "none",
        "gpus": "none",
        "defaults": {"port": 18765},
        "env": {"STAND_IN": json.dumps(steps)},
        "command": "vllm serve m --port {port}",
    }
    (cli.home / "r.yaml").write_text(json.dumps(recipe))
    command = " ".join(cli.argv("up", "r.yaml", "-d"))
    try:
        done = subprocess.run(
            ["script", "-qec", command, "/dev/null"],
            cwd=cli.home,
            env=cli.env(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    finally:
        cli("down", "--all", "--grace", "0")
    assert done.returncode == 0, done.stdout
    assert "✓" in done.stdout
    assert "ready: sr-test-tty" in done.stdout
