"""What `up --fix` changes after a death, and how it is put into the recipe's file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_vllm_docker.cli.files import write_new_file
from spark_vllm_docker.cli.options import RecipeChoice
from spark_vllm_docker.cli.repair import Change, apply_remedy
from spark_vllm_docker.cli.up_verb import _write_changes
from spark_vllm_docker.errors import Refused, Remedy
from spark_vllm_docker.render.edit import set_in_recipe
from tests.conftest import STAND_IN_IMAGE, CommandLine

RULE = "mamba-align-block-size-gt-batched-tokens"
CHOICE = RecipeChoice("r", (), (), None, None, "127.0.0.1", False, ())
COMMAND = "vllm serve m --max-num-batched-tokens 2048 --moe-backend marlin"


@pytest.mark.parametrize(
    ("flags", "structured", "sets", "extra", "told"),
    [
        (
            (("max-num-batched-tokens", "8512"),),
            True,
            ("max-num-batched-tokens=8512",),
            (),
            ["fixed (r1): --max-num-batched-tokens 2048 → 8512"],
        ),
        (
            (("max-num-batched-tokens", "8512"),),
            False,
            (),
            ("--max-num-batched-tokens", "8512"),
            ["fixed (r1): --max-num-batched-tokens 2048 → 8512"],
        ),
        (
            (("moe-backend", None),),
            True,
            ("moe-backend=null",),
            (),
            ["fixed (r1): --moe-backend marlin → unset"],
        ),
        (
            (("enable-prefix-caching", "true"),),
            False,
            (),
            ("--enable-prefix-caching",),
            ["fixed (r1): --enable-prefix-caching unset → true"],
        ),
    ],
)
def test_flags_before_and_after(
    flags: tuple[tuple[str, str | None], ...],
    structured: bool,
    sets: tuple[str, ...],
    extra: tuple[str, ...],
    told: list[str],
) -> None:
    applied = apply_remedy(CHOICE, Remedy("r1", flags), COMMAND, structured=structured)
    assert applied is not None
    choice, changes = applied
    assert (choice.sets, choice.extra, list(map(str, changes))) == (sets, extra, told)


def test_a_variable() -> None:
    remedy = Remedy("r1", (), (("TRITON_PTXAS_PATH", "/usr/local/cuda/bin/ptxas"),))
    applied = apply_remedy(CHOICE, remedy, COMMAND, structured=True)
    assert applied is not None
    assert applied[0].env == ("TRITON_PTXAS_PATH=/usr/local/cuda/bin/ptxas",)
    assert apply_remedy(applied[0], remedy, COMMAND, structured=True) is None


@pytest.mark.parametrize(
    ("flags", "structured"),
    [
        ((("max-num-batched-tokens", "2048"),), True),
        ((("attention-backend", None),), True),
        ((("moe-backend", None),), False),
        ((), True),
    ],
)
def test_what_changes_nothing_is_no_remedy(
    flags: tuple[tuple[str, str | None], ...], structured: bool
) -> None:
    assert apply_remedy(CHOICE, Remedy("r1", flags), COMMAND, structured=structured) is None


TEXT = """\
# mine
model: org/m   # the model
container: i
serve:
  # the budget
  max_num_batched_tokens: 2048  # too small
  port: 8000
env:
  A: "1"
