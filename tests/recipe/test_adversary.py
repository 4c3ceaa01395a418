"""What an adversary found once, each for its kind."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from spark_vllm_docker.errors import InvalidRecipe, Refused, UsageError
from spark_vllm_docker.findings import Severity
from spark_vllm_docker.plan.check import check_recipe
from spark_vllm_docker.recipe.load import load_recipe, parse_recipe
from spark_vllm_docker.recipe.overrides import Overrides, parse_set
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.render.build import build_deployment
from spark_vllm_docker.render.command import LaunchOptions
from spark_vllm_docker.render.secrets import find_secrets, mask_deployment
from spark_vllm_docker.render.structured import render_structured
from tests.render.docker_run_reader import bash_words

IMAGE = "container: vllm/vllm-openai:v0.20.0\n"
V1 = f'recipe_version: "1"\nname: x\n{IMAGE}'
V2 = f'recipe_version: "2"\nmodel: org/m\n{IMAGE}'
STRUCTURED = f"model: org/m\n{IMAGE}"


def read(text: str, hardware: str = "") -> Recipe:
    return parse_recipe(text, Path("a.yaml"), hardware)


def command_of(recipe: Recipe, *sets: str) -> str:
    options = LaunchOptions(overrides=Overrides(tuple(parse_set(s) for s in sets)))
    return build_deployment(recipe, options, {"HOME": "/h"}).command


def codes(recipe: Recipe) -> list[str]:
    return [f.code for f in check_recipe(recipe) if f.severity is not Severity.NOTE]


def test_a_model_placeholder_does_not_change_how_braces_are_read() -> None:
    recipe = read(
        V1 + "model: org/m\ndefaults: {port: 1}\ncommand: |\n"
        '  vllm serve {model} --port {port} --speculative-config \'{{"method":"mtp"}}\'\n'
    )
    assert bash_words(command_of(recipe))[-1] == '{"method":"mtp"}'
    assert codes(recipe) == []


def test_a_blank_line_after_a_continuation_cuts_nothing_off() -> None:
    recipe = read(V1 + "command: |\n  vllm serve m \\\n\n    --port 8000 \\\n    --host 0.0.0.0\n")
    assert bash_words(command_of(recipe))[-4:] == ["--port", "8000", "--host", "0.0.0.0"]


@pytest.mark.parametrize(
    ("step", "runs"),
    [
        ("sleep 0 &", True),
        ("", True),
        ("# only a comment", True),
        ("true; true", True),
        ("true | cat", True),
        ("echo a \\", True),
        ("false\n\necho ok", False),
        ("echo a\nfalse", False),
        ("false", False),
        ("true && false", False),
        ("false || true", True),
    ],
)
def test_every_step_is_bash_and_one_that_fails_ends_the_start(step: str, runs: bool) -> None:
    recipe = read(f"{STRUCTURED}setup: [{step!r}]\nserve: {{port: 1}}\n".replace("\\n", "\\n"))
    object.__setattr__(recipe.keys, "setup", [step])
    script = build_deployment(recipe, LaunchOptions(), {}).script
    script = script.replace("exec vllm serve", "echo SERVED").replace("vllm serve", "echo SERVED")
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert "syntax error" not in done.stderr
    assert ("SERVED" in done.stdout) is runs
    assert (done.returncode == 0) is runs


@pytest.mark.parametrize(
    "flags",
    [
        "{compilation-config: {mode: 3}, compilation-config.cudagraph_mode: NONE}",
        "{compilation-config.cudagraph_mode: NONE, compilation-config: {mode: 3}}",
    ],
)
def test_a_dotted_flag_beside_its_whole_is_an_error(flags: str) -> None:
    assert "FLAG008" in codes(read(f"{STRUCTURED}serve: {flags}\n"))
    assert codes(read(f"{STRUCTURED}serve: {{compilation-config.mode: 3, -cc.x: 1}}\n")) in (
        [],
        ["FLAG002"],
    )


def test_an_override_reaches_the_values_made_from_it() -> None:
    recipe = read(
        V2 + 'defaults: {port: 8000, url: "http://localhost:{port}/x"}\npre_exec: ["echo {port}"]\n'
        "command: vllm serve {model} --port {port} --root-path {url}\n"
    )
    assert command_of(recipe, "port=9") == (
        "echo 9 && \\\nvllm serve org/m --port 9 --root-path http://localhost:9/x"
    )


def test_long_values_are_whole_and_mappings_are_json() -> None:
    long = "x" * 5000
    recipe = read(
        V2 + f'defaults: {{tpl: \'{{"a": "{long}"}}\', spec: {{method: mtp}}}}\n'
        "command: vllm serve {model} --x '{tpl}' --speculative-config '{spec}'\n"
    )
    words = bash_words(command_of(recipe))
    assert long in words[4]
    assert words[-1] == '{"method":"mtp"}'


def test_values_that_name_each_other_end() -> None:
    names = ", ".join(f"a{n}: '{{a{(n + 1) % 50}}} {{a{(n + 7) % 50}}}'" for n in range(50))
    began = time.perf_counter()
    recipe = read(V2 + f"defaults: {{{names}}}\ncommand: vllm serve {{model}} --x '{{a0}}'\n")
    command_of(recipe)
    assert time.perf_counter() - began < 1.0


def test_paths_are_relative_to_the_file_that_says_them(tmp_path: Path) -> None:
    (tmp_path / "base/mods/fix").mkdir(parents=True)
    (tmp_path / "kid").mkdir()
    (tmp_path / "base/mods/fix/run.sh").write_text("")
    (tmp_path / "base/p.yaml").write_text(
        STRUCTURED + "volumes: ['./data:/data']\nmods: [mods/fix]\nserve: {port: 1}\n"
    )
    (tmp_path / "kid/c.yaml").write_text("extends: ../base/p\n")
    made = build_deployment(load_recipe(tmp_path / "kid/c.yaml"), LaunchOptions(), {"HOME": "/h"})
    assert [mount.source for mount in made.spec.mounts[1:]] == [
        str(tmp_path / "base/data"),
        str(tmp_path / "base/mods/fix"),
    ]


@pytest.mark.parametrize(
    "volumes",
    ["['./a:/d', './b:/d']", "['./a:/d', './b:/d/']", "['./a:/root/.cache/huggingface']"],
)
def test_two_volumes_at_one_place_are_refused(volumes: str) -> None:
    recipe = read(f"{STRUCTURED}volumes: {volumes}\nserve: {{port: 1}}\n")
    with pytest.raises(UsageError, match="two volumes are mounted at"):
        build_deployment(recipe, LaunchOptions(), {"HOME": "/h"})


def test_a_path_with_a_colon_cannot_be_mounted(tmp_path: Path) -> None:
    folder = tmp_path / "x:y"
    folder.mkdir()
    (folder / "a.yaml").write_text(STRUCTURED + "volumes: ['./d:/d']\nserve: {port: 1}\n")
    with pytest.raises(UsageError, match="a path with ':' cannot be mounted"):
        build_deployment(load_recipe(folder / "a.yaml"), LaunchOptions(), {"HOME": "/h"})


@pytest.mark.parametrize(
    "text",
    [
        STRUCTURED + 'serve: {tokenizer: "a\\0b"}\n',
        STRUCTURED + 'env: {A: "a\\0b"}\nserve: {}\n',
        V1 + 'command: "vllm serve \\0"\n',
        STRUCTURED + "env: {A: !!binary aGk=}\nserve: {}\n",
        V1 + "command: " + "a" * 70_000 + "\n",
    ],
)
def test_what_no_argv_can_hold_is_a_finding(text: str) -> None:
    with pytest.raises(InvalidRecipe):
        read(text)


def test_a_variable_that_is_null_is_none() -> None:
    assert read(STRUCTURED + "env: {A: null, B: 1}\nserve: {}\n").keys.env == {"B": 1}


@pytest.mark.parametrize("value", ["[" * 3000, "[" * 3000 + "]" * 3000, '{"a":' * 3000])
def test_deep_json_is_a_finding(value: str) -> None:
    recipe = read(f"{STRUCTURED}serve: {{default-chat-template-kwargs: '{value}'}}\n")
    assert codes(recipe) == ["FLAG002"]
    command_of(recipe)


def test_a_flag_under_an_old_name_is_the_flag() -> None:
    recipe = read(V2 + "defaults: {device_memory_utilization: 0.5, gpu_memory_utilization: 0.6}\n")
    command_of(recipe)
    assert recipe.paths.keys() >= recipe.values.keys()


@pytest.mark.parametrize("name", ["new\nline", "esc\x1b[31m", "n" * 120, "\udcff"])
def test_a_files_name_becomes_a_name(name: str) -> None:
    for text in (STRUCTURED + "serve: {}\n", V2 + "defaults: {port: 1}\n"):
        recipe = parse_recipe(text, Path(f"{name}.yaml"))
        assert recipe.name.isprintable()
        assert 0 < len(recipe.name) <= 100


def test_secrets_in_every_spelling() -> None:
    recipe = read(
        STRUCTURED + "setup: ['export MY_TOKEN=insetup1']\n"
        """serve: {api-key: ["it's-SECRETQUOTE", 12345678]}\n"""
        "env: {API_KEYS: hidden-1, MYPASSWORD: hidden-2, DB_PASS: hidden-3, TOKENIZER: shown}\n"
    )
    made = build_deployment(recipe, LaunchOptions(), {"HOME": "/h"})
    secrets = find_secrets(made, {n: str(v) for n, v in recipe.keys.env.items()}, {}, {})
    masked = mask_deployment(made, secrets)
    text = f"{masked.command} {masked.script} {masked.spec}"
    for secret in ("SECRETQUOTE", "hidden-1", "hidden-2", "hidden-3", "insetup1", "12345678"):
        assert secret not in text
    assert "shown" in text


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("A='$HOME/x' vllm serve m", "has a \\$ that bash does not expand"),
        ("vllm serve m --x {a,b}", "bash expands"),
        ("vllm serve m --y *.yaml", "bash expands"),
        ("vllm serve m --z a{1..3}", "bash expands"),
        ("vllm serve ~/m", "bash expands"),
    ],
)
def test_what_bash_would_change_is_not_converted(command: str, why: str) -> None:
    block = V1 + "command: |\n  " + command.replace("{", "{{").replace("}", "}}") + "\n"
    with pytest.raises(Refused, match=why):
        render_structured(read(block))


def test_steps_of_several_lines_are_converted_verbatim() -> None:
    body = "cat > x.py <<'END'\ndef f():\n    # inside\n    return 1\nEND\nvllm serve m --port 1\n"
    indented = "".join(f"  {row}\n" for row in body.splitlines())
    made = render_structured(read(V1 + "command: |\n" + indented))
    again = read(made.text)
    assert again.keys.setup == [body.removesuffix("vllm serve m --port 1\n").strip()]
    assert "a step before the server that fails now ends the start" in made.notes


@pytest.mark.parametrize("value", ["a\nb\n\n", "a\n\n", " a\nb", "a\x85b", "a\u2028b", "\ta\n b\n"])
def test_every_text_is_converted_to_itself_or_refused(value: str) -> None:
    recipe = read(V1 + "env: {K: v}\ncommand: vllm serve m\n")
    object.__setattr__(recipe.keys, "env", {"K": value})
    try:
        made = render_structured(recipe)
    except Refused as error:
        assert "cannot be written" in error.message
    else:
        assert read(made.text).keys.env == {"K": value}


def test_what_convert_leaves_out_is_told() -> None:
    recipe = read(
        V2 + "model_revision: abc\nbenchmark: {}\ndefaults: {port: 1, spare: 2}\n"
        "overrides: [{when: {nodes: 9}, defaults: {port: 3}}]\n"
        "command: vllm serve {model} --port {port}\n"
    )
    told = " ".join(render_structured(recipe).notes)
    for word in ("benchmark", "defaults.spare", "overrides", "model_revision"):
        assert word in told


def test_an_override_below_is_shown_in_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        V2 + "defaults: {seed: 1}\noverrides: [{when: {nodes: 1}, defaults: {seed: 5}}]\n"
    )
    (tmp_path / "over.yaml").write_text(
        "include: base\noverrides: [{when: {planet: x}, env: {A: b}}, {when: {nodes: 1}, env: {R: 1}}]\n"
    )
    recipe = load_recipe(tmp_path / "over.yaml")
    assert recipe.origin(recipe.paths["seed"]).startswith(f"{tmp_path}/base.yaml:5:")
    assert recipe.origin(("env", "R")) == f"{tmp_path}/over.yaml:2:72 (overrides[2])"
    (note,) = recipe.notes
    assert (note.code, str(note.where)) == ("REC022", f"{tmp_path}/over.yaml:2:14")


def test_a_null_block_takes_the_one_below_away(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        STRUCTURED + "serve: {seed: 1}\nwhen: {h100: {serve: {seed: 2}}, cpu: {serve: {seed: 3}}}\n"
    )
    (tmp_path / "kid.yaml").write_text("extends: base\nwhen: {h100: null}\n")
    assert load_recipe(tmp_path / "kid.yaml", "h100").values["seed"] == 1
    assert load_recipe(tmp_path / "kid.yaml", "cpu").values["seed"] == 3


def test_the_negation_is_the_value_false() -> None:
    with pytest.raises(InvalidRecipe) as caught:
        read(STRUCTURED + "serve: {no-enable-chunked-prefill: true}\n")
    (finding,) = caught.value.findings
    assert (finding.code, finding.fix) == ("REC019", "enable-chunked-prefill: false")


@pytest.mark.parametrize(
    ("serve", "expected"),
    [
        ("{reasoning-parser: nano_v3, reasoning-parser-plugin: p.py}", []),
        ("{tool-call-parser: mine, tool-parser-plugin: p.py, enable-auto-tool-choice: true}", []),
        ("{reasoning-parser: nano_v3}", ["FLAG003"]),
        ("{hf-token: true}", []),
        ("{quantization: nope}", ["FLAG003"]),
        ("{quantization: fp8}", []),
        ("{max-model-len: 0}", ["FLAG002"]),
        ("{max-model-len: auto}", []),
        ("{-tp: false}", ["FLAG001"]),
    ],
)
def test_neither_false_errors_nor_missed_ones(serve: str, expected: list[str]) -> None:
    assert codes(read(f"{STRUCTURED}serve: {serve}\n")) == expected


def test_a_lost_continuation_is_an_error_at_its_line() -> None:
    recipe = read(V1 + "command: |\n  vllm serve m\n    --port 8000\n")
    found = [f for f in check_recipe(recipe) if f.code == "REC024"]
    assert [str(f.where) for f in found] == ["a.yaml:6:5"]


def test_a_folded_command_is_pointed_at_as_a_whole() -> None:
    recipe = read(V1 + "command: >\n  vllm serve m\n  --nonsense\n")
    assert [str(f.where) for f in check_recipe(recipe)] == ["a.yaml:4:10"]


SLOW = {
    "flags": V1 + "command: vllm serve m " + "-a " * 20_000 + "\n",
    "placeholders": V1 + "defaults: {p: 1}\ncommand: vllm serve m " + "{p} " * 15_000 + "\n",
    "unknown flags": V1 + "command: vllm serve m " + "--foo-x " * 8_000 + "\n",
    "words": V1 + "command: vllm serve m " + "a " * 30_000 + "\n",
    "unknown placeholders": V1 + "command: vllm serve m " + "{a} " * 15_000 + "\n",
    "lines": V1 + "command: |\n  vllm serve m \\\n" + "    --seed 1 \\\n" * 4_500 + "    --x\n",
    "substitutions": V1 + "command: vllm serve m " + "$( " * 20_000 + "\n",
    "v2 names": V2 + "command: vllm serve m " + " ".join(f"{{a{n}}}" for n in range(8_000)) + "\n",
    "v2 defaults": V2 + "defaults:\n" + "".join(f"  k{n}: 1\n" for n in range(5_000)),
    "v2 values": V2
    + "defaults:\n"
    + "".join(f"  k{n}: '{{k{n + 1}}} {{k{n + 2}}}'\n" for n in range(3_000))
    + "command: vllm serve m {k0}\n",
    "structured flags": STRUCTURED + "serve:\n" + "".join(f"  u{n}: 1\n" for n in range(5_000)),
    "twice": V1 + "command: x\nenv:\n" + "".join(f"  A{n}: 1\n  A{n}: 2\n" for n in range(3_000)),
    "blocks": V1 + "command: x\nenv:\n" + "".join(f"  A{n}: |\n    x\n" for n in range(6_000)),
}


@pytest.mark.parametrize("name", list(SLOW))
def test_no_file_takes_longer_than_two_seconds(name: str) -> None:
    began = time.perf_counter()
    try:
        check_recipe(read(SLOW[name]))
    except InvalidRecipe as error:
        assert error.findings
    assert time.perf_counter() - began < 2.0
