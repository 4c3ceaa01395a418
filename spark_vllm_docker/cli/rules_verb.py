"""`spark-recipe rules`."""

from __future__ import annotations

import click

from spark_vllm_docker.cli.options import json_option


@click.command("rules")
@click.argument("rule_id", required=False, metavar="[ID]")
@click.option("--markdown", is_flag=True, help="All pages as one document.")
@json_option
def command(rule_id: str | None, markdown: bool, as_json: bool) -> None:
    """The failures that diagnose knows; with ID the page of one."""
    from spark_vllm_docker.cli.screens import write_json
    from spark_vllm_docker.diagnose.pages import render_page, render_pages
    from spark_vllm_docker.diagnose.rules import load_rules
    from spark_vllm_docker.errors import Refused
    from spark_vllm_docker.findings import did_you_mean

    rules = load_rules()
    if rule_id is not None and rule_id not in rules:
        raise Refused(
            f"there is no rule '{rule_id}'{did_you_mean(rule_id, rules)}", hint="spark-recipe rules"
        )
    chosen = [rules[rule_id]] if rule_id is not None else list(rules.values())
    if as_json:
        rows = [
            {
                "id": rule.id,
                "name": rule.name,
                "phases": list(rule.phases),
                "cause": rule.cause,
                "fix": rule.fix.text,
                "kind": rule.fix.kind,
                "automatic": rule.fix.automatic,
            }
            for rule in chosen
        ]
        write_json("rules", rules=rows)
    elif markdown:
        click.echo(render_pages(chosen), nl=False)
    elif rule_id is not None:
        click.echo(render_page(chosen[0]))
    else:
        width = max(len(rule.id) for rule in chosen)
        for rule in chosen:
            click.echo(f"{rule.id:{width}}  {rule.name}")
