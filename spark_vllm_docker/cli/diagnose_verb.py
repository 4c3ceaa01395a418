"""`spark-recipe diagnose`."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spark_vllm_docker.cli.options import engine_option, json_option

if TYPE_CHECKING:
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
    from spark_vllm_docker.render.masking import mask, mask_text

    if not source and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("diagnose needs a name, a file, or - for a pipe")
    deployed = None
    if source in (None, "", "-"):
        name = "standard input"
        chunks = _check_text(name, _read_input())
    elif source is not None and _is_a_file(source):
        name, chunks = source, _open(Path(source))
    else:
        from spark_vllm_docker.cli.engines import find_target

        opened, deployed = find_target(engine, source or "")
        name = deployed.name
        chunks = iter(opened.follow_log(deployed.id, follow=False))
    secrets: frozenset[str] = frozenset()
    if deployed is not None:
        from spark_vllm_docker.launcher.watched import find_deployed_secrets

        secrets = find_deployed_secrets(deployed, os.environ)
    report, lines = read_log(chunks)
    killed = ""
    if deployed is not None and deployed.exit is not None:
        from spark_vllm_docker.launcher.oom_kills import find_oom_kill

        killed = find_oom_kill(opened, deployed, deployed.exit, report.root)
    if bundle:
        if deployed is None:
            raise UsageError("--bundle needs a deployment's name: a log alone is a file already")
        _pack(Path(bundle), opened, deployed, report)
    failed = report.failure is not None or report.root is not None or _died(deployed)
    if as_json:
        data = _hide(_to_json(report), secrets)
        memory = killed or None
        write_json(
            "diagnose", ok=not failed, source=name, lines=lines, out_of_memory=memory, **data
        )
    else:
        for row in _rows(name, lines, report, deployed, killed):
            click.echo(mask_text(mask(row, secrets)))
    return int(failed)


_PACKED = {
    b"\x1f\x8b": "zcat",
    b"\x28\xb5\x2f\xfd": "zstdcat",
    b"BZh": "bzcat",
    b"\xfd7zXZ": "xzcat",
    b"PK\x03": "unzip -p",
}
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def _is_a_file(source: str) -> bool:
    """Whether a word means a file: a deployment may be called as a folder here is."""
    return "/" in source or source.endswith(".log") or source == "." or Path(source).is_file()


def _check_text(name: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks as UTF-8, unless the first one is of something else than text."""
    import codecs

    from spark_vllm_docker.errors import Refused

    decoder = None
    for number, chunk in enumerate(chunks):
        head = chunk[:4096]
        if number == 0:
            for mark, tool in _PACKED.items():
                if head.startswith(mark):
                    hint = f"{tool} FILE | spark-recipe diagnose -"
                    raise Refused(f"{name} is compressed", hint=hint)
            for mark, encoding in _MARKS.items():
                if head.startswith(mark):
                    decoder = codecs.getincrementaldecoder(encoding)("replace")
            odd = sum(byte < 9 or 13 < byte < 27 for byte in head.replace(b"\x00", b""))
            if decoder is None and odd > len(head) // 20:
                raise Refused(f"{name} is no text")
        yield decoder.decode(chunk).encode() if decoder else chunk


def _read_input() -> Iterator[bytes]:
    from spark_vllm_docker.errors import Refused

    if sys.stdin is None:
        raise Refused("standard input is closed", hint="name a file or a deployment")
    try:
        yield from _read(sys.stdin.buffer)
    except (OSError, ValueError) as error:
        raise Refused(f"standard input cannot be read: {error}") from error


def _pack(path: Path, engine: Engine, deployed: Deployed, report: LogReport) -> None:
    import zipfile

    from spark_vllm_docker.errors import Refused, say_reason
    from spark_vllm_docker.launcher.bundle import build_bundle

    files = build_bundle(engine, deployed, report, os.environ)
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in files.items():
                archive.writestr(name, text)
    except OSError as error:
        reason = say_reason(error)
        raise Refused(f"{path} cannot be written: {reason}") from error
    click.echo(f"{path}: {', '.join(files)}", err=True)


def _died(deployed: Deployed | None) -> bool:
    return bool(deployed and deployed.exit and not deployed.exit.stopped)


def _read(stream) -> Iterator[bytes]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    while chunk := stream.read(_CHUNK):
        yield chunk


def _open(path: Path) -> Iterator[bytes]:
    from spark_vllm_docker.errors import Refused, say_reason

    try:
        kind = path.stat().st_mode
        if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind) or stat.S_ISDIR(kind)):
            raise Refused(f"{path} is no file")
        with path.open("rb") as file:
            yield from _check_text(str(path), _read(file))
    except OSError as error:
        reason = say_reason(error)
        raise Refused(f"{path} cannot be read: {reason}") from error


def _rows(
    name: str, lines: int, report: LogReport, deployed: Deployed | None, killed: str
) -> Iterator[str]:
    """The report as text, before secrets are masked; `killed` is what shows that the kernel killed
    for want of memory.
    """
    if killed:
        yield from _say_state(name, deployed, killed)
    found = [d for d in report.diagnoses if d.certain and not d.rule.about_a_request]
    beside = [d for d in report.diagnoses if not d.certain and not d.rule.about_a_request]
    requests = [d for d in report.diagnoses if d.rule.about_a_request]
    for diagnosis in found:
        process = f"{diagnosis.process}, " if diagnosis.process else ""
        yield f"{diagnosis.rule.id}: {diagnosis.rule.name}"
        yield f"  | {process}line {diagnosis.number:,}: {diagnosis.line[:300]}"
        yield f"  cause: {diagnosis.cause}"
        yield f"  fix: {diagnosis.fix}"
    if not found and report.root is not None:
        process = report.root.process or "the server"
        yield f"no rule knows this failure; the first real error ({process}, {report.phase}):"
        for line in report.tail[-6:] or (report.root.text,):
            yield f"  | {line[:300]}"
    elif not found and not killed:
        yield f"{name}: {lines:,} lines, {'no failure is known in it' if lines else 'it is empty'}"
        yield from _say_state(name, deployed, "")
    if beside:
        yield "beside it in the log, and perhaps of no weight:"
        for diagnosis in beside:
            yield f"  {diagnosis.rule.id}, line {diagnosis.number:,}: {diagnosis.line[:160]}"
    if requests:
        yield "requests that were refused:"
        for diagnosis in requests:
            yield f"  {diagnosis.rule.id}: {diagnosis.cause}"
            yield f"    fix: {diagnosis.fix}"


def _say_state(name: str, deployed: Deployed | None, killed: str) -> Iterator[str]:
    """What the engine and the kernel know of a deployment."""
    from spark_vllm_docker.diagnose.death import explain_death

    if deployed and deployed.exit and not deployed.exit.stopped:
        ended = deployed.exit
        death = explain_death(ended.code, None, name, out_of_memory=killed)
        yield f"cause: {death.cause}"
        yield f"fix: {death.fix}"
    elif deployed and deployed.state == "running":
        yield f"it runs: spark-recipe health {name} --deep asks it for all it promises"


def _hide(value: Any, secrets: frozenset[str]) -> Any:
    """A document without secrets in its texts."""
    from spark_vllm_docker.render.masking import mask, mask_text

    if isinstance(value, str):
        return mask_text(mask(value, secrets))
    if isinstance(value, dict):
        return {key: _hide(item, secrets) for key, item in value.items()}
    return [_hide(item, secrets) for item in value] if isinstance(value, list) else value


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
                "certain": d.certain,
            }
            for d in report.diagnoses
        ],
    }
