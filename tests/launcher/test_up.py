"""The order of the steps and the rule of cleaning up, on the recorder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_vllm_docker.engine.recorder import RecorderEngine
from spark_vllm_docker.errors import EngineError, NameTaken, NoGpuSupport, SpecDiffers
from spark_vllm_docker.events import Note
from spark_vllm_docker.health.phases import PhaseClock
from spark_vllm_docker.launcher.cleaning import Cleaning
from spark_vllm_docker.launcher.images import ImageSource
from spark_vllm_docker.launcher.start import Launch, UpRequest, start_deployment
from spark_vllm_docker.launcher.targets import choose_target
from spark_vllm_docker.recipe.load import parse_recipe
from spark_vllm_docker.recipe.overrides import Override, Overrides
from spark_vllm_docker.render.build import build_deployment
from spark_vllm_docker.render.command import LaunchOptions
from spark_vllm_docker.render.deployment import Deployment
from spark_vllm_docker.render.spec import ContainerSpec

RECIPE = parse_recipe(
    'recipe_version: "1"\nname: rec\ncontainer: i\ndefaults: {port: 8000}\n'
    "command: vllm serve m --port {port}\n",
    Path("x/rec-file.yaml"),
)


def deployment(*sets: tuple[str, str]) -> Deployment:
    overrides = Overrides(tuple(Override(name, value, "--set") for name, value in sets))
    return build_deployment(RECIPE, LaunchOptions(overrides=overrides), {"HOME": "/home/u"})


def up(
    engine: RecorderEngine,
    tmp_path: Path,
    what: Deployment | None = None,
    *,
    replace: bool = False,
    keep: bool = False,
) -> list[object]:
    events: list[object] = []
    made = what or deployment()
    request = UpRequest(
        made,
        ImageSource("i", None, None),
        {"XDG_STATE_HOME": str(tmp_path)},
        wait=False,
        replace=replace,
        keep=keep,
    )
    clock = PhaseClock(events.append, time.monotonic())
    with Cleaning(engine, made.spec.name, events.append, keep=keep) as cleaning:
        start_deployment(Launch(engine, request, events.append, clock), cleaning)
        cleaning.release()
    return events


def verbs(engine: RecorderEngine) -> list[str]:
    return [verb for verb, _ in engine.asked]


def test_create_then_start(tmp_path: Path) -> None:
    engine = RecorderEngine()
    up(engine, tmp_path)
    assert verbs(engine) == ["create", "start"]
    spec = engine.asked[0][1]
    assert isinstance(spec, ContainerSpec)
    assert spec == deployment().spec


def test_the_same_spec_again_asks_nothing(tmp_path: Path) -> None:
    engine = RecorderEngine()
    up(engine, tmp_path)
    events = up(engine, tmp_path)
    assert verbs(engine) == ["create", "start"]
    assert Note("rec is running already with this spec") in events


def test_another_spec_is_refused_or_replaces(tmp_path: Path) -> None:
    engine = RecorderEngine()
    up(engine, tmp_path)
    with pytest.raises(SpecDiffers, match="another spec"):
        up(engine, tmp_path, deployment(("port", "9")))
    assert verbs(engine) == ["create", "start"]
    up(engine, tmp_path, deployment(("port", "9")), replace=True)
    assert verbs(engine) == ["create", "start", "stop", "remove", "create", "start"]


def test_what_ended_is_replaced_and_its_log_kept(tmp_path: Path) -> None:
    engine = RecorderEngine()
    up(engine, tmp_path)
    engine.signal("rec", "SIGKILL")
    events = up(engine, tmp_path)
    (note,) = [event for event in events if isinstance(event, Note)]
    assert "its log is kept in" in note.text
    assert len(list((tmp_path / "spark-recipe/logs").glob("rec.*.log"))) == 1


def test_only_the_last_logs_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "spark-recipe/logs"
    folder.mkdir(parents=True)
    for number in range(9):
        (folder / f"rec.2020010{number}-000000.log").touch()
    engine = RecorderEngine()
    up(engine, tmp_path)
    engine.signal("rec", "SIGKILL")
    up(engine, tmp_path)
    assert len(list(folder.iterdir())) == 5


def test_a_foreign_container_of_that_name_is_never_removed(tmp_path: Path) -> None:
    engine = RecorderEngine()
    foreign = dataclasses.replace(deployment().spec, labels=())
    engine.create(foreign, {})
    for replacing in (False, True):
        with pytest.raises(NameTaken, match="did not make it"):
            up(engine, tmp_path, replace=replacing)
    assert verbs(engine) == ["create"]


class FailingStart(RecorderEngine):
    """An engine whose start goes wrong as `error` says."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def start(self, container_id: str) -> None:
        raise self.error


