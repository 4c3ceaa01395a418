"""`up` without a container engine: the server is a supervised child of this machine."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import STAND_IN, CommandLine, RecipeWriter
from tests.media_files import make_speech, make_video


def wait_until(condition: Callable[[], bool], limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


@pytest.fixture(scope="session")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("up-process")
    return make_video(folder / "talk.mp4", 4, sound=make_speech(folder / "s.wav"))


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
    assert "cause: The model's folder is not in the container. '/models/none' is no folder" in (
        up.err
    )
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
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, out + err
    assert process_cli("ps").out.splitlines()[1:] == []


def test_without_an_engine_ps_still_shows_processes(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    assert process_cli("up", str(write_recipe(steps=[["serve"]])), "-d").code == 0
    del process_cli.environ["SPARK_RECIPE_ENGINE"]
    process_cli.environ["DOCKER_HOST"] = "unix:///nowhere.sock"
    assert "sr-test" in process_cli("ps").out
    assert process_cli("down", "sr-test").code == 0


@pytest.mark.parametrize("round_", range(3))
def test_two_ups_at_once_agree(
    process_cli: CommandLine, write_recipe: RecipeWriter, round_: int
) -> None:
    recipe = str(write_recipe(steps=[["sleep", 1], ["serve"]]))
    both = [process_cli.start("up", recipe, "-d") for _ in range(2)]
    ends = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert sum("is running already" in err for _, err in ends) == 1
    assert len(process_cli("ps").out.splitlines()) == 2


def test_a_second_signal_does_not_stop_the_clean_up(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    process = process_cli.start(
        "up", str(write_recipe(steps=[["deaf"], ["print", "x"], ["hang"]])), "--logs"
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line == "x\n":
            break
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process_cli("ps").out.splitlines()[1:] == []


def test_a_closed_terminal_leaves_nothing(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    process_cli.environ["TERM"] = "xterm"
    recipe = str(write_recipe(steps=[["print", "loading"], ["hang"]]))
    command = " ".join(process_cli.argv("up", recipe))
    terminal = subprocess.Popen(
        ["script", "-qec", command, "/dev/null"],
        cwd=process_cli.home,
        env=process_cli.env(),
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    wait_until(lambda: "running" in process_cli("ps").out)
    time.sleep(0.5)
    terminal.kill()  # its pseudo-terminal goes with it
    terminal.wait()
    wait_until(lambda: process_cli("ps").out.splitlines()[1:] == [])


def test_a_port_of_a_deployment_that_still_loads_is_taken(
    process_cli: CommandLine, write_recipe: RecipeWriter, port: int
) -> None:
    assert (
        process_cli("up", str(write_recipe("sr-test-one", steps=[["hang"]])), "--no-wait").code == 0
    )
    up = process_cli("up", str(write_recipe("sr-test-two", steps=[["serve"]])), "-d")
    assert (up.code, f"port {port} is taken by the deployment sr-test-one" in up.err) == (4, True)


def test_secrets_are_masked_everywhere(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    process_cli.environ["HF_TOKEN"] = "hf_from_the_host"
    trace = "Traceback (most recent call last):"
    steps = [
        ["print", trace],
        ["print", "ValueError: bad hf_from_the_host and pass_of_recipe"],
        ["exit", 1],
    ]
    recipe = write_recipe()
    data = json.loads(recipe.read_text())
    data["env"] = {"STAND_IN": json.dumps(steps), "DB_PASSWORD": "pass_of_recipe"}
    recipe.write_text(json.dumps(data))
    for done in (
        process_cli("up", str(recipe), "-d", "--logs"),
        process_cli("up", str(recipe), "-d", "--json"),
        process_cli("logs", "sr-test"),
        process_cli("wait", "sr-test"),
        process_cli("wait", "sr-test", "--json"),
        process_cli("show", str(recipe)),
        process_cli("render", str(recipe), "--json"),
    ):
        for secret in ("hf_from_the_host", "pass_of_recipe"):
            # The recipe's own text holds the steps that print it; those are not secret.
            assert (
                secret not in done.out.replace(json.dumps(steps)[1:-1], "") + done.err
                or "STAND_IN" in done.out
            )
    assert "********" in process_cli("wait", "sr-test").err


def test_a_process_engine_without_vllm_says_so(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    process_cli.environ["PATH"] = "/usr/bin:/bin"
    up = process_cli("up", str(write_recipe(steps=[["serve"]])), "-d")
    assert (up.code, "vllm is not on the PATH" in up.err) == (4, True)
    assert process_cli("ps").out.splitlines()[1:] == []


def test_one_name_on_two_engines_is_not_guessed() -> None:
    from spark_vllm_docker.engine.protocol import Deployed
    from spark_vllm_docker.errors import NotDeployed
    from spark_vllm_docker.launcher.targets import choose_target

    labels = {"spark-recipe.recipe": "r"}
    both = [Deployed("1", "r", "i", "running", labels), Deployed("2", "r", "i", "exited", labels)]
    with pytest.raises(NotDeployed, match="deployed on two engines"):
        choose_target(both, "r")


def test_the_key_of_a_running_server_is_not_replaced_by_a_new_one(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    recipe = str(write_recipe(steps=[["serve"]]))
    first = process_cli("up", recipe, "--no-wait", "--listen", "127.0.0.2")
    (key,) = [line.split()[2] for line in first.err.splitlines() if "api key" in line]
    again = process_cli("up", recipe, "-d", "--listen", "127.0.0.2")
    assert again.code == 0, again.err
    assert "api key" not in again.err
    assert "Authorization: Bearer $VLLM_API_KEY" in again.err
    assert key not in process_cli("logs", "sr-test").out


def test_a_server_that_ends_while_it_is_asked_is_named(
    process_cli: CommandLine, write_recipe: RecipeWriter, talk: Path
) -> None:
    recipe = str(write_recipe(steps=[["dies_of", "the end"], ["serve"]]))
    assert process_cli("up", recipe, "-d").code == 0
    done = process_cli("ask", "sr-test", "Is this the end?")
    assert (done.code, "error: sr-test ended with code" in done.err) == (5, True), done.err
    assert done.err.splitlines()[-1] == "fix: spark-recipe diagnose sr-test"
    assert process_cli("up", recipe, "-d").code == 0
    (process_cli.home / "p.txt").write_text("What is it? the end")
    watched = process_cli("watch", str(talk), "--prompt", "p.txt", "--out", "notes.md")
    assert (watched.code, "sr-test ended" in watched.err) == (5, True), watched.err
    assert process_cli("up", recipe, "-d").code == 0
    again = process_cli("watch", str(talk), "--prompt", "p.txt", "--out", "o.md", "--json")
    document = json.loads(again.out)
    assert (again.code, document["error"]["kind"]) == (5, "ServerFailed")


def test_a_server_that_is_asked_while_it_loads(
    process_cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    recipe = str(write_recipe(steps=[["sleep", 60], ["serve"]]))
    assert process_cli("up", recipe, "--no-wait").code == 0
    done = process_cli("ask", "sr-test", "Hello?")
    assert (done.code, "nothing answers there yet" in done.err) == (4, True), done.err
    assert done.err.splitlines()[-1] == "fix: spark-recipe wait sr-test"
