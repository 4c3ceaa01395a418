"""What a bug report needs, as texts by file name. Secrets and the home path are masked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from spark_vllm_docker import __version__
from spark_vllm_docker.diagnose.reader import LogReport
from spark_vllm_docker.engine.protocol import Deployed, Engine
from spark_vllm_docker.errors import SparkRecipeError
from spark_vllm_docker.health.log_lines import LineSplitter
from spark_vllm_docker.launcher.host_facts import gather_facts
from spark_vllm_docker.launcher.watched import find_deployed_secrets
from spark_vllm_docker.plan.host import examine
from spark_vllm_docker.recipe.lookup import find_recipe
from spark_vllm_docker.render.masking import mask, mask_text
from spark_vllm_docker.render.spec import LABEL

_MAX_LOG_BYTES = 32 << 20


def build_bundle(
    engine: Engine, deployed: Deployed, report: LogReport, environ: Mapping[str, str]
) -> dict[str, str]:
    """`report.md` to paste, and the files that it speaks of."""
    secrets = find_deployed_secrets(deployed, environ)
    home = environ.get("HOME", "")

    def hide(text: str) -> str:
        masked = mask_text(mask(text, secrets))
        return masked.replace(home, "~") if len(home) > 1 else masked

    container = json.dumps(_describe(deployed), indent=1, sort_keys=True)
    host = "\n".join(
        f"{line.state.value:7}  {line.name}: {line.found}"
        for line in examine(gather_facts(engine, None, environ, (), None))
    )
    recipe = _read_recipe(deployed)
    return {
        "report.md": hide(_write_report(deployed, report, host)),
        "log.txt": hide(_read_log(engine, deployed)),
        "container.json": hide(container),
        "script.sh": hide(deployed.script),
        "host.txt": hide(host + "\n"),
        **({"recipe.yaml": hide(recipe)} if recipe else {}),
    }


def _read_recipe(deployed: Deployed) -> str:
    """The recipe's file as it is now, where it is found by its name."""
    with suppress(SparkRecipeError, OSError):
        return find_recipe(deployed.labels.get(f"{LABEL}.file", "")).read_text(encoding="utf-8")
    return ""


def _describe(deployed: Deployed) -> dict[str, object]:
    """The container, without its secrets."""
    return {
        "name": deployed.name,
        "recipe": deployed.recipe,
        "image": deployed.image,
        "state": deployed.state,
        "exit_code": deployed.exit.code if deployed.exit else None,
        "out_of_memory": deployed.exit.out_of_memory if deployed.exit else None,
        "labels": {k: v for k, v in deployed.labels.items() if k.startswith(LABEL)},
    }


def _read_log(engine: Engine, deployed: Deployed) -> str:
    """The log, its last part where it is very long."""
    splitter, lines, size = LineSplitter(), list[str](), 0
    for chunk in engine.follow_log(deployed.id, follow=False):
        for line in splitter.feed(chunk):
            lines.append(line)
            size += len(line)
        while size > _MAX_LOG_BYTES:
            size -= len(lines.pop(0))
    return "\n".join([*lines, *splitter.end(), ""])


def _write_report(deployed: Deployed, report: LogReport, host: str) -> str:
    ended = f"exited ({deployed.exit.code})" if deployed.exit else deployed.state
    rows = [
        f"## {deployed.name}: {ended}, phase {report.phase}",
        "",
        f"spark-recipe {__version__}, recipe `{deployed.recipe}`, image `{deployed.image}`",
        "",
    ]
    for diagnosis in report.diagnoses:
        rows += [
            f"- **{diagnosis.rule.id}**: {diagnosis.cause}",
            f"  - fix: {diagnosis.fix}",
            f"  - `{diagnosis.line[:300]}`",
        ]
    if not report.diagnoses:
        known = "No rule knows this failure." if report.root else "The log tells of no failure."
        rows.append(known)
    if report.root is not None:
        rows += ["", "First real error:", "```", *report.tail, "```"]
    rows += ["", "Command:", "```bash", deployed.script.strip(), "```"]
    rows += ["", "Host:", "```", host, "```", ""]
    return "\n".join(rows)
