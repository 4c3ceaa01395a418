from __future__ import annotations

import shlex
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_vllm_docker.recipe.serve import append_arguments, exec_serve, parse_serve
from spark_vllm_docker.recipe.shell import scan_shell


@given(st.lists(st.text(alphabet="ab '\"\\$#&|;\n{}", max_size=8), min_size=1, max_size=5))
def test_quoted_words_are_read_as_bash_reads_them(words: list[str]) -> None:
    line = scan_shell("vllm " + shlex.join(words))
    assert [word.value for word in line.commands[0].words] == ["vllm", *words]
    assert len(line.commands) == 1


def test_words_agree_with_bash() -> None:
    text = """echo a'b c'"d \\"e\\" \\$f" g\\ h '{"a":1}' \\\n  i # a comment"""
    expected = subprocess.run(
        ["/bin/bash", "-c", text.replace("echo", "printf '%s\\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert [word.value for word in scan_shell(text).commands[0].words[1:]] == expected


def test_what_a_command_serves() -> None:
    serve = parse_serve(
        "pip install x && \\\nvllm serve org/model --served-model-name a b --port=9 --port 8010 --api_key k"
    )
    assert serve is not None
    assert (serve.model, serve.served, serve.port) == ("org/model", ("a", "b"), 8010)
    assert (serve.host, serve.api_key) == ("", "k")


@pytest.mark.parametrize(
    ("command", "served", "port"),
    [
        ("vllm serve m", ("m",), 8000),
        ("vllm serve --model m --port 1", ("m",), 1),
        ("vllm serve m --port many", ("m",), 0),
        ("vllm serve m --port 99999", ("m",), 0),
        ("/opt/bin/vllm serve m --limit -1 --port 5", ("m",), 5),
        ("A=1 vllm serve m", ("m",), 8000),
        ("uv run vllm serve m", ("m",), 8000),
    ],
)
def test_names_and_ports(command: str, served: tuple[str, ...], port: int) -> None:
    serve = parse_serve(command)
    assert serve is not None
    assert (serve.served, serve.port) == (served, port)


@pytest.mark.parametrize(
    "command", ["uvicorn app:x", "echo 'vllm serve m'", "vllm bench", "# vllm serve m"]
)
def test_other_commands_serve_nothing(command: str) -> None:
    assert parse_serve(command) is None


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m", "exec vllm serve m"),
        ("vllm serve m \\\n  --x 1\n", "exec vllm serve m \\\n  --x 1\n"),
        ("pip install a && vllm serve m", "pip install a && exec vllm serve m"),
        ("pip install a\nvllm serve m", "pip install a\nexec vllm serve m"),
        ("A=1 vllm serve m", "A=1 exec vllm serve m"),
        ("vllm serve m  # the end", "exec vllm serve m  # the end"),
    ],
)
def test_the_server_replaces_the_shell(command: str, expected: str) -> None:
    assert exec_serve(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m 2>&1 | tee f", "vllm serve m --seed 1 2>&1 | tee f"),
        ("vllm serve m >log 2>&1", "vllm serve m --seed 1 >log 2>&1"),
        ("vllm serve m &> log", "vllm serve m --seed 1 &> log"),
        ("vllm serve m 2>/dev/null --x 1", "vllm serve m 2>/dev/null --x 1 --seed 1"),
        ("vllm serve m < in", "vllm serve m --seed 1 < in"),
    ],
)
def test_redirections_are_no_words(command: str, expected: str) -> None:
    serve = parse_serve(command)
    assert serve is not None
    assert serve.served == ("m",)
    assert append_arguments(command, ["--seed", "1"]) == expected


def test_a_redirected_server_still_replaces_the_shell() -> None:
    assert exec_serve("vllm serve m >log 2>&1") == "exec vllm serve m >log 2>&1"


@pytest.mark.parametrize(
    "command", ["vllm serve $MODEL", "vllm serve ~/m", 'vllm serve "$A/b"', "vllm serve `cat m`"]
)
def test_what_bash_expands_is_not_known(command: str) -> None:
    serve = parse_serve(command)
    assert serve is not None
    assert serve.served == ()
    assert parse_serve("vllm serve '$MODEL'").served == ("$MODEL",)  # type: ignore[union-attr]


def test_a_long_hostile_command_is_scanned_quickly() -> None:
    began = time.monotonic()
    scan_shell("vllm serve m " + ";" * 400_000)
    scan_shell("vllm serve m " + "\\\n" * 200_000)
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    "command",
    [
        "trap 'echo bye' EXIT\nvllm serve m",
        "vllm() { true; }\nvllm serve m",
        "vllm serve m --x $'a\\'b' && echo done",
        "vllm serve m | tee log",
        "yes | vllm serve m",
        "vllm serve m &\nwait",
        "vllm serve m; echo done",
        "vllm serve m\necho done",
        "vllm serve $(cat model)",
        "(vllm serve m)",
        "uv run vllm serve m",
        "uvicorn app:x",
    ],
)
def test_a_command_with_more_to_do_is_left_alone(command: str) -> None:
    assert exec_serve(command) == command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m \\\n  --a 1 \\\n", "vllm serve m \\\n  --a 1 --seed 42 '--x={\"a b\":1}'"),
        ("vllm serve m --a 1\n", "vllm serve m --a 1 --seed 42 '--x={\"a b\":1}'"),
        ("vllm serve m # why\n", "vllm serve m --seed 42 '--x={\"a b\":1}' # why"),
        ("vllm serve m | tee log", "vllm serve m --seed 42 '--x={\"a b\":1}' | tee log"),
        ("uvicorn a:b", "uvicorn a:b --seed 42 '--x={\"a b\":1}'"),
    ],
)
def test_extra_arguments_reach_the_server(command: str, expected: str) -> None:
    assert append_arguments(command, ["--seed", "42", '--x={"a b":1}']) == expected
