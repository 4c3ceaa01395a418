"""One suite for all engines: what `engine/protocol.py` promises."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_vllm_docker.engine.process import ProcessEngine
from spark_vllm_docker.engine.protocol import Engine, Exit
from spark_vllm_docker.engine.recorder import RecorderEngine
from spark_vllm_docker.errors import NameTaken, NotDeployed
from spark_vllm_docker.render.spec import ContainerSpec

NAME = "spark-recipe-contract"
LABELS = (
    ("spark-recipe.endpoint", "http://127.0.0.1:1"),
    ("spark-recipe.recipe", "contract"),
    ("spark-recipe.served", '["m"]'),
    ("spark-recipe.spec", "0123"),
)


DOCKER = pytest.param("docker", marks=pytest.mark.docker)


def open_engine(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    opened: Engine
    if kind == "docker":
        opened = request.getfixturevalue("docker_engine")
        request.getfixturevalue("stand_in_image")
    elif kind == "process":
        opened = ProcessEngine(tmp_path / "state")
    else:
        opened = RecorderEngine()
    yield opened
    found = opened.find(NAME)
    if found is not None:
        opened.remove(found.id)


@pytest.fixture(params=[DOCKER, "process", "recorder"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    yield from open_engine(request.param, request, tmp_path)


@pytest.fixture(params=[DOCKER, "process"])
def running_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """The engines on which something runs; the recorder has no logs, exit codes or work of its own."""
    yield from open_engine(request.param, request, tmp_path)


def spec(script: str, **fields: object) -> ContainerSpec:
    return ContainerSpec(
        name=NAME,
        image="spark-recipe-tests/stand-in:1",
        entrypoint="/bin/bash",
        command=("-c", script),
        labels=LABELS,
        **fields,  # type: ignore[arg-type]
    )


def run(
    engine: Engine, script: str, environ: dict[str, str] | None = None, **fields: object
) -> str:
    container_id = engine.create(spec(script, **fields), {**os.environ, **(environ or {})})
    engine.start(container_id)
    return container_id


def test_it_says_what_it_is(engine: Engine) -> None:
    assert engine.check().kind == engine.kind


def test_life_of_a_container(engine: Engine) -> None:
    container_id = engine.create(spec("sleep 60"), os.environ)
    assert engine.inspect(container_id).state == "created"
    engine.start(container_id)
    running = engine.inspect(container_id)
    assert (running.state, running.exit, running.ours) == ("running", None, True)
    assert (running.recipe, running.spec_digest, running.served) == ("contract", "0123", ("m",))
    assert running.endpoint == "http://127.0.0.1:1"
    assert running.script == "sleep 60"
    assert abs(running.started_at - time.time()) < 30
    engine.stop(container_id, 0)
    ended = engine.inspect(container_id)
    assert ended.state == "exited"
    assert ended.exit is not None
    engine.remove(container_id)
    assert engine.find(NAME) is None
    engine.remove(container_id)  # twice is no error


def test_it_is_found_by_name_and_by_label(engine: Engine) -> None:
    assert engine.find(NAME) is None
    container_id = run(engine, "sleep 60")
    found = engine.find(NAME)
    assert found is not None
    assert found.id == container_id
    assert container_id in [d.id for d in engine.list_ours()]
    assert engine.find(NAME[:-1]) is None
    assert engine.find(container_id[:12] + "x") is None


def test_a_name_can_be_used_once(engine: Engine) -> None:
    run(engine, "sleep 60")
    with pytest.raises(NameTaken):
        engine.create(spec("true"), os.environ)


@pytest.mark.parametrize("code", [0, 1, 7])
def test_the_exit_code_is_told(running_engine: Engine, code: int) -> None:
    container_id = run(running_engine, f"sleep 0.2; exit {code}")
    assert list(running_engine.follow_exit(container_id)) == [Exit(code)]
    assert list(running_engine.follow_exit(container_id)) == [
        Exit(code)
    ]  # also when it has ended before
    assert running_engine.inspect(container_id).exit == Exit(code)


def test_a_signal_ends_it_with_128_and_its_number(engine: Engine) -> None:
    container_id = run(engine, "exec sleep 60")
    threading.Timer(0.2, engine.signal, (container_id, "SIGKILL")).start()
    (ended,) = engine.follow_exit(container_id)
    assert ended.code == 137


def test_the_log_is_followed_to_its_end(running_engine: Engine) -> None:
    container_id = run(running_engine, "echo one; sleep 0.3; echo two >&2; sleep 0.1; printf three")
    assert b"".join(running_engine.follow_log(container_id)) == b"one\ntwo\nthree"
    # Read again after its end, whole and in part.
    assert b"".join(running_engine.follow_log(container_id, follow=False)) == b"one\ntwo\nthree"
    assert b"".join(running_engine.follow_log(container_id, tail=2, follow=False)) == b"two\nthree"
    assert b"".join(running_engine.follow_log(container_id, tail=0, follow=False)) == b""


def test_streams_can_be_closed_from_another_thread(engine: Engine) -> None:
    container_id = run(engine, "echo x; sleep 60")
    for stream in (engine.follow_log(container_id), engine.follow_exit(container_id)):
        threading.Timer(0.3, stream.close).start()
        began = time.monotonic()
        list(stream)
        assert time.monotonic() - began < 5


def test_a_stop_waits_the_grace_time_and_then_kills(running_engine: Engine) -> None:
    deaf = "trap '' TERM; echo deaf; while true; do sleep 0.1; done"
    container_id = run(running_engine, deaf)
    next(iter(running_engine.follow_log(container_id)))
    began = time.monotonic()
    running_engine.stop(container_id, 1)
    assert 0.9 < time.monotonic() - began < 8
    assert running_engine.inspect(container_id).exit == Exit(137)


def test_what_the_main_process_leaves_behind_ends_with_it(running_engine: Engine) -> None:
    container_id = run(running_engine, "sleep 300 & echo started; exit 3")
    assert list(running_engine.follow_exit(container_id)) == [Exit(3)]
    assert (
        b"".join(running_engine.follow_log(container_id)) == b"started\n"
    )  # ends: nobody holds it open


def test_the_environment(running_engine: Engine) -> None:
    fields = {"env": (("A", "x y"),), "env_from_host": ("SECRET_A", "SECRET_NONE")}
    container_id = run(
        running_engine, 'echo "$A|$SECRET_A|${SECRET_NONE-unset}"', {"SECRET_A": "s"}, **fields
    )
    assert b"".join(running_engine.follow_log(container_id)) == b"x y|s|unset\n"


def test_activity_grows_with_work(running_engine: Engine) -> None:
    container_id = run(running_engine, "sleep 0.5; while true; do :; done")
    before = running_engine.activity(container_id)
    time.sleep(1.5)
    after = running_engine.activity(container_id)
    assert before is not None
    assert after is not None
    assert after.cpu_s - before.cpu_s > 0.2


def test_the_processes_are_those_of_this_machine(running_engine: Engine) -> None:
    container_id = run(running_engine, "sleep 31.5 & wait")
    found: list[bytes] = []
    for _ in range(50):
        pids = running_engine.processes(container_id)
        found = [(Path("/proc") / str(pid) / "cmdline").read_bytes() for pid in pids]
        if any(b"31.5" in words for words in found):
            return
        time.sleep(0.1)
    raise AssertionError(found)


def test_an_id_that_does_not_exist(engine: Engine) -> None:
    for ask in (engine.inspect, engine.follow_log, engine.follow_exit, engine.start):
        with pytest.raises(NotDeployed):
            ask("no-such-container")
    engine.stop("no-such-container", 0)
    engine.remove("no-such-container")
