"""A chosen recipe → its plan. The facts of this machine are gathered here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_vllm_docker.cli.options import ChosenRecipe
    from spark_vllm_docker.engine.protocol import Engine
    from spark_vllm_docker.findings import Finding
    from spark_vllm_docker.plan.report import PlanReport


def make_plan(
    chosen: ChosenRecipe,
    command: str,
    environ: Mapping[str, str],
    *,
    ask_hub: bool = False,
    engine: Engine | None = None,
) -> PlanReport:
    """Plan the command of a recipe on the hardware that it was read for; `engine` knows its
    image.
    """
    from spark_vllm_docker.catalog.hardware import detect_hardware, load_hardware
    from spark_vllm_docker.launcher.free_memory import find_free_gib
    from spark_vllm_docker.launcher.model_facts import find_model_shape
    from spark_vllm_docker.plan.report import Surroundings, build_plan
    from spark_vllm_docker.recipe.serve import parse_serve

    name = chosen.recipe.hardware
    hardware = load_hardware().get(name)
    serve = parse_serve(command)
    if serve is None:
        shape, why = None, "the command starts no `vllm serve`"
    else:
        shape, why = find_model_shape(serve.model, environ, _hub(environ) if ask_hub else None)
    free = find_free_gib(hardware, here=bool(name) and name == detect_hardware())
    image = None
    if engine is not None:
        from spark_vllm_docker.launcher.image_facts import look_at_image

        image = look_at_image(engine, chosen.recipe.keys.container, environ)
    surroundings = Surroundings(hardware, shape, why, free, image)
    plan = build_plan(chosen.recipe, command, surroundings)
    if engine is None:
        return plan
    from dataclasses import replace

    from spark_vllm_docker.launcher.neighbours import judge_free_memory

    return replace(plan, findings=judge_free_memory(plan.findings, engine, chosen.recipe.keys.name))


def _hub(environ: Mapping[str, str]) -> Callable[[str], bytes]:
    from functools import partial

    from spark_vllm_docker.launcher.hub import fetch_config

    return partial(fetch_config, environ=environ)


def find_all(chosen: ChosenRecipe, plan: PlanReport) -> list[Finding]:
    """Findings of the recipe's text, of what was laid over it, and of its plan."""
    from spark_vllm_docker.plan.check import check_recipe
    from spark_vllm_docker.plan.flags import check_added

    written = check_recipe(chosen.recipe)
    return [*written, *check_added(chosen.recipe, plan.arguments, written), *plan.findings]
