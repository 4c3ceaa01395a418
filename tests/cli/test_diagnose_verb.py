"""`diagnose` on files and pipes, and what it must never show."""

from __future__ import annotations

import gzip
import subprocess
import sys

import pytest

from spark_vllm_docker.render.masking import mask_text
from tests.conftest import CommandLine

FAILURE = "(EngineCore pid=9) ValueError: No available memory for the cache blocks. Try more.\n"


def test_a_file_a_pipe_and_json(cli: CommandLine) -> None:
    (cli.home / "a.log").write_text(FAILURE)
    done = cli("diagnose", "a.log")
    assert done.code == 1
    assert done.out.splitlines()[0] == (
        "no-available-memory-for-cache-blocks: No memory is left for the KV cache"
    )
    found = cli("diagnose", "a.log", "--json").json()["diagnoses"]
    assert isinstance(found, list)
    assert found[0]["id"] == "no-available-memory-for-cache-blocks"
    piped = subprocess.run(
        [sys.executable, "-m", "spark_vllm_docker", "diagnose", "-"],
        input=FAILURE,
        capture_output=True,
        text=True,
        env=cli.env(),
        check=False,
    )
    assert (piped.returncode, piped.stdout) == (1, done.out)


def test_nothing_wrong_is_said(cli: CommandLine) -> None:
    (cli.home / "a.log").write_text("")
    assert "it is empty" in cli("diagnose", "a.log").out
    (cli.home / "a.log").write_text("INFO all fine\n")
    done = cli("diagnose", "a.log")
    assert (done.code, "1 lines, no failure is known in it" in done.out) == (0, True)


@pytest.mark.parametrize("source", ["nowhere.log", "/no/such/file", "folder/x"])
def test_a_file_that_is_not_there(cli: CommandLine, source: str) -> None:
    done = cli("diagnose", source)
    assert (done.code, f"{source} cannot be read: no such file" in done.err) == (1, True)


def test_what_is_no_text(cli: CommandLine) -> None:
    assert "is a directory" in cli("diagnose", ".").err
    (cli.home / "a.log").write_bytes(bytes(range(256)) * 100)
    assert "is no text" in cli("diagnose", "a.log").err
    (cli.home / "a.log.gz").write_bytes(gzip.compress(FAILURE.encode()))
    done = cli("diagnose", "a.log.gz")
    assert "is compressed" in done.err
    assert "zcat a.log.gz | spark-recipe diagnose -" in done.err


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("HF_TOKEN=hf_abcdefghijklmnop", "hf_abcdefghijklmnop"),
        ("Authorization: Bearer abc.def-ghi_123", "abc.def-ghi_123"),
        ("vllm serve m --api-key sk-12345", "sk-12345"),
        ("https://user:hunter22@host/x", "hunter22"),
        ("token hf_abcdefghijklmnop is wrong", "hf_abcdefghijklmnop"),
    ],
)
def test_secrets_are_not_shown(cli: CommandLine, line: str, secret: str) -> None:
    assert secret not in mask_text(line)
    log = f"(EngineCore pid=1) Traceback (most recent call last):\n(EngineCore pid=1) OddError: {line}\n"
    (cli.home / "a.log").write_text(log)
    for arguments in (("a.log",), ("a.log", "--json")):
        done = cli("diagnose", *arguments)
        assert done.code == 1
        assert "OddError" in done.out
        assert secret not in done.out


def test_an_error_line_without_a_traceback_counts(cli: CommandLine) -> None:
    (cli.home / "a.log").write_text(
        "(EngineCore pid=1) ERROR 11-30 10:00:00 [a.py:1] zebra.ZebraError: stripes\n"
        "(EngineCore pid=1) ERROR 11-30 10:00:01 [a.py:1] Worker proc W died unexpectedly\n"
    )
    done = cli("diagnose", "a.log")
    assert done.code == 1
    assert "ZebraError: stripes" in done.out
    assert "A worker was killed" not in done.out


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("Killed", "process-killed-line"),
        ("!!!!!!! Segfault encountered !!!!!!!", "segfault"),
        ("env: 'vllm': No such file or directory", "program-missing"),
    ],
)
def test_an_end_without_python(cli: CommandLine, line: str, rule: str) -> None:
    (cli.home / "a.log").write_text(f"INFO loading\n{line}\n")
    assert cli("diagnose", "a.log").out.startswith(f"{rule}: ")