def test_a_container_that_did_not_start_is_removed(tmp_path: Path) -> None:
    engine = FailingStart(EngineError("no"))
    with pytest.raises(EngineError, match="no"):
        up(engine, tmp_path)
    assert verbs(engine) == ["create", "remove"] or verbs(engine) == ["create", "stop", "remove"]


@pytest.mark.parametrize("keep", [False, True])
def test_an_interrupt_removes_what_was_made_unless_kept(tmp_path: Path, keep: bool) -> None:
    engine = FailingStart(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        up(engine, tmp_path, keep=keep)
    assert (engine.find("rec") is not None) is keep


class InterruptedCreate(RecorderEngine):
    """Ctrl-C arrives when the engine has made the container and we do not know its id yet."""

    def create(self, spec: ContainerSpec, environ: Mapping[str, str]) -> str:
        super().create(spec, environ)
        raise KeyboardInterrupt


def test_an_interrupt_inside_create_leaves_nothing(tmp_path: Path) -> None:
    engine = InterruptedCreate()
    with pytest.raises(KeyboardInterrupt):
        up(engine, tmp_path)
    assert engine.find("rec") is None


class WithoutGpus(RecorderEngine):
    def can_use_gpus(self) -> bool:
        return False


def test_gpus_are_asked_for_before_anything_is_made(tmp_path: Path) -> None:
    engine = WithoutGpus()
    with pytest.raises(NoGpuSupport, match="rec wants GPUs"):
        up(engine, tmp_path)
    assert verbs(engine) == []


def test_a_deployment_is_meant_by_container_recipe_or_file(tmp_path: Path) -> None:
    engine = RecorderEngine()
    up(engine, tmp_path)
    ours = engine.list_ours()
    for name in ("rec", "rec-file", "recipes/rec-file.yaml"):
        assert choose_target(ours, name).name == "rec"
    with pytest.raises(EngineError, match="there is no deployment 'rex'; did you mean 'rec'"):
        choose_target(ours, "rex")
    with pytest.raises(EngineError, match="nothing is deployed"):
        choose_target([], "rec")


def test_logs_of_a_name_that_begins_alike_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "spark-recipe/logs"
    folder.mkdir(parents=True)
    for number in range(6):
        (folder / f"rec.1.2020010{number}-000000.log").touch()
    engine = RecorderEngine()
    up(engine, tmp_path)
    engine.signal("rec", "SIGKILL")
    up(engine, tmp_path)
    assert len(list(folder.glob("rec.1.*.log"))) == 6


def test_a_name_taken_meanwhile_is_not_cleaned_away(tmp_path: Path) -> None:
    class Raced(RecorderEngine):
        def create(self, spec: ContainerSpec, environ: Mapping[str, str]) -> str:
            super().create(deployment().spec, environ)  # somebody else was faster
            raise NameTaken("taken")

    engine = Raced()
    with pytest.raises(NameTaken):
        up(engine, tmp_path)
    assert engine.find("rec") is not None


def test_two_recipes_with_one_container_name_do_not_replace_each_other(tmp_path: Path) -> None:
    engine = RecorderEngine()
    up(engine, tmp_path)
    text = 'recipe_version: "1"\nname: "rec!"\ncontainer: i\ndefaults: {port: 8000}\ncommand: vllm serve m --port {port}\n'
    other = build_deployment(
        parse_recipe(text, Path("x/other.yaml")), LaunchOptions(), {"HOME": "/h"}
    )
    assert other.spec.name == "rec"
    with pytest.raises(NameTaken, match="the recipe rec is deployed"):
        up(engine, tmp_path, other, replace=True)
