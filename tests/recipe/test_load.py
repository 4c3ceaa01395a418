"""Every fault of a file at once, each with its place, the found and the expected."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from spark_vllm_docker.errors import InvalidRecipe, RecipeNotFound
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.ui.words import say_finding

GOOD = """\
recipe_version: "1"
name: a
container: image:1
defaults:
  port: 8000
command: |
  vllm serve m \\
    --port {port}
"""


def faults(text: str) -> list[str]:
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe(text, Path("a.yaml"))
    return [f"{f.where}: {f.message}" for f in caught.value.findings]


def test_a_good_recipe_is_typed_and_frozen() -> None:
    recipe = parse_recipe(GOOD, Path("a.yaml"))
    assert recipe.values == {"port": 8000}
    assert recipe.keys.network == "bridge"
    assert recipe.keys.gpus == "all"
    with pytest.raises(ValueError, match="frozen"):
        recipe.keys.name = "b"  # type: ignore[misc]


@pytest.mark.parametrize("empty", ["mods:", "env:", "build_args:", "volumes:"])
def test_a_key_with_nothing_under_it_is_empty(empty: str) -> None:
    assert parse_recipe(f"{GOOD}{empty}\n", Path("a.yaml"))


def test_of_a_key_that_is_there_twice_the_last_counts_and_that_is_said() -> None:
    recipe = parse_recipe(GOOD + "name: b\n", Path("a.yaml"))
    assert recipe.name == "b"
    (note,) = recipe.notes
    assert say_finding(note).startswith(
        "warning[REC014] a.yaml:9:1: 'name' is here twice, and the last one counts; the first is on "
        "line 2"
    )


def test_an_unquoted_version_is_fine() -> None:
    assert parse_recipe(GOOD.replace('"1"', "1"), Path("a.yaml")).form is Form.VERSION_1


BAD = [
    ("", ["a.yaml: the file is empty; a recipe is a mapping of keys"]),
    ("- a\n- b\n", ["a.yaml:1:1: expected a mapping of recipe keys, found a list"]),
    ("just text", ["a.yaml:1:1: expected a mapping of recipe keys, found 'just text'"]),
    (
        "name: [unclosed\n",
        [
            "a.yaml:2:1: the YAML is broken: while parsing a flow sequence, "
            "did not find expected ',' or ']'"
        ],
    ),
    (
        "a: b: c\n",
        ["a.yaml:1:5: the YAML is broken: mapping values are not allowed in this context"],
    ),
    (
        "name: a\n\tb: c\n",
        ["a.yaml:2:1: the YAML is broken: a tab in the indentation; YAML is indented with spaces"],
    ),
    (
        GOOD.replace("container:", "contaner:"),
        ["a.yaml:3:1: contaner: unknown key; did you mean 'container'?"],
    ),
    (GOOD + "shm_sise: 1g\n", ["a.yaml:9:1: shm_sise: unknown key; did you mean 'shm_size'?"]),
    (GOOD + "zzz: 1\n", ["a.yaml:9:1: zzz: unknown key"]),
    (
        GOOD.replace("container: image:1\n", ""),
        ["a.yaml:1:1: the key 'container' is missing"],
    ),
    (
        GOOD.replace("defaults:\n  port: 8000\n", "defaults:\n  - port\n"),
        [
            "a.yaml:5:3: defaults: expected a mapping, found a list",
            "a.yaml:8:12: command: {port} has no value",
        ],
    ),
    (GOOD.replace("name: a", "name: 5"), ["a.yaml:2:7: name: expected text, found 5"]),
    (GOOD + "solo_only: yep\n", ["a.yaml:9:12: solo_only: expected true or false, found 'yep'"]),
    (GOOD + "mods: mods/abc\n", ["a.yaml:9:7: mods: expected a list, found 'mods/abc'"]),
    (
        GOOD + "network: hots\n",
        ["a.yaml:9:10: network: expected 'bridge' or 'host', found 'hots'"],
    ),
    (
        GOOD + "gpus: some\n",
        ["a.yaml:9:7: gpus: expected 'all' or 'none' or a list of GPU numbers, found 'some'"],
    ),
    (
        GOOD + "shm_size: lots\n",
        ["a.yaml:9:11: shm_size: expected a size such as 16g, found 'lots'"],
    ),
    (
        GOOD + "stall_timeout_s: -1\n",
        ["a.yaml:9:18: stall_timeout_s: input should be greater than 0, found -1"],
    ),
    (
        GOOD.replace('"1"', '"7"'),
        ["a.yaml:1:17: recipe_version: expected '1', found '7'"],
    ),
    (
        GOOD.replace("image:1", "--privileged"),
        [
            "a.yaml:3:12: container: expected an image such as vllm/vllm-openai:v0.20.0, found '--privileged'"
        ],
    ),
    (GOOD + "env:\n  'A B': 1\n", None),
    (GOOD + "env:\n  - A=1\n", ["a.yaml:10:3: env: expected a mapping, found a list"]),
    (
        GOOD.replace("{port}", "{prot}"),
        ["a.yaml:8:12: command: {prot} has no value; did you mean 'port'?"],
    ),
    (GOOD.replace("{port}", "{port"), ["a.yaml:8:12: command: a '{' without its '}'"]),
    (GOOD.replace("{port}", "{port}}"), ["a.yaml:8:18: command: a '}' without its '{'"]),
    (
        GOOD.replace("{port}", "{prot} --x '{\"a\":1}'"),
        [
            "a.yaml:8:12: command: {prot} has no value; did you mean 'port'?",
            "a.yaml:8:24: command: '{\"a\":1}' is not a placeholder such as {port}",
        ],
    ),
    (GOOD.replace("8000", "!!int ''"), ["a.yaml:5:9: '' is no usable value of type int"]),
    (GOOD.replace("8000", "!!bool abc"), ["a.yaml:5:9: 'abc' is no usable value of type bool"]),
    (GOOD.replace("8000", ".nan"), ["a.yaml:5:9: '.nan' is no usable value of type float"]),
    (GOOD.replace("8000", "9" * 5000), None),
    (GOOD.replace("defaults:", "defaults: !foo"), None),
    (GOOD + "x: !!python/object/apply:os.system ['true']\n", None),
    (GOOD + "y: !custom z\n", None),
    (GOOD + "a: &a {b: 1}\nc:\n  <<: *a\n", None),
    (GOOD + "? [1, 2]\n: x\n", ["a.yaml:9:3: a key must be a word, found a list or a mapping"]),
]


@pytest.mark.parametrize(("text", "expected"), BAD)
def test_bad_files_get_the_exact_message(text: str, expected: list[str] | None) -> None:
    found = faults(text)
    assert found if expected is None else found == expected


def test_faults_of_all_kinds_come_together() -> None:
    text = GOOD.replace("{port}", "{prot} }").replace("name: a", "name: [a]") + "shm_sise: 1g\n"
    assert [line.partition(": ")[0] for line in faults(text)] == [
        "a.yaml:2:7",
        "a.yaml:8:12",
        "a.yaml:8:19",
        "a.yaml:9:1",
    ]


def test_deep_and_huge_files_are_refused_quickly() -> None:
    assert "32 levels" in faults("a: " + "[" * 100)[0]
    assert "nesting depth" in faults("a: " + "[" * 100_000)[0]
    assert "20000 entries" in faults("a:\n" + "- 1\n" * 30_000)[0]
    bomb = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    for new, old in zip("bcdefgh", "abcdefg", strict=True):
        bomb += f"{new}: &{new} [{', '.join(['*' + old] * 10)}]\n"
    assert "aliases make more than" in faults(bomb)[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RecipeNotFound, match="no such file"):
        load_recipe(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: a\nx: \xe9\n")
    with pytest.raises(InvalidRecipe) as caught:
        load_recipe(tmp_path / "latin.yaml")
    assert str(caught.value.findings[0].where).endswith("latin.yaml:2")
    (tmp_path / "big.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InvalidRecipe) as caught:
        load_recipe(tmp_path / "big.yaml")
    assert "larger than 1 MiB" in caught.value.findings[0].message


def test_a_finding_reads_as_one_line_and_an_edit() -> None:
    with pytest.raises(InvalidRecipe) as caught:
        parse_recipe(GOOD.replace("{port}", "{prot}"), Path("a.yaml"))
    assert say_finding(caught.value.findings[0]) == (
        "error[REC007] a.yaml:8:12: command: {prot} has no value; did you mean 'port'?\n"
        "  fix: add 'prot:' to defaults"
    )


def test_the_whole_corpus_loads() -> None:
    corpus = Path(__file__).resolve().parents[3] / "shared/recipes-corpus/eugr"
    if not corpus.is_dir():
        pytest.skip("the corpus is not here")
    assert len([load_recipe(path) for path in sorted(corpus.glob("*.yaml"))]) == 59


def test_hostile_sizes_stay_quick() -> None:
    defaults = "".join(f"  parameter_number_{n}: 1\n" for n in range(4000))
    placeholders = " ".join(f"{{unknown_number_{n}}}" for n in range(1500))
    text = f'recipe_version: "1"\nname: a\ncontainer: i\ndefaults:\n{defaults}command: |\n  x {placeholders}\n'
    began = time.monotonic()
    assert len(faults(text)) == 1500
    assert time.monotonic() - began < 5
