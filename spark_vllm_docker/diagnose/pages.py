"""A rule as a page in Markdown."""

from __future__ import annotations

from spark_vllm_docker.diagnose.rules import Rule


def render_page(rule: Rule, level: int = 1) -> str:
    """Name, cause, fix, and a line by which it is known."""
    fix = rule.fix
    changes = [f"`{name}` away" for name, value in fix.flags.items() if value is None]
    changes += [f"`{name}: {value}`" for name, value in fix.flags.items() if value is not None]
    changes += [f"`{name}={value}`" for name, value in fix.env.items()]
    rows = [
        f"{'#' * level} {rule.name}",
        "",
        f"`{rule.id}` · seen in: {', '.join(rule.phases)}",
        "",
        f"- **Cause:** {rule.cause}",
        f"- **Fix** ({fix.kind}): {fix.text}",
    ]
    if fix.automatic:
        rows.append(f"- **`up --fix` applies:** {', '.join(changes)}")
    rows += ["", "```", *rule.samples[0].split("\n"), "```"]
    return "\n".join(rows)


def render_pages(rules: list[Rule]) -> str:
    """All rules in one document."""
    head = (
        "# Failures that are known\n\n"
        "Written by `spark-recipe rules --markdown`. `{{ name }}` stands for a part of the log's "
        "line, or for a number that follows from it. "
        f"There are {len(rules)} rules; the data are in `spark_vllm_docker/diagnose/data/rules/`.\n"
    )
    return head + "\n" + "\n\n".join(render_page(rule, 2) for rule in rules) + "\n"