"""


def test_a_value_is_changed_and_every_comment_stays() -> None:
    text = set_in_recipe(TEXT, "r.yaml", "serve", "max-num-batched-tokens", "8512")
    assert text == TEXT.replace("2048", "8512")


@pytest.mark.parametrize(
    ("section", "name", "value", "added"),
    [
        ("serve", "moe-backend", "marlin", "  moe-backend: marlin\n"),
        ("env", "B", "/x/y", "  B: /x/y\n"),
        ("env", "C", "a b", "  C: 'a b'\n"),
    ],
)
def test_a_new_key_is_added(section: str, name: str, value: str, added: str) -> None:
    text = set_in_recipe(TEXT, "r.yaml", section, name, value)
    assert added in text
    assert text.replace(added, "") == TEXT


def test_a_new_section_is_added() -> None:
    text = set_in_recipe("model: m\ncontainer: i\n", "r.yaml", "env", "A", "1")
    assert text == "model: m\ncontainer: i\nenv:\n  A: 1\n"


def test_a_key_is_taken_away() -> None:
    text = set_in_recipe(TEXT, "r.yaml", "serve", "port", None)
    assert text == TEXT.replace("  port: 8000\n", "")
    assert set_in_recipe(TEXT, "r.yaml", "serve", "nothing", None) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "serve: {port: 1}\n",
        "serve: {}\n",
        "serve:\n",
        "serve:\n  port: >\n    1\n",
        "serve:\n  port: &a 1\n  seed: *a\n",
        "serve:\n  port: 1\n    7\n",
        "serve:\n  port: 1\nwhen:\n  cpu:\n    serve:\n      port: 3\n",
        "serve: \n  <<: {port: 1}\n  seed: 2\n",
    ],
)
def test_what_is_written_otherwise_is_left_alone(text: str) -> None:
    with pytest.raises(Refused):
        set_in_recipe(text, "r.yaml", "serve", "port", "2")


def test_a_value_of_two_lines_is_not_cut_in_two() -> None:
    with pytest.raises(Refused):
        set_in_recipe("serve:\n  host: abc\n  seed: 1\n    2\n", "r.yaml", "serve", "seed", None)


@pytest.mark.parametrize("value", ["0.80", "0.5", "1e-2", '{"a": "it\'s"}', "[1]", "true", "8512"])
def test_any_value_comes_back_as_it_was_meant(value: str) -> None:
    text = set_in_recipe(TEXT, "r.yaml", "serve", "seed", value)
    assert text.count("\n") == TEXT.count("\n") + 1
    again = set_in_recipe(text, "r.yaml", "serve", "seed", None)
    assert again == TEXT


def test_line_ends_of_windows_stay() -> None:
    text = set_in_recipe(TEXT.replace("\n", "\r\n"), "r.yaml", "serve", "port", "1")
    assert text == TEXT.replace("8000", "1").replace("\n", "\r\n")


def test_a_quoted_value_is_changed_whole() -> None:
    text = set_in_recipe("serve:\n  a: 'it''s # b'  # c\n", "r.yaml", "serve", "a", "x")
    assert text == "serve:\n  a: x  # c\n"


def test_a_block_at_the_end_keeps_its_blank_lines() -> None:
    before = "serve:\n  a: 1\ndescription: |+\n  x\n\n\n"
    assert set_in_recipe(before, "r.yaml", "env", "A", "1") == before + "env:\n  A: 1\n"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("old")
    code = (
        "import resource, signal, sys, pathlib\n"
        "from spark_vllm_docker.cli.files import write_new_file\n"
        "from spark_vllm_docker.errors import Refused\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "try:\n    write_new_file(pathlib.Path(sys.argv[1]), 'new' * 99, force=True)\n"
        "except Refused as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert "cannot be written: file too large" in done.stdout
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_mode_and_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "r.yaml", tmp_path / "link.yaml"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_new_file(link, "new", force=True)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o640)
    assert link.is_symlink()


def test_a_recipe_with_a_command_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("old")
    read = SimpleNamespace(file=path, structured=False)
    told = _write_changes(read, [Change("r", "--seed", None, "1")])  # type: ignore[arg-type]
    assert told.startswith(f"not written: {path} has a command: of its own")
    assert path.read_text() == "old"


STEPS = (
    '[["needs", "--max-num-batched-tokens", "8192", "fail-mamba-align-block-size.log"], ["serve"]]'
)


def write(cli: CommandLine, port: int, steps: str = STEPS) -> str:
    (cli.home / "r.yaml").write_text(
        f"name: sr-test\nmodel: m\ncontainer: {STAND_IN_IMAGE}\ngpus: none\n"
        f"env:\n  STAND_IN: '{steps}'\n"
        f"serve:\n  port: {port}\n  max-num-batched-tokens: 2048  # a comment\n"
    )
    return "r.yaml"


@pytest.mark.docker
@pytest.mark.usefixtures("no_leftovers", "stand_in_image")
def test_a_death_is_mended_and_written(cli: CommandLine, port: int) -> None:
    up = cli("up", write(cli, port), "-d", "--fix", "--write")
    assert up.code == 0, up.err
    assert f"fixed ({RULE}): --max-num-batched-tokens 2048 → 8192" in up.err
    assert "written to " in up.err
    assert "max-num-batched-tokens: 8192  # a comment" in (cli.home / "r.yaml").read_text()
    assert cli("down", "sr-test").code == 0
    again = cli("up", "r.yaml", "-d", "--json")
    assert again.code == 0
    assert cli("down", "sr-test").code == 0


@pytest.mark.docker
@pytest.mark.usefixtures("no_leftovers", "stand_in_image")
def test_the_repairs_stand_in_the_result(cli: CommandLine, port: int) -> None:
    up = cli("up", write(cli, port), "-d", "--fix", "--json")
    assert up.code == 0, up.err
    result = json.loads(up.out.splitlines()[-1])
    assert result["repairs"] == [
        {"rule": RULE, "name": "--max-num-batched-tokens", "before": "2048", "after": "8192"}
    ]
    assert "2048" in (cli.home / "r.yaml").read_text()
    assert cli("down", "sr-test").code == 0


@pytest.mark.docker
@pytest.mark.usefixtures("no_leftovers", "stand_in_image")
@pytest.mark.parametrize("fix", [True, False])
def test_what_does_not_help_is_not_tried_for_ever(cli: CommandLine, port: int, fix: bool) -> None:
    steps = STEPS.replace("8192", "1")
    up = cli("up", write(cli, port, steps), "-d", *(["--fix"] if fix else []))
    assert up.code == 5
    assert up.err.count("fixed (") == int(fix)
    assert up.err.splitlines()[-2].startswith("cause: A Mamba block does not fit")
    assert cli("down", "sr-test").code == 0


@pytest.mark.docker
@pytest.mark.usefixtures("no_leftovers", "stand_in_image")
def test_a_server_that_dies_while_it_serves_is_started_again_so_often(
    cli: CommandLine, port: int
) -> None:
    up = cli("up", write(cli, port, '[["serve"], ["sleep", 2], ["exit", 1]]'), "--restart", "1")
    assert up.code == 5
    assert up.err.count("restart 1 of 1") == 1
    assert "not restarted: 1 restarts are enough" in up.err
    assert cli("down", "sr-test").code == 0


def test_write_needs_fix(cli: CommandLine) -> None:
    done = cli("up", "tiny-cpu", "--write", "--dry-run")
    assert (done.code, "--write needs --fix" in done.err) == (2, True)
