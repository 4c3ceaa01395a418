"""Findings of many files as one text: for people, for programs, for GitHub."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from spark_vllm_docker.findings import Finding, Severity
from spark_vllm_docker.ui.words import say_finding

Found = Mapping[Path, Sequence[Finding]]
_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render_text(found: Found) -> str:
    """A line for each finding, and a summary."""
    findings = [finding for rows in found.values() for finding in rows]
    counts = Counter(finding.severity for finding in findings)
    parts = [_count(counts[severity], severity.value) for severity in Severity if counts[severity]]
    summary = f"{_count(len(found), 'recipe')}: {', '.join(parts) or 'no faults'}"
    return "\n".join([*map(say_finding, findings), summary])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def render_json(found: Found) -> str:
    """One document of the schema `spark-recipe/check@1`."""
    findings = [finding for rows in found.values() for finding in rows]
    document = {
        "schema": "spark-recipe/check@1",
        "ok": all(finding.severity is not Severity.ERROR for finding in findings),
        "files": len(found),
        "findings": [finding.to_json() for finding in findings],
    }
    return json.dumps(document)


def render_github(found: Found) -> str:
    """`::error file=…,line=…::message`, with GitHub's own escapes."""
    rows = []
    for file, findings in found.items():
        for finding in findings:
            where = finding.where
            place = f"file={where.file if where else file},line={where.line if where else 1}"
            if where and where.column:
                place += f",col={where.column}"
            text = finding.message + (f"; {finding.fix}" if finding.fix else "")
            for char, code in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
                text = text.replace(char, code)
            rows.append(f"::{_GITHUB[finding.severity]} {place},title={finding.code}::{text}")
    return "\n".join(rows)
