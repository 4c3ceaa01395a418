"""`up` from the command line to what is to be started: read, render, plan, refuse."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spark_vllm_docker.findings import Severity

if TYPE_CHECKING:
    from spark_vllm_docker.cli.options import RecipeChoice
    from spark_vllm_docker.findings import Finding
    from spark_vllm_docker.launcher.start import UpRequest
    from spark_vllm_docker.render.deployment import Deployment


@dataclass(frozen=True, slots=True)
class ToStart:
    """What is needed of a recipe to start it."""

    deployment: Deployment
    build: Path | None
    ready_timeout_s: float | None
    secrets: frozenset[str]
    findings: tuple[Finding, ...]
    fixed: tuple[str, ...]
    choice: RecipeChoice
    file: Path
    structured: bool
    hint: str = ""


def read_to_start(
    choice: RecipeChoice, *, in_container: bool, force: bool, fix: bool, image: str = ""
) -> ToStart:
    """Read, render and plan; `image` stands for the recipe's own.

    Raises:
        InvalidRecipe: the plan has errors that no look at the engine can mend.
    """
    from spark_vllm_docker.cli.planning import find_all, make_plan
    from spark_vllm_docker.cli.repair import apply_remedy
    from spark_vllm_docker.errors import InvalidRecipe, Remedy, UsageError
    from spark_vllm_docker.plan.check import check_recipe
    from spark_vllm_docker.recipe.forms import Form

    chosen = choice.load(os.environ)
    if image:
        keys = chosen.recipe.keys.model_copy(update={"container": image, "build": None})
        chosen = dataclasses.replace(chosen, recipe=dataclasses.replace(chosen.recipe, keys=keys))
    recipe = chosen.recipe
    build = recipe.folder_of(("build",)) / recipe.keys.build if recipe.keys.build else None
    structured = recipe.form is Form.STRUCTURED
    try:
        deployment = chosen.build(os.environ, in_container=in_container)
    except UsageError:
        # A value that nothing can be built with has its line in the findings.
        faults = [f for f in check_recipe(recipe) if f.severity is Severity.ERROR]
        if faults:
            raise InvalidRecipe(faults) from None
        raise
    plan = make_plan(chosen, deployment.command, os.environ)
    fixed: tuple[str, ...] = ()
    if fix and plan.fixes:
        flags = tuple((name.removeprefix("--"), value) for name, value in plan.fixes)
        applied = apply_remedy(
            choice, Remedy("plan", flags), deployment.command, structured=structured
        )
        if applied is not None:
            choice, changes = applied
            fixed = tuple(map(str, changes))
            chosen = chosen.with_choice(choice)
            deployment = chosen.build(os.environ, in_container=in_container)
            plan = make_plan(chosen, deployment.command, os.environ)
    findings = tuple(find_all(chosen, plan))
    secrets = chosen.find_secrets(deployment, os.environ)
    hint = "up --fix applies the flags that mend it" if plan.fixes else ""
    timeout = recipe.keys.ready_timeout_s
    read = ToStart(
        deployment,
        build,
        timeout,
        secrets,
        findings,
        fixed,
        chosen.choice,
        recipe.file,
        structured,
        hint,
    )
    from spark_vllm_docker.launcher.neighbours import NOT_FREE

    if any(f.severity is Severity.ERROR and f.code != NOT_FREE for f in findings):
        refuse_errors(read, force=force)
    return read


def refuse_errors(read: ToStart, *, force: bool) -> None:
    """Raise `InvalidRecipe` where the findings have an error that is not overridden."""
    if not force and any(finding.severity is Severity.ERROR for finding in read.findings):
        from spark_vllm_docker.errors import InvalidRecipe

        raise InvalidRecipe(read.findings, hint=read.hint)


def worth_saying(read: ToStart) -> list[Finding]:
    return [finding for finding in read.findings if finding.severity is not Severity.NOTE]


def build_request(read: ToStart, options: dict[str, bool], timeout_s: float | None) -> UpRequest:
    from spark_vllm_docker.launcher.images import find_image_source
    from spark_vllm_docker.launcher.start import UpRequest
    from spark_vllm_docker.recipe.serve import parse_serve
    from spark_vllm_docker.render.spec import API_KEY_VARIABLE

    deployment = read.deployment
    environ: Mapping[str, str] = os.environ
    new_key = ""
    serve = parse_serve(deployment.command)
    if API_KEY_VARIABLE in deployment.spec.env_from_host and not (serve and serve.api_key):
        import secrets

        new_key = "" if environ.get(API_KEY_VARIABLE) else f"sk-{secrets.token_urlsafe(24)}"
        environ = {**environ, API_KEY_VARIABLE: new_key} if new_key else environ
    return UpRequest(
        deployment=deployment,
        image=find_image_source(deployment.spec.image, read.build),
        environ=environ,
        total_s=timeout_s or read.ready_timeout_s,
        new_api_key=new_key,
        **options,
    )


def find_hidden(read: ToStart, request: UpRequest) -> frozenset[str]:
    """What must not be shown: the recipe's secrets, and a key that is made for this start."""
    return read.secrets | ({request.new_api_key} if request.new_api_key else frozenset())
