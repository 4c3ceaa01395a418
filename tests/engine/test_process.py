"""What only the process engine must stand: supervisors that are killed, pids that are used again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from spark_vllm_docker.engine.process import ProcessEngine
from spark_vllm_docker.engine.process_table import Identity, group_is_alive, is_alive
from spark_vllm_docker.engine.protocol import Exit
from spark_vllm_docker.errors import EngineError, NoSpace
from spark_vllm_docker.render.spec import ContainerSpec


def spec(*command: str, entrypoint: str = "/bin/bash") -> ContainerSpec:
    labels = (("spark-recipe.recipe", "p"),)
    return ContainerSpec("p", "none", entrypoint, command or ("-c", "sleep 60"), labels=labels)


@pytest.fixture
def engine(tmp_path: Path):
    opened = ProcessEngine(tmp_path / "state")
    yield opened
    for deployed in opened.list_ours():
        opened.remove(deployed.id)


def pids(engine: ProcessEngine, tmp_path: Path) -> tuple[int, int]:
    data = json.loads((tmp_path / "state/p/running.json").read_text())
    return data["supervisor"]["pid"], data["server"]["pid"]


def test_a_command_that_does_not_exist(engine: ProcessEngine) -> None:
    engine.create(spec(entrypoint="/no/such/program"), os.environ)
    with pytest.raises(EngineError, match="No such file or directory: /no/such/program"):
        engine.start("p")


def test_the_server_outlives_a_killed_supervisor_and_can_be_stopped(
    engine: ProcessEngine, tmp_path: Path
) -> None:
    engine.create(spec(), os.environ)
    engine.start("p")
    supervisor, server = pids(engine, tmp_path)
    os.kill(supervisor, signal.SIGKILL)
    time.sleep(0.1)
    assert engine.inspect("p").state == "running"
    engine.stop("p", 1)
    assert engine.inspect("p").exit == Exit(137)
    assert not group_is_alive(server)


def test_a_pid_that_is_used_again_is_not_the_server(engine: ProcessEngine, tmp_path: Path) -> None:
    engine.create(spec(), os.environ)
    engine.start("p")
    me = os.getpid()
    path = tmp_path / "state/p/running.json"
    before = path.read_text()
    stranger = {"pid": me, "started_ticks": 1}
    path.write_text(json.dumps({"supervisor": stranger, "server": stranger}))
    assert not is_alive(Identity(me, 1))
    assert engine.inspect("p").state == "exited"
    engine.signal("p", "SIGTERM")  # would end this test run if it trusted the pid
    path.write_text(before)


def test_secrets_of_the_host_are_not_written(engine: ProcessEngine, tmp_path: Path) -> None:
    engine.create(spec(), {**os.environ, "HF_TOKEN": "hf_very_secret"})
    engine.start("p")
    for path in (tmp_path / "state/p").iterdir():
        assert "hf_very_secret" not in path.read_text()
        assert path.stat().st_mode & 0o077 == 0 or path.name in ("running.json", "exit.json")


def test_names_stay_inside_the_folder(engine: ProcessEngine) -> None:
    assert engine.find("../p") is None
    assert engine.find("") is None


def test_a_foreign_group_of_the_same_number_is_left_alone(
    engine: ProcessEngine, tmp_path: Path
) -> None:
    engine.create(spec(), os.environ)
    engine.start("p")
    engine.stop("p", 0)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        path = tmp_path / "state/p/running.json"
        data = json.loads(path.read_text())
        data["server"] = {"pid": other.pid, "started_ticks": 1}
        path.write_text(json.dumps(data))
        engine.stop("p", 0)
        engine.remove("p")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_broken_create_leaves_nothing(
    engine: ProcessEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spark_vllm_docker.engine.process._write_json", fail)
    with pytest.raises(NoSpace, match="is full"):
        engine.create(spec(), os.environ)
    assert list((tmp_path / "state").iterdir()) == []
    monkeypatch.undo()
    engine.create(spec(), os.environ)


def test_a_server_that_could_not_be_found_again_does_not_run(
    engine: ProcessEngine, tmp_path: Path
) -> None:
    engine.create(spec("-c", "sleep 47"), os.environ)
    (tmp_path / "state/p/running.part").mkdir()  # the supervisor cannot write its file
    with pytest.raises(EngineError, match="cannot be written"):
        engine.start("p")
    found = subprocess.run(["pgrep", "-f", "^sleep 47$"], capture_output=True, check=False)
    assert found.stdout == b""
