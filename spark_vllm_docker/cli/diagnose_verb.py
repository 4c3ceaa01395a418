"""`spark-recipe diagnose`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_vllm_docker.cli.options import engine_option, json_option

if TYPE_CHECKING:
    from spark_vllm_docker.diagnose.matcher import Diagnosis
    from spark_vllm_docker.diagnose.reader import LogReport
    from spark_vllm_docker.engine.protocol import Deployed, Engine

_CHUNK = 1 << 20


@click.command("diagnose")
@click.argument("source", required=False, metavar="[NAME|FILE|-]")
@click.option(
    "--bundle",
    type=click.Path(dir_okay=False),
    metavar="FILE.zip",
    help="Pack log, container, host and findings for a bug report; secrets are masked.",
)
@engine_option
@json_option
def command(source: str | None, bundle: str | None, engine: str | None, as_json: bool) -> int:
    """What went wrong, by the log of a deployment or any log of vLLM: a file, or - for a pipe.

    Exit code 1 when a failure is found.
    """
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.diagnose.reader import read_log
    from spark_vllm_docker.errors import UsageError

    if source is None and sys.stdin.isatty():
        raise UsageError("diagnose needs a name, a file, or - for a pipe")
    deployed = None
    if source in (None, "-"):
        name, chunks = "standard input", _read(sys.stdin.buffer)
    elif source is not None and Path(source).is_file():
        name, chunks = source, _open(Path(source))
    else:
        from spark_vllm_docker.cli.engines import find_target

        opened, deployed = find_target(engine, source or "")
        name = deployed.name
        chunks = iter(opened.follow_log(deployed.id, follow=False))
    report, lines = read_log(chunks)
    if bundle:
        if deployed is None:
            raise UsageError("--bundle needs a deployment's name: a log alone is a file already")
        _pack(Path(bundle), opened, deployed, report)
    failed = report.failure is not None or report.root is not None or _died(deployed)
    if as_json:
        write_json("diagnose", ok=not failed, source=name, lines=lines, **_to_json(report))
    else:
        _write(name, lines, report, deployed)
    return int(failed)


def _pack(path: Path, engine: Engine, deployed: Deployed, report: LogReport) -> None:
    import os
    import zipfile

    from spark_vllm_docker.errors import Refused
    from spark_vllm_docker.launcher.bundle import build_bundle

    files = build_bundle(engine, deployed, report, os.environ)
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Refused(f"{path} cannot be written: {reason}") from error
    click.echo(f"{path}: {', '.join(files)}", err=True)


def _died(deployed: Deployed | None) -> bool:
    return bool(deployed and deployed.exit and not deployed.exit.stopped)


def _read(stream) -> Iterator[bytes]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    while chunk := stream.read(_CHUNK):
        yield chunk


def _open(path: Path) -> Iterator[bytes]:
    from spark_vllm_docker.errors import Refused

    try:
        with path.open("rb") as file:
            yield from _read(file)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise Refused(f"{path} cannot be read: {reason}") from error


def _write(name: str, lines: int, report: LogReport, deployed: Deployed | None) -> None:
    found = [d for d in report.diagnoses if not d.rule.about_a_request]
    requests = [d for d in report.diagnoses if d.rule.about_a_request]
    for diagnosis in found:
        _write_diagnosis(diagnosis)
    if not found and report.root is not None:
        process = report.root.process or "the server"
        click.echo(f"no rule knows this failure; the first real error ({process}, {report.phase}):")
        for line in report.tail[-6:] or (report.root.text,):
            click.echo(f"  | {line[:300]}")
    elif not found:
        from spark_vllm_docker.diagnose.death import explain_death

        what = "no failure is known in it" if lines else "it is empty"
        click.echo(f"{name}: {lines:,} lines, {what}")
        if deployed and deployed.exit and not deployed.exit.stopped:
            death = explain_death(
                deployed.exit.code, None, name, out_of_memory=deployed.exit.out_of_memory
            )
            click.echo(f"cause: {death.cause}\nfix: {death.fix}")
        elif deployed and deployed.state == "running":
            click.echo(f"it runs: spark-recipe health {name} --deep asks it for all it promises")
    if requests:
        click.echo("requests that were refused:")
        for diagnosis in requests:
            click.echo(f"  {diagnosis.rule.id}: {diagnosis.cause}")
            click.echo(f"    fix: {diagnosis.fix}")


def _write_diagnosis(diagnosis: Diagnosis) -> None:
    process = f"{diagnosis.process}, " if diagnosis.process else ""
    click.echo(f"{diagnosis.rule.id}: {diagnosis.rule.name}")
    click.echo(f"  | {process}line {diagnosis.number:,}: {diagnosis.line[:300]}")
    click.echo(f"  cause: {diagnosis.cause}")
    click.echo(f"  fix: {diagnosis.fix}")


def _to_json(report: LogReport) -> dict[str, object]:
    root = report.root
    return {
        "phase": report.phase,
        "root": {"process": root.process, "text": root.text} if root else None,
        "tail": list(report.tail),
        "diagnoses": [
            {
                "id": d.rule.id,
                "name": d.rule.name,
                "request": d.rule.about_a_request,
                "process": d.process,
                "line": d.number,
                "text": d.line,
                "cause": d.cause,
                "fix": d.fix,
                "kind": d.rule.fix.kind,
                "set": dict(d.flags),
                "env": dict(d.env),
                "automatic": d.automatic,
            }
            for d in report.diagnoses
        ],
    }
