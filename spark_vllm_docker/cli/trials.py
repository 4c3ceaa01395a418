"""From a recipe to a trial of it, perhaps on another image."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_vllm_docker.cli.options import RecipeChoice
    from spark_vllm_docker.launcher.trial import Trial


def run_one(
    verb: str,
    choice: RecipeChoice,
    engine_kind: str | None,
    timeout_s: float | None,
    *,
    as_json: bool,
    image: str = "",
) -> Trial:
    """Run the whole life of a recipe; `image` stands for its own.

    Raises:
        Refused: it runs already, and is not disturbed.
    """
    from spark_vllm_docker.cli.engines import open_engine
    from spark_vllm_docker.cli.screens import masked, masked_errors, open_screen
    from spark_vllm_docker.cli.to_start import (
        build_request,
        find_hidden,
        read_to_start,
        refuse_errors,
    )
    from spark_vllm_docker.errors import Refused
    from spark_vllm_docker.health.phases import PhaseClock
    from spark_vllm_docker.health.probe import Probe
    from spark_vllm_docker.launcher.start import Launch
    from spark_vllm_docker.launcher.trial import run_trial

    began = time.monotonic()
    in_container = engine_kind != "process"
    read = read_to_start(choice, in_container=in_container, force=False, fix=False, image=image)
    refuse_errors(read, force=False)
    engine = open_engine(engine_kind)
    engine.check()
    name = read.deployment.spec.name
    there = engine.find(name)
    if there is not None and there.state == "running":
        raise Refused(
            f"{name} is running, and {verb} would end it", hint=f"spark-recipe down {name}"
        )
    options = {"wait": True, "detach": True, "replace": True, "keep": False}
    request = build_request(read, options, timeout_s)
    hidden = find_hidden(read, request)
    with (
        masked_errors(hidden),
        open_screen(verb, as_json=as_json, show_log=False) as screen,
    ):
        emit = masked(screen, hidden)
        clock = PhaseClock(emit, began, "pull" if engine.uses_images else "create")
        return run_trial(Launch(engine, request, emit, clock), Probe)
