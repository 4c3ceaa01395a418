"""`spark-recipe compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import (
    PassThrough,
    RecipeChoice,
    engine_option,
    json_option,
    recipe_options,
)

if TYPE_CHECKING:
    from spark_vllm_docker.launcher.trial import Trial

Row = tuple[str, str, str]


@click.command("compare", cls=PassThrough)
@recipe_options
@click.option("--image", "images", multiple=True, help="Two of them, or one against the recipe's.")
@engine_option
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), help="Seconds for each.")
@json_option
def command(
    choice: RecipeChoice,
    images: tuple[str, ...],
    engine: str | None,
    timeout_s: float | None,
    as_json: bool,
) -> int:
    """Run one recipe on two images, one after the other, and say what differs.

    Phases, kernels, canaries and the speed of one request. Exit code 1 when they do not both pass.
    """
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.errors import UsageError

    if len(images) not in (1, 2):
        raise UsageError("compare needs --image once or twice")
    if engine == "process":
        raise UsageError("--engine process has no images to compare")
    pair = images if len(images) == 2 else ("", *images)
    _require_images(engine, [image for image in pair if image])
    trials = [_try(choice, engine, timeout_s, image, as_json=as_json) for image in pair]
    passed = all(trial.passed for trial in trials)
    if as_json:
        write_json("compare", event="result", ok=passed, trials=[_to_json(t) for t in trials])
    else:
        _write(compare_rows(*trials), trials)
    return int(not passed)


def _require_images(kind: str | None, images: list[str]) -> None:
    """Every image is here, can be built, or may come from a registry: before minutes pass.

    Raises:
        ImageMissing: its registry does not have one.
    """
    from spark_vllm_docker.cli.engines import open_engine
    from spark_vllm_docker.errors import ImageMissing
    from spark_vllm_docker.launcher.images import find_image_source

    engine = open_engine(kind)
    engine.check()
    for image in images:
        if engine.find_image(image) is not None or find_image_source(image, None).buildable:
            continue
        if engine.find_in_registry(image) == ():
            raise ImageMissing(
                f"{image} is not here, and its registry does not have it", hint="docker images"
            )


def _try(
    choice: RecipeChoice, engine: str | None, timeout_s: float | None, image: str, *, as_json: bool
) -> Trial:
    """A trial; what could not even be started is a failed one, so that the other is not lost."""
    from spark_vllm_docker.cli.trials import run_one
    from spark_vllm_docker.errors import EngineError
    from spark_vllm_docker.launcher.trial import Trial

    try:
        return run_one("compare", choice, engine, timeout_s, as_json=as_json, image=image)
    except EngineError as error:
        return Trial(image or "the recipe's own", (), (), (), 0.0, error)


def compare_rows(one: Trial, other: Trial) -> list[Row]:
    """What was measured of both, a row each; kernels only where they differ."""
    rows = [("image", one.image, other.image)]
    phases = [dict(trial.phases) for trial in (one, other)]
    for phase in dict.fromkeys([*phases[0], *phases[1]]):
        times = [f"{times[phase]:.1f} s" if phase in times else "-" for times in phases]
        rows.append((f"phase {phase}", *times))  # type: ignore[arg-type]
    kernels = [dict(trial.kernels) for trial in (one, other)]
    for what in dict.fromkeys([*kernels[0], *kernels[1]]):
        first, second = (found.get(what, "-") for found in kernels)
        if first != second:
            rows.append((what, first, second))
    canaries = [{c.name: c for c in trial.canaries} for trial in (one, other)]
    for name in dict.fromkeys([*canaries[0], *canaries[1]]):
        texts = [
            ("FAILED: " if found[name].failed else "") + found[name].text if name in found else "-"
            for found in canaries
        ]
        rows.append((name, *texts))  # type: ignore[arg-type]
    speeds = [f"{trial.speed:.1f} tokens/s" if trial.speed else "-" for trial in (one, other)]
    rows.append(("speed", *speeds))  # type: ignore[arg-type]
    results = ["proven" if trial.passed else str(trial.failure) for trial in (one, other)]
    rows.append(("result", *results))  # type: ignore[arg-type]
    return rows


def _write(rows: list[Row], trials: list[Trial]) -> None:
    width = max(len(row[0]) for row in rows)
    for name, first, second in rows:
        click.echo(f"{name:{width}}  A  {first}")
        click.echo(f"{'':{width}}  B  {second}")
    for letter, trial in zip("AB", trials, strict=True):
        if trial.failure is not None:
            cause = trial.failure.cause or trial.failure.message
            click.echo(f"{letter} ({trial.image}): {cause}")
    works = [trial.image for trial in trials if trial.passed]
    if len(works) == 1:
        click.echo(f"use {works[0]}: the other does not serve this recipe")


def _to_json(trial: Trial) -> dict[str, object]:
    failure = trial.failure
    return {
        "image": trial.image,
        "passed": trial.passed,
        "phases": {phase: round(seconds, 3) for phase, seconds in trial.phases},
        "kernels": dict(trial.kernels),
        "canaries": [{"name": c.name, "ok": not c.failed, "text": c.text} for c in trial.canaries],
        "tokens_per_s": round(trial.speed, 1) or None,
        "failure": {"message": failure.message, "cause": failure.cause, "fix": failure.hint}
        if failure
        else None,
    }
