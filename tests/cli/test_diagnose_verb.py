"""`diagnose` on files and pipes, and what it must never show."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys

import pytest

from spark_vllm_docker.diagnose.foreign import strip_prefix
from spark_vllm_docker.health.log_lines import parse_line
from spark_vllm_docker.render.masking import mask_text
from tests.conftest import CommandLine, Done

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
    assert "zcat FILE | spark-recipe diagnose -" in done.err
    assert "bzcat" in piped(cli, bz2.compress(FAILURE.encode())).err
    assert "is no file" in cli("diagnose", "/dev/full").err


def piped(cli: CommandLine, data: bytes) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "spark_vllm_docker", "diagnose", "-"],
        input=data,
        capture_output=True,
        env=cli.env(),
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_log_with_a_mark_of_its_encoding_is_read(cli: CommandLine, encoding: str) -> None:
    done = piped(cli, FAILURE.encode(encoding))
    assert (done.code, "No memory is left for the KV cache" in done.out) == (1, True)


def test_a_closed_input_is_said(cli: CommandLine) -> None:
    command = [sys.executable, "-m", "spark_vllm_docker", "diagnose", "-"]
    done = subprocess.run(
        ["bash", "-c", '"$@" <&-', "bash", *command],
        capture_output=True,
        text=True,
        env=cli.env(),
        check=False,
    )
    assert (done.returncode, "standard input is closed" in done.stderr) == (1, True)


def test_a_folder_of_the_name_hides_no_deployment(cli: CommandLine) -> None:
    (cli.home / "mine").mkdir()
    assert "there is no deployment 'mine'" in cli("diagnose", "mine", "--engine", "process").err


def test_a_line_beside_an_unknown_error_is_told_as_such(cli: CommandLine) -> None:
    (cli.home / "a.log").write_text(
        "(EngineCore pid=9) ERROR 11-30 12:00:00 [x.py:1] No module named 'triton_kernels'\n"
        "(EngineCore pid=9) Traceback (most recent call last):\n"
        "(EngineCore pid=9) ValueError: The frobnicator 7 is broken\n"
    )
    rows = cli("diagnose", "a.log").out.splitlines()
    assert rows[0].startswith("no rule knows this failure")
    assert rows[-2] == "beside it in the log, and perhaps of no weight:"


PREFIXES = [
    "web.1.abc123@node    | ",
    "2026-11-30T12:00:00+0000 spark vllm[12]: ",
    "Nov 30 12:00:00 spark docker[12]: ",
    "Nov 30 12:00:00 spark vllm: ",
    "pod-1 container-1 ",
    "[pod/a/b] ",
    "2026-11-30T12:00:00.123456789Z stderr F ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_lines_are_known_behind_what_other_tools_put_before_them(prefix: str) -> None:
    assert parse_line(strip_prefix(prefix + FAILURE.strip())).process == "EngineCore"


def test_a_log_file_of_docker_is_read() -> None:
    line = json.dumps({"log": FAILURE, "stream": "stderr", "time": "2026-11-30T12:00:00Z"})
    assert parse_line(strip_prefix(line)).message == FAILURE.strip().partition(") ")[2]


@pytest.mark.parametrize(
    ("line", "process", "level"),
    [
        (
            "(RayWorkerWrapper pid=9, ip=10.0.0.1) ERROR 11-30 12:00:00 [x.py:1] a",
            "RayWorkerWrapper",
            "ERROR",
        ),
        ("(VllmWorker rank=0 pid=12) INFO 11-30 12:00:00 [x.py:1] a", "VllmWorker", "INFO"),
        ("ERROR 11-30 12:00:00 core.py:1] a", "", "ERROR"),
        ("INFO 2026-11-30 12:00:00,123 [x.py:1] a", "", "INFO"),
        ("WARNING 11-30 12:00:00.123 [x.py:1] a", "", "WARNING"),
    ],
)
def test_headers_of_other_releases_are_known(line: str, process: str, level: str) -> None:
    assert parse_line(line) == (process, level, "a")


@pytest.mark.parametrize(
    ("line", "secret"),
    [
        ("ghp_abcdefghijklmnopqrst0123", "ghp_abcdefghijklmnopqrst0123"),
        ("key sk-proj-abcdefgh12345678", "sk-proj-abcdefgh12345678"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("'api_key': ['mysecretkey'], 'port': 8000", "mysecretkey"),
        ('{"password": "hunter22"}', "hunter22"),
        ("password: hunter22", "hunter22"),
        ("'hf_token': 'whatever1'", "whatever1"),
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
