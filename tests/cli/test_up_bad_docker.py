"""Bad input on a real engine: a clear error, an exit code by kind, nothing lost and nothing left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time

import docker
import pytest

from spark_vllm_docker.engine.docker import DockerEngine
from tests.conftest import CommandLine, Done, RecipeWriter

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("no_leftovers", "stand_in_image")]


def last_lines(done: Done) -> tuple[str, str]:
    lines = done.err.splitlines()
    return lines[-2], lines[-1]


@pytest.mark.parametrize("after_s", [0, 3, pytest.param(30, id="30")])
def test_a_server_that_ends(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine, after_s: float
) -> None:
    log = "fail-mamba-align-block-size.log"
    steps = [["play", log, after_s], ["exit", 1]]
    up = cli("up", str(write_recipe(steps=steps)), "-d")
    assert up.code == 5
    assert "the server ended in phase kv-cache" in up.err
    assert "(exit code 1)" in up.err
    cause, fix = last_lines(up)
    assert cause == (
        "cause: A Mamba block does not fit in the token budget. The block of this hybrid model is "
        "4096 tokens, and one step may take 2048: no step could ever hold a block. (EngineCore: "
        "AssertionError: In Mamba cache align mode, block_size (4096) must be <= "
        "max_num_batched_tokens (2048).)"
    )
    assert fix.startswith(
        "fix: --max-num-batched-tokens 8192; "
        "spark-recipe rules mamba-align-block-size-gt-batched-tokens; "
    )
    # The container and its log stay until `down`.
    deployed = docker_engine.find("sr-test")
    assert deployed is not None
    assert deployed.state == "exited"
    assert "In Mamba cache align mode" in cli("logs", "sr-test").out
    assert cli("health", "sr-test").code == 5
    assert "exited (1)" in cli("ps").out


def test_exit_code_zero_is_a_death_too(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    steps = [["play", "kill-enginecore-while-serving.log", 0.3], ["exit", 0]]
    up = cli("up", str(write_recipe(steps=steps)), "-d", "--json")
    assert up.code == 5
    result = up.json()
    assert (result["ok"], result["exit_code"]) == (False, 5)
    error = result["error"]
    assert isinstance(error, dict)
    assert error["kind"] == "ServerFailed"
    assert "was killed and left no error of its own" in error["cause"]


def test_death_after_ready_is_told_too(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    steps = [["serve"], ["sleep", 1.5], ["kill"]]
    up = cli("up", str(write_recipe(steps=steps)))
    assert up.code == 5
    assert "ready: sr-test" in up.err
    assert "the server ended in phase ready" in up.err


def test_killed_with_137(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    process = cli.start("up", str(write_recipe(steps=[["print", "loading"], ["hang"]])), "-d")
    end = time.monotonic() + 20
    while not ((d := docker_engine.find("sr-test")) and d.state == "running"):
        assert time.monotonic() < end
        time.sleep(0.05)
    docker_engine.signal(d.id, "SIGKILL")
    _, err = process.communicate(timeout=20)
    assert process.returncode == 5
    assert "(exit code 137)" in err
    assert err.splitlines()[-2].startswith("cause: SIGKILL from outside")


def test_a_child_that_the_kernel_killed_is_named(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    lost = (
        "(APIServer pid=7) RuntimeError: Engine core initialization failed. See root cause above. "
    )
    steps = [["sleep", 3], ["hog", 400], ["print", f"{lost}Failed core proc(s): {{}}"], ["exit", 1]]
    process = cli.start("up", str(write_recipe(steps=steps)), "-d")
    end = time.monotonic() + 20
    while not ((d := docker_engine.find("sr-test")) and d.state == "running"):
        assert time.monotonic() < end
        time.sleep(0.05)
    with contextlib.closing(docker.from_env()) as client:
        client.api.update_container(d.id, mem_limit="100m", memswap_limit="100m")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5, err
    cause, fix = err.splitlines()[-2:]
    assert cause.startswith("cause: the kernel killed a process of the server: out of memory (")
    assert fix.startswith("fix: lower gpu_memory_utilization")
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
        assert re.search(r"\(python3, process \d+, held 0\.\d GiB\)", cause), cause
    told = cli("diagnose", "sr-test")
    assert (told.code, "cause: the kernel killed a process" in told.out) == (1, True), told.out


def test_a_hang_before_the_port_opens_is_a_stall(
    cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    steps = [["play", "fail-no-weights.log", 0.1], ["hang"]]
    up = cli("up", str(write_recipe(steps=steps, stall_timeout_s=3)), "-d")
    assert up.code == 5
    assert "stalled in phase load" in up.err
    cause, fix = last_lines(up)
    wanted = "cause: no log line, no CPU time, no disk traffic, no growth of the caches for "
    assert cause.startswith(wanted)
    assert fix.startswith("fix: stall_timeout_s in the recipe is the limit")


def test_silence_at_work_is_no_stall(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    steps = [["spin", 6], ["serve"]]
    assert cli("up", str(write_recipe(steps=steps, stall_timeout_s=3)), "-d").code == 0


def test_a_cache_that_fills_is_no_stall(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    recipe = str(write_recipe(steps=[["sleep", 14], ["serve"]], stall_timeout_s=6))
    up = cli.start("up", recipe, "-d", "--json")
    blobs = cli.home / ".cache/huggingface/hub/models--some--model/blobs"
    weights = blobs / "1.incomplete"
    while up.poll() is None:
        blobs.mkdir(parents=True, exist_ok=True)
        with weights.open("ab") as file:
            file.write(b"x" * (2 << 20))
        time.sleep(0.3)
    out, err = up.communicate()
    assert up.returncode == 0, out + err
    assert "the caches grew by " in out


def test_the_total_limit(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    up = cli("up", str(write_recipe(steps=[["hang"]])), "-d", "--timeout", "2")
    assert up.code == 6
    assert "spark-recipe wait sr-test" in up.err


def test_200_mb_without_a_line_end(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    steps = [["blob", 200_000_000], ["print", "end"], ["serve"]]
    up = cli("up", str(write_recipe(steps=steps)), "-d", timeout=300)
    assert up.code == 0, up.err


def test_health_is_200_but_another_model_is_listed(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    up = cli("up", str(write_recipe(steps=[["list", "other"], ["serve"]])), "-d")
    assert up.code == 1
    assert last_lines(up)[0] == "cause: /v1/models lists other; the recipe serves m"
    assert docker_engine.find("sr-test") is not None
    assert cli("health", "sr-test").code == 1


def test_health_is_200_but_generation_fails(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    up = cli("up", str(write_recipe(steps=[["answer", 500], ["serve"]])), "-d")
    assert up.code == 1
    assert "cause: /v1/chat/completions answered 500: the stand-in refuses" in up.err


def test_a_command_that_the_image_does_not_have(
    cli: CommandLine, write_recipe: RecipeWriter
) -> None:
    up = cli("up", str(write_recipe(command="no-such-program --port {port} --host {host}")), "-d")
    assert up.code == 5
    assert "cause: /bin/bash: line 3: no-such-program: command not found" in up.err


def test_no_engine(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    cli.environ["DOCKER_HOST"] = "unix:///nowhere/docker.sock"
    for arguments in (["up", str(write_recipe()), "-d"], ["ps"], ["down", "--all"], ["logs", "x"]):
        done = cli(*arguments)
        assert done.code == 4
        assert "no container engine answers at unix:///nowhere/docker.sock" in done.err
        assert "--engine process" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user to be forbidden")
def test_a_socket_without_permission(
    write_recipe: RecipeWriter, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # As "nobody": the socket is there and may not be opened.
    code = (
        "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "import sys; from spark_vllm_docker.cli.entry import run\n"
        "sys.exit(run(['ps', '--engine', 'docker']))\n"
    )
    warm = "from spark_vllm_docker.cli import ps_verb, engines, screens\nimport spark_vllm_docker.engine.docker, "
    warm += "spark_vllm_docker.launcher.up, spark_vllm_docker.cli.group, spark_vllm_docker.cli.trouble\n"
    done = subprocess.run(
        [sys.executable, "-c", warm + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "this user may not open unix:///var/run/docker.sock" in done.stderr
    assert "usermod -aG docker" in done.stderr


def test_an_image_that_nobody_has(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        registry = f"127.0.0.1:{closed.getsockname()[1]}"
        up = cli("up", str(write_recipe(container=f"{registry}/no/such:1")), "-d")
    assert up.code == 4
    assert f"{registry}/no/such:1" in up.err
    assert docker_engine.find("sr-test") is None


def test_a_name_taken_by_a_foreign_container(
    cli: CommandLine, write_recipe: RecipeWriter, stand_in_image: str
) -> None:
    run = ["docker", "create", "--name", "sr-test", "--entrypoint", "true", stand_in_image]
    subprocess.run(run, check=True, capture_output=True)
    try:
        for arguments in ([], ["--replace"]):
            up = cli("up", str(write_recipe(steps=[["serve"]])), "-d", *arguments)
            assert up.code == 4
            assert "a container named sr-test exists, and spark-recipe did not make it" in up.err
        inspect = subprocess.run(["docker", "inspect", "sr-test"], check=False, capture_output=True)
        assert inspect.returncode == 0
    finally:
        subprocess.run(["docker", "rm", "-f", "sr-test"], check=True, capture_output=True)


def test_a_port_taken_by_a_process(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine, port: int
) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        up = cli("up", str(write_recipe(steps=[["serve"]])), "-d")
    assert up.code == 4
    assert f"port {port} is taken by the process python" in up.err.replace("pytest", "python")
    assert f"(pid {os.getpid()})" in up.err
    assert docker_engine.find("sr-test") is None


def test_a_port_taken_by_a_deployment_and_by_a_container(
    cli: CommandLine,
    write_recipe: RecipeWriter,
    docker_engine: DockerEngine,
    stand_in_image: str,
    port: int,
) -> None:
    assert cli("up", str(write_recipe("sr-test-one", steps=[["serve"]])), "-d").code == 0
    up = cli("up", str(write_recipe("sr-test-two", steps=[["serve"]])), "-d")
    assert up.code == 4
    assert (
        f"port {port} is taken by the deployment sr-test-one (spark-recipe down sr-test-one)"
        in up.err
    )
    assert docker_engine.find("sr-test-two") is None
    cli("down", "sr-test-one")
    run = [
        "docker",
        "run",
        "-d",
        "--name",
        "foreign",
        "-p",
        f"127.0.0.1:{port}:80",
        "--entrypoint",
        "sleep",
    ]
    subprocess.run([*run, stand_in_image, "60"], check=True, capture_output=True)
    try:
        up = cli("up", str(write_recipe("sr-test-two", steps=[["serve"]])), "-d")
        assert (up.code, f"port {port} is taken by another container" in up.err) == (4, True)
    finally:
        subprocess.run(["docker", "rm", "-f", "foreign"], check=True, capture_output=True)


def test_gpus_without_an_nvidia_runtime(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    if docker_engine.can_use_gpus():
        pytest.skip("this engine has an NVIDIA runtime")
    recipe = write_recipe(steps=[["serve"]], gpus="all")
    up = cli("up", str(recipe), "-d")
    assert up.code == 4
    assert "has no NVIDIA runtime" in up.err
    assert "nvidia-container-toolkit" in up.err
    assert "--no-gpu" in up.err
    assert docker_engine.find("sr-test") is None
    assert cli("up", str(recipe), "-d", "--no-gpu").code == 0


def test_the_engines_own_words_about_gpus(docker_engine: DockerEngine, stand_in_image: str) -> None:
    """When the check before does not know better, the start itself says it in our words."""
    if docker_engine.can_use_gpus():
        pytest.skip("this engine has an NVIDIA runtime")
    from spark_vllm_docker.errors import NoGpuSupport
    from spark_vllm_docker.render.spec import ContainerSpec, Gpus

    spec = ContainerSpec(
        "sr-test-gpu",
        stand_in_image,
        "/bin/true",
        (),
        gpus=Gpus(),
        labels=(("spark-recipe.recipe", "g"),),
    )
    container_id = docker_engine.create(spec, {})
    with pytest.raises(NoGpuSupport, match="could not select device driver"):
        docker_engine.start(container_id)


def test_a_container_that_cannot_start_is_not_left(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    recipe = write_recipe(steps=[["serve"]], volumes=["/proc/no/such/folder:/x"])
    up = cli("up", str(recipe), "-d")
    assert up.code == 4
    assert docker_engine.find("sr-test") is None


def test_an_end_and_a_flood_at_once(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    """The last lines are not lost when the log is long and the exit is sudden."""
    steps = [["flood", 50_000], ["play", "fail-unknown-flag.log", 0], ["exit", 2]]
    up = cli("up", str(write_recipe(steps=steps)), "-d")
    assert up.code == 5
    assert "(vllm: error: unrecognized arguments: --no-such-flag 1)" in up.err


def test_secrets_in_the_log_are_masked(cli: CommandLine, write_recipe: RecipeWriter) -> None:
    cli.environ["HF_TOKEN"] = "hf_abcdefgh"
    up = cli(
        "up",
        str(write_recipe(steps=[["print", "token hf_abcdefgh!"], ["serve"], ["sleep", 1]])),
        "-d",
        "--logs",
    )
    assert "token ********!" in up.err
    assert "hf_abcdefgh" not in cli("logs", "sr-test").out


def test_ctrl_c_in_a_pull_or_build_is_clean(
    cli: CommandLine, write_recipe: RecipeWriter, docker_engine: DockerEngine
) -> None:
    image = "spark-recipe-tests/slow:1"
    subprocess.run(["docker", "rmi", "-f", image], capture_output=True, check=False)
    recipe = write_recipe(steps=[["serve"]], container=image, build="context")
    (recipe.parent / "context").mkdir()
    # No layer of an earlier build is like it, so that it is slow each time.
    once = f"RUN sleep 20 # {time.time_ns()}"
    dockerfile = f"FROM spark-recipe-tests/stand-in:1\n{once}\n"
    (recipe.parent / "context/Dockerfile").write_text(dockerfile)
    process = cli.start("up", str(recipe))
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("building"):
            break
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=15)
    assert process.returncode == 130
    assert docker_engine.find("sr-test") is None
