"""`convert`: the same argv, comments kept, and nothing dropped in silence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.errors import Refused
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.nodes import Nodes, apply_nodes
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import strip_command
from spark_vllm_docker.render.build import build_deployment
from spark_vllm_docker.render.command import LaunchOptions
from spark_vllm_docker.render.structured import render_structured
from tests.conftest import ROOT

from .docker_run_reader import bash_words

CORPUS = ROOT.parent / "shared/recipes-corpus/eugr"
FILES = sorted(CORPUS.glob("*.yaml")) if CORPUS.is_dir() else []


def words_of(command: str) -> list[str]:
    """Bash's own words; `--a.b=c` and JSON in one spelling, as vLLM's parser reads them."""
    words: list[str] = []
    for word in bash_words(command):
        head, equals, value = word.partition("=")
        split = [head, value] if equals and head.startswith("-") else [word]
        words += [same_json(part) for part in split]
    return words


def same_json(word: str) -> str:
    try:
        return json.dumps(json.loads(word)) if word[:1] in "{[" else word
    except json.JSONDecodeError:
        return word


def command_of(recipe: Recipe) -> str:
    """As on one machine, without the guards that stand before the rendering."""
    keys = recipe.keys.model_copy(update={"mods": [], "cluster_only": False})
    return build_deployment(replace(recipe, keys=keys), LaunchOptions(), {}).command


@pytest.mark.skipif(not FILES, reason="the corpus is not here")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_corpus_converts_to_the_same_argv(path: Path) -> None:
    recipe = load_recipe(path)
    try:
        made = render_structured(recipe)
    except Refused as error:
        assert "starts no `vllm serve`" in error.message
        return
    again = parse_recipe(made.text, path)
    assert again.notes == ()
    assert again.keys.env == recipe.keys.env
    assert again.keys.mods == recipe.keys.mods
    expected = command_of(recipe)
    if recipe.keys.cluster_only:  # then nothing counts machines with tensor_parallel
        expected = apply_nodes(strip_command(recipe.command.fill(recipe.values)), Nodes())
    assert words_of(command_of(again)) == words_of(expected)


@pytest.mark.skipif(not FILES, reason="the corpus is not here")
def test_no_comment_of_the_corpus_is_lost() -> None:
    for path in FILES:
        recipe = load_recipe(path)
        if recipe.command.read_arguments(recipe.values) is None:
            continue
        text = render_structured(recipe).text
        for row in path.read_text().splitlines():
            if row.strip().startswith("#") and row.strip(" #"):
                assert row.strip() in text, (path.name, row)


HEAD = (
    'recipe_version: "1"\nname: a\ncontainer: vllm/vllm-openai:v0.20.0\n'
    "defaults: {port: 1, tensor_parallel: 1}\n"
)


def convert(command: str, more: str = "", head: str = HEAD) -> str:
    block = "".join(f"  {row}\n" for row in command.split("\n"))
    return render_structured(parse_recipe(f"{head}{more}command: |\n{block}", Path("a.yaml"))).text


def serve_of(text: str) -> str:
    return text.partition("serve:\n")[2]


@pytest.mark.parametrize(
    ("words", "serve"),
    [
        ("--port {port}", "  port: 1\n"),
        ("--enable-prefix-caching", "  enable-prefix-caching: true\n"),
        ("--no-enable-prefix-caching", "  enable-prefix-caching: false\n"),
        ("-tp 2 -O3", "  -tp: 2\n  -O3: true\n"),
        ("--max_model_len 64K", "  max_model_len: 64K\n"),
        ("--max-model-len=8", "  max-model-len: 8\n"),
        ("--gpu-memory-utilization 0.80", "  gpu-memory-utilization: '0.80'\n"),
        ("--seed -1", "  seed: -1\n"),
        ("--served-model-name a 'b c'", "  served-model-name: [a, b c]\n"),
        ("--middleware x --middleware y", "  middleware: [x, y]\n"),
        (
            """--limit-mm-per-prompt '{{"video": 1, "image": 2}}'""",
            "  limit-mm-per-prompt: {video: 1, image: 2}\n",
        ),
        ("-cc.mode=3", "  -cc.mode: 3\n"),
        ("--chat-template yes", "  chat-template: 'yes'\n"),
        ("--unknown-flag", "  unknown-flag: true\n"),
        ("--no-unknown-flag x", "  no-unknown-flag: x\n"),
        ("--tool-call-parser=-x", "  tool-call-parser: -x\n"),
    ],
)
def test_flags_become_yaml(words: str, serve: str) -> None:
    assert serve_of(convert(f"vllm serve m {words}")) == serve


def test_what_stands_around_the_server_becomes_keys() -> None:
    text = convert('pip install -q "vllm[audio]" && \\\n  A=b exec vllm serve m --port {port} \\')
    assert text == (
        "name: a\nmodel: m\ncontainer: vllm/vllm-openai:v0.20.0\nenv:\n  A: b\nsetup:\n"
        '  - pip install -q "vllm[audio]"\nserve:\n  port: 1\n'
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("uvicorn x:app", "starts no `vllm serve`"),
        ("vllm serve m --port $PORT", r"bash expands `\$PORT`"),
        ("vllm serve m --port 1 | tee log", "something follows"),
        ("vllm serve m --port 1 > log", "`> log` follows"),
        ("vllm serve m --port 1\necho done", "something follows"),
        ("nohup vllm serve m", "`nohup` stands in front of"),
        ("if true; then\nvllm serve m\nfi", "something follows|longer bash construct"),
        ("vllm serve --port 1", "names no model"),
        ("vllm serve m other", "several words that could be the model"),
    ],
)
def test_what_yaml_cannot_say_is_refused(command: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        convert(command)


def test_a_structured_recipe_is_one_already() -> None:
    with pytest.raises(Refused, match="is a structured recipe already"):
        render_structured(parse_recipe("model: m\ncontainer: i\nserve: {}\n", Path("a.yaml")))


COMMENTED = """\
# The head
# of the file.

recipe_version: "1"  # the first
name: a  # a name
# Above the image.
container: image:1
defaults:
  # Above the port.
  port: 1
  length: 4096  # beside it
env:
  # Above A.
  A: "#no comment"
# Above the command.
command: |
  # In front of the server.
  vllm serve m --port {port} --max-model-len {length}
# At the end.
"""


def test_comments_stay_with_what_they_speak_of() -> None:
    made = render_structured(parse_recipe(COMMENTED, Path("a.yaml")))
    assert made.text == (
        "# The head\n# of the file.\nname: a  # a name\nmodel: m\n# Above the image.\n"
        "container: image:1\nenv:\n  # Above A.\n  A: '#no comment'\n# Above the command.\n"
        "# In front of the server.\nserve:\n  # Above the port.\n  port: 1\n"
        "  max-model-len: 4096  # beside it\n# At the end.\n"
    )


def test_the_user_is_told_what_one_machine_means() -> None:
    head = HEAD.replace("tensor_parallel: 1", "tensor_parallel: 2")
    recipe = parse_recipe(
        head + "command: vllm serve m -tp {tensor_parallel} --port {port}\n", Path("a.yaml")
    )
    made = render_structured(recipe)
    assert "  -tp: 1\n" in made.text
    assert made.notes == (
        "tensor_parallel is 1, as on one machine; it was 2, for as many machines",
    )


def test_flag_kinds_are_those_of_the_image() -> None:
    assert find_release("0.20.0").flags["--middleware"]["kind"] == "append"
