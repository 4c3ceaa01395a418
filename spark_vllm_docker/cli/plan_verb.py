"""`spark-recipe plan`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import (
    ENGINES,
    PassThrough,
    RecipeChoice,
    json_option,
    recipe_options,
)

if TYPE_CHECKING:
    from spark_vllm_docker.engine.protocol import Engine
    from spark_vllm_docker.plan.report import PlanReport
    from spark_vllm_docker.plan.video_plan import VideoPlan


@click.command("plan", cls=PassThrough)
@recipe_options
@click.option("--video", metavar="600s@1080p", help="What such a video costs, and whether it fits.")
@click.option("--sweep", is_flag=True, help="The table of videos from one minute to an hour.")
@click.option(
    "--svg", type=click.Path(dir_okay=False), help="With --sweep: the table as a picture, here."
)
@click.option("--beside", metavar="RECIPE", help="Another recipe on the same GPU: do both fit?")
@click.option(
    "--on",
    "engine_kind",
    type=click.Choice(ENGINES),
    help="Look at the image on this engine too, or in its registry.",
)
@click.option("--hub", "ask_hub", is_flag=True, help="Read config.json from the Hub if it must.")
@json_option
def command(
    choice: RecipeChoice,
    video: str | None,
    sweep: bool,
    svg: str | None,
    beside: str | None,
    engine_kind: str | None,
    ask_hub: bool,
    as_json: bool,
) -> int:
    """What vLLM would only say after minutes: block size, memory, videos, known bad combinations.

    Nothing is started, and without --hub nothing is asked over the network. Exit code 1 when an
    error would stop the start.
    """
    from spark_vllm_docker.cli.planning import find_all, make_plan
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.errors import UsageError
    from spark_vllm_docker.findings import Severity
    from spark_vllm_docker.plan.words import plan_document, plan_rows
    from spark_vllm_docker.ui.words import say_finding

    if svg and not sweep:
        raise UsageError("--svg needs --sweep")
    chosen = choice.load(os.environ)
    engine = _open_engine(engine_kind) if engine_kind else None
    plan = make_plan(chosen, chosen.command(), os.environ, ask_hub=ask_hub, engine=engine)
    findings = find_all(chosen, plan)
    videos = _plan_videos(plan, video, sweep=sweep)
    shared = _plan_beside(choice, plan, beside, ask_hub=ask_hub) if beside else None
    if svg:
        _write_svg(Path(svg), plan, videos)
    failed = any(finding.severity is Severity.ERROR for finding in findings)
    failed = failed or (shared is not None and not shared.fits)
    if as_json:
        from spark_vllm_docker.plan.video_plan import video_document

        document = plan_document(plan)
        document["findings"] = [finding.to_json() for finding in findings]
        document["videos"] = [video_document(one) for one in videos]
        document["beside"] = shared.to_json() if shared else None
        write_json("plan", ok=not failed, **document)
        return int(failed)
    rows = plan_rows(plan)
    if sweep:
        click.echo("\n".join(_table(videos)))
    else:
        from spark_vllm_docker.plan.video_plan import say_video

        for one in videos:
            rows += say_video(one)
        rows += shared.rows() if shared else []
        width = max(len(name) for name, _ in rows)
        click.echo(f"{chosen.recipe.name}   {chosen.recipe.file}")
        for name, text in rows:
            click.echo(f"  {name:{width}}  {text}")
    for finding in findings:
        click.echo(say_finding(finding))
    return int(failed)


def _open_engine(kind: str) -> Engine | None:
    """The engine, if it has images at all."""
    from spark_vllm_docker.cli.engines import open_engine

    engine = open_engine(kind)
    engine.check()
    return engine if engine.uses_images else None


def _plan_videos(plan: PlanReport, video: str | None, *, sweep: bool) -> list[VideoPlan]:
    if not video and not sweep:
        return []
    from spark_vllm_docker.errors import Refused, UsageError
    from spark_vllm_docker.plan.video import BadVideo, parse_video
    from spark_vllm_docker.plan.video_plan import plan_video, read_video_settings, sweep_videos

    settings = read_video_settings(plan)
    if settings is None:
        why = plan.surroundings.unplanned or "its architecture's video tokens are not known"
        raise Refused(f"{plan.recipe.name}: videos are not planned: {why}")
    if sweep:
        return sweep_videos(plan, settings)
    try:
        return [plan_video(plan, parse_video(video or ""), settings)]
    except BadVideo as error:
        raise UsageError(f"--video {error}") from error


def _plan_beside(choice: RecipeChoice, plan: PlanReport, other: str, *, ask_hub: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Both recipes on one GPU."""
    from dataclasses import replace

    from spark_vllm_docker.cli.planning import make_plan
    from spark_vllm_docker.plan.sharing import share_gpu

    second = replace(choice, recipe=other, sets=(), env=(), extra=())
    chosen = second.load(os.environ)
    command = chosen.command()
    return share_gpu([plan, make_plan(chosen, command, os.environ, ask_hub=ask_hub)])


def _table(videos: list[VideoPlan]) -> list[str]:
    from spark_vllm_docker.plan.video_plan import say_duration

    rows = [("LENGTH", "FRAMES", "VIDEO", "LABELS", "SOUND", "PROMPT", "")]
    for one in videos:
        cost = one.cost
        if one.fits and one.parts == 1:
            verdict = "fits"
        elif one.parts > 1:
            verdict = f"cut into {one.parts} parts"
        else:
            verdict = "too long"
        numbers = (cost.frames, cost.video, cost.labels, cost.audio, cost.prompt)
        rows.append(
            (
                say_duration(one.video.duration_s),
                *(f"{n:,}" for n in numbers),
                verdict,
            )  # type: ignore[arg-type]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    return [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row[:6], widths, strict=False))
        + f"  {row[6]}".rstrip()
        for row in rows
    ]


def _write_svg(path: Path, plan: PlanReport, videos: list[VideoPlan]) -> None:
    from spark_vllm_docker.cli.files import write_new_file
    from spark_vllm_docker.plan.video_picture import draw_sweep

    write_new_file(path, draw_sweep(plan.recipe.name, videos), force=True)
    click.echo(f"{path}", err=True)
