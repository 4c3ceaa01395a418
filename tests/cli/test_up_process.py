"""`up` without a container engine: the server is a supervised child of this machine."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import STAND_IN, CommandLine, RecipeWriter


@pytest.fixture
def process_cli(cli: CommandLine) -> Iterator[CommandLine]:
    cli.environ = {"SPARK_RECIPE_ENGINE": "process", "PATH": f"{STAND_IN}:{os.environ['PATH']}"}
    yield cli
    cli("down", "--all", "--grace", "0")


def test_from_recipe_to_down(
    process_cli: CommandLine, write_recipe: RecipeWriter, port: int
) -> None:
    recipe = write_recipe(steps=[["play", "ok-tiny-llama-eager.log", 0.3], ["serve"]])
    up = process_cli("up", str(recipe), "-d")
    assert up.code == 0, up.err
    assert up.out == f"http://127.0.0.1:{port}/v1\n"
    assert process_cli("ps").out.splitlines()[1].split()[:2] == ["sr-test", "running"]
    assert process_cli("health", "sr-test").code == 0
    assert "Resolved architecture" in process_cli("logs", "sr-test").out
    assert "is running already" in process_cli("up", str(recipe), "-d").err
    assert process_cli("up", str(recipe), "-d", "--", "--x", "1").code == 1
    assert process_cli("up", str(recipe), "-d", "--replace", "--", "--x", "1").code == 0
    assert process_cli("down", "--all").out == "sr-test: down\n"
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))  # nothing listens any more


def test_it_listens_on_loopback_although_the_recipe_says_everywhere(
    process_cli: CommandLine, write_recipe: RecipeWriter, port: int
) -> None:
    assert process_cli("up", str(write_recipe(steps=[["serve"]])), "-d").code == 0
    table = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [row.split()[1] for row in table if row.split()[3] == "0A"]
    (address,) = [entry for entry in listening if entry.endswith(f":{port:04X}")]
    assert address.startswith("0100007F:")


def test_a_death_is_named(process_cli: CommandLine, write_recipe: RecipeWriter) -> None:
    steps = [["play", "fail-model-path-missing.log", 0.2], ["exit", 1]]
    up = process_cli("up", str(write_recipe(steps=steps)), "-d")
    assert up.code == 5
    assert "cause: huggingface_hub.errors.HFValidationError: Repo id must be in the form" in up.err
    assert "exited (1)" in process_cli("ps").out
    again = process_cli("up", str(write_recipe(steps=[["serve"]])), "-d")
    assert (again.code, "its log is kept in" in again.err) == (0, True)


def test_an_interrupt_while_loading_leaves_nothing(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    process = process_cli.start("up", str(write_recipe(steps=[["deaf"], ["hang"]])))
    end = time.monotonic() + 20
    while "running" not in process_cli("ps").out:
        assert time.monotonic() < end
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert process_cli("ps").out.splitlines()[1:] == []


def test_without_an_engine_ps_still_shows_processes(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    assert process_cli("up", str(write_recipe(steps=[["serve"]])), "-d").code == 0
    del process_cli.environ["SPARK_RECIPE_ENGINE"]
    process_cli.environ["DOCKER_HOST"] = "unix:///nowhere.sock"
    assert "sr-test" in process_cli("ps").out
    assert process_cli("down", "sr-test").code == 0
