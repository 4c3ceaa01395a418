"""`up` and its companions on a real engine, with a stand-in that plays recorded logs."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from spark_vllm_docker.engine.docker import DockerEngine
from tests.conftest import CommandLine, RecipeWriter, free_port

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("no_leftovers", "stand_in_image")]

OK_LOG = ["play", "ok-tiny-llama-compiled-cold.log", 0.5]
PHASES = [
    "pull",
    "create",
    "setup",
    "config",
    "load",
    "compile",
    "profile",
    "kv-cache",
    "api",
    "ready",
]


def events(out: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.splitlines()]


def ours(cli: CommandLine) -> list[str]:
    """Name and state of the deployments of this test: others may run on the same engine."""
    rows = [line.split() for line in cli("ps").out.splitlines()[1:]]
    return [f"{row[0]} {row[1]}" for row in rows if row[0].startswith("sr-test")]


def wait_for(condition: object, limit_s: float = 20) -> None:
    end = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_a_recipe_becomes_a_proven_server(
    cli: CommandLine, write_recipe: RecipeWriter, port: int
) -> None:
    recipe = write_recipe(steps=[OK_LOG, ["serve"]])
    up = cli("up", str(recipe), "-d")
    assert up.code == 0, up.err
    assert up.out == f"http://127.0.0.1:{port}/v1\n"
    shown = [line.split()[-1] for line in up.err.splitlines() if line.startswith("[")]
    assert [phase for phase in shown if phase in PHASES] == PHASES
    assert "proven    2 tokens" in up.err
    assert f"endpoint  http://127.0.0.1:{port}/v1   model m" in up.err

    ps = cli("ps").out.splitlines()
    columns = ["NAME", "STATE", "SINCE", "ENDPOINT", "MODEL", "IMAGE", "ENGINE"]
    assert ps[0].split() == columns
    assert ours(cli) == ["sr-test running"]
    assert "Resolved architecture: LlamaForCausalLM" in cli("logs", "sr-test").out
    assert len(cli("logs", "sr-test", "-n", "2").out.splitlines()) == 2
    health = cli("health", "sr-test")
    assert (health.code, "healthy: 2 tokens" in health.out) == (0, True)
    assert cli("wait", "sr-test", "--timeout", "10").code == 0
    assert cli("down", "sr-test").out == "sr-test: down\n"
    assert ours(cli) == []


def test_json_streams_lines_and_ends_with_a_result(
    cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    up = cli("up", str(write_recipe(steps=[OK_LOG, ["serve"]])), "-d", "--json")
    assert up.code == 0, up.err
    lines = events(up.out)
    assert {line["schema"] for line in lines} == {"spark-recipe/up@1"}
    assert [line["phase"] for line in lines if line["event"] == "phase"] == PHASES
    result = lines[-1]
    assert (result["event"], result["ok"], result["state"]) == ("result", True, "running")
    assert set(PHASES) == set(result["phases"])  # type: ignore[call-overload]
    for verb in ("ps", "health"):
        document = cli(verb, *(["sr-test"] if verb == "health" else []), "--json").json()
        assert document["schema"] == f"spark-recipe/{verb}@1"
    assert cli("logs", "sr-test", "--json").json()["name"] == "sr-test"
    assert cli("wait", "sr-test", "--json").json()["ok"] is True
    assert cli("down", "sr-test", "--json").json()["removed"] == ["sr-test"]


def test_the_same_spec_again_is_done_and_another_is_refused(
    cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    recipe = str(write_recipe(steps=[OK_LOG, ["serve"]]))
    first = cli("up", recipe, "-d", "--json").json()
    again = cli("up", recipe, "-d", "--json")
    assert again.code == 0
    assert "is running already with this spec" in again.out
    assert again.json()["started_at"] == first["started_at"]
    other = cli("up", recipe, "-d", "--", "--seed", "1")
    assert other.code == 1
    assert "sr-test is running with another spec" in other.err
    assert "--replace" in other.err
    replaced = cli("up", recipe, "-d", "--replace", "--", "--seed", "1")
    assert replaced.code == 0, replaced.err
    assert "its log is kept in" in replaced.err
    kept = list((cli.home / ".local/state/spark-recipe/logs").glob("sr-test.*.log"))
    assert len(kept) == 1
    assert "Resolved architecture" in kept[0].read_text()


def test_no_wait_returns_at_once_and_wait_waits(
    cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    recipe = str(write_recipe(steps=[["sleep", 2], OK_LOG, ["serve"]]))
    assert cli("up", recipe, "--no-wait").code == 0
    assert cli("health", "sr-test").code == 1
    late = cli("wait", "sr-test", "--timeout", "0.5")
    assert late.code == 6
    assert "the limit of 0.5 s has passed" in late.err
    assert cli("wait", "sr-test").code == 0


def test_two_recipes_run_side_by_side(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    one = write_recipe("sr-test-one", steps=[["serve"]])
    two = write_recipe(
        "sr-test-two", steps=[["serve"]], defaults={"port": free_port(), "host": "0.0.0.0"}
    )
    assert cli("up", str(one), "-d").code == 0
    assert cli("up", str(two), "-d").code == 0
    assert ours(cli) == ["sr-test-one running", "sr-test-two running"]
    assert cli("down", "sr-test-one").code == 0
    assert cli("health", "sr-test-two").code == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_while_loading_leaves_nothing(
    cli: CommandLine,
    write_recipe: RecipeWriter,
    docker_engine: DockerEngine,
    number: signal.Signals,
) -> None:
    recipe = write_recipe(steps=[["deaf"], ["print", "loading"], ["hang"]])
    process = cli.start("up", str(recipe))
    wait_for(lambda: (d := docker_engine.find("sr-test")) and d.state == "running")
    time.sleep(0.3)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "stopping sr-test" in err
    assert docker_engine.find("sr-test") is None


def test_keep_leaves_it_loading(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    process = cli.start("up", str(write_recipe(steps=[["sleep", 2], ["serve"]])), "--keep")
    wait_for(lambda: (d := docker_engine.find("sr-test")) and d.state == "running")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "kept: sr-test" in err) == (130, True)
    assert cli("wait", "sr-test").code == 0


def test_an_interrupt_after_ready_only_detaches(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    process = cli.start(
        "up", str(write_recipe(steps=[["serve"], ["sleep", 1], ["print", "request 1"]]))
    )
    lines = []
    assert process.stderr is not None
    for line in process.stderr:
        lines.append(line)
        if "request 1" in line:  # the log follows
            break
    assert any(line.startswith("ready: sr-test") for line in lines)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "detached; sr-test goes on" in err) == (0, True)
    deployed = docker_engine.find("sr-test")
    assert deployed is not None
    assert deployed.state == "running"


def test_down_from_elsewhere_is_no_failure(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    process = cli.start("up", str(write_recipe(steps=[["serve"]])))
    assert process.stderr is not None
    for line in process.stderr:
        if "endpoint" in line:
            break
    assert cli("down", "sr-test").code == 0
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "was stopped" in err) == (0, True)


def test_a_killed_up_leaves_what_the_next_one_finds(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    recipe = str(write_recipe(steps=[["sleep", 1], ["serve"]]))
    process = cli.start("up", recipe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: (d := docker_engine.find("sr-test")) and d.state == "running")
    process.kill()
    process.wait()
    assert cli("ps").out.count("sr-test") >= 1
    assert cli("up", recipe, "-d").code == 0


def test_a_port_open_to_the_network_gets_a_key(
    cli: CommandLine, write_recipe: RecipeWriter, port: int
) -> None:
    up = cli("up", str(write_recipe(steps=[["serve"]])), "-d", "--listen", "127.0.0.2")
    assert up.code == 0, up.err
    (key,) = [line.split()[2] for line in up.err.splitlines() if line.startswith("  api key")]
    assert key.startswith("sk-")
    assert f"http://127.0.0.2:{port}/v1" in up.out
    assert cli("health", "sr-test").code == 0  # takes the key from the engine
    for verb in (["ps"], ["logs", "sr-test"], ["ps", "--json"]):
        assert key not in cli(*verb).out


def test_a_build_folder_is_built_and_built_again_when_it_changes(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine, stand_in_image: str
) -> None:
    recipe = write_recipe(
        steps=[["serve"]], container="spark-recipe-tests/built:1", build="context"
    )
    context = recipe.parent / "context"
    context.mkdir()
    dockerfile = context / "Dockerfile"
    try:
        for content in (f"FROM {stand_in_image}\n", f"FROM {stand_in_image}\nLABEL again=yes\n"):
            dockerfile.write_text(content)
            up = cli("up", str(recipe), "-d", "--replace")
            assert (up.code, "building spark-recipe-tests/built:1" in up.err) == (0, True), up.err
            cli("down", "sr-test")
        found = docker_engine.find_image("spark-recipe-tests/built:1")
        assert found is not None
        assert found.labels["again"] == "yes"
        assert "building" not in cli("up", str(recipe), "-d").err
        dockerfile.write_text(f"FROM {stand_in_image}\nRUN echo told me why && false\n")
        failed = cli("up", str(recipe), "-d", "--replace")
        assert failed.code == 4
        assert "cannot be built" in failed.err
    finally:
        cli("down", "sr-test")
        subprocess.run(
            ["docker", "rmi", "-f", "spark-recipe-tests/built:1"], capture_output=True, check=False
        )


def test_down_touches_nothing_of_others(cli: CommandLine, stand_in_image: str) -> None:
    run = [
        "docker",
        "run",
        "-d",
        "--name",
        "somebody-elses",
        "--entrypoint",
        "sleep",
        stand_in_image,
        "60",
    ]
    subprocess.run(run, check=True, capture_output=True)
    try:
        named = cli("down", "somebody-elses")
        assert (named.code, "there is no deployment" in named.err) == (4, True)
        ps = subprocess.run(
            ["docker", "ps", "--format", "{{.Names}}"], check=True, capture_output=True, text=True
        )
        assert "somebody-elses" in ps.stdout
    finally:
        subprocess.run(["docker", "rm", "-f", "somebody-elses"], check=True, capture_output=True)


def test_a_full_recipe_round_trip_needs_no_terminal(
    cli: CommandLine, write_recipe: RecipeWriter, tmp_path: Path
) -> None:
    up = cli("up", str(write_recipe(steps=[OK_LOG, ["serve"]])), "-d", "--logs")
    assert "Resolved architecture" in up.err
    assert "\x1b" not in up.err + up.out
