"""How values read, the same on every screen."""

from __future__ import annotations

from spark_vllm_docker.events import Progress, ServerReady
from spark_vllm_docker.findings import Finding

_CURL_BODY = '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}]}}'


def say_progress(event: Progress) -> str:
    """`3 of 12`, `1204 of 5310 MB · 3 of 11 layers, 84.2 MB/s`, or the detail alone."""
    counted = ""
    if event.total:
        counted = f"{event.done:.0f} of {event.total:.0f} {event.unit}".rstrip()
    elif event.done:
        counted = f"{event.done:.0f} {event.unit}".rstrip()
    return " · ".join(part for part in (counted, event.detail) if part)


def draw_bar(event: Progress, width: int = 24) -> str:
    """`━━━━━━━━╌╌╌╌`, or nothing when the end is not known."""
    if not event.total:
        return ""
    full = round(width * min(1.0, event.done / event.total))
    return "━" * full + "╌" * (width - full)


def say_finding(finding: Finding) -> str:
    """`error[REC003] recipes/a.yaml:14:3: shm_sise: unknown key …`, with the edit below."""
    where = f" {finding.where}" if finding.where else ""
    head = f"{finding.severity}[{finding.code}]{where}: {finding.message}"
    return f"{head}\n  fix: {finding.fix}" if finding.fix else head


def say_ready(event: ServerReady) -> list[str]:
    """What was proven, and how to call the server."""
    model = event.served[0] if event.served else ""
    key = ' -H "Authorization: Bearer $VLLM_API_KEY"' if event.needs_key else ""
    curl = f"curl {event.endpoint}/v1/chat/completions{key} -H 'Content-Type: application/json' "
    curl += f"-d '{_CURL_BODY.format(model=model)}'"
    phases = " · ".join(f"{phase} {seconds:.1f}" for phase, seconds in event.phase_s)
    lines = [
        f"ready: {event.name} after {event.elapsed_s:.1f} s",
        f"  phases    {phases}",
        f"  proven    {event.proof}",
        f"  endpoint  {event.endpoint}/v1   model {', '.join(event.served)}",
        f"  try       {curl}",
    ]
    if not phases:
        del lines[1]
    if event.api_key:
        lines.insert(-1, f"  api key   {event.api_key}   (shown once)")
    return lines


def cut(text: str, width: int) -> str:
    """At most `width` characters of a line."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
