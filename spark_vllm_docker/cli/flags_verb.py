"""`spark-recipe flags`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from spark_vllm_docker.cli.options import json_option

if TYPE_CHECKING:
    from spark_vllm_docker.catalog.flags import VersionFlags


@click.command("flags")
@click.argument("version", required=False)
@click.argument("names", nargs=-1, metavar="[FLAG...]")
@click.option("--diff", "other", metavar="VERSION", help="What changed up to another release.")
@json_option
def command(version: str | None, names: tuple[str, ...], other: str | None, as_json: bool) -> None:
    """The flags of `vllm serve` in a release, and what changed between two.

    Without a version: the releases that are known. FLAG is a part of a name, such as kv-cache.
    """
    from spark_vllm_docker.catalog.flag_diff import diff_flags
    from spark_vllm_docker.catalog.flags import load_versions
    from spark_vllm_docker.cli.screens import write_json

    if version is None:
        versions = list(load_versions())
        if as_json:
            write_json("flags", versions=versions)
        else:
            click.echo("\n".join(versions))
        return
    flags = _require(version)
    if other is None:
        found = {name: f for name, f in flags.flags.items() if all(part in name for part in names)}
        if as_json:
            write_json("flags", version=flags.version, flags=found, sets=flags.sets)
        for name, flag in {} if as_json else found.items():
            click.echo(f"{name}  {_say_flag(flag)}")
            if flag.get("help"):
                click.echo(f"    {flag['help']}")
        return
    diff = diff_flags(flags, _require(other))
    if as_json:
        keys = ("name", "key", "before", "after")
        changed = [dict(zip(keys, row, strict=True)) for row in diff.changed]
        write_json(
            "flags", old=version, new=other, added=diff.added, removed=diff.removed, changed=changed
        )
        return
    click.echo(f"{version} → {other}: {len(diff.added)} added, {len(diff.removed)} removed")
    for title, rows in (("removed", diff.removed), ("added", diff.added)):
        for name in rows:
            click.echo(f"{title:8} {name}")
    for name, key, before, after in diff.changed:
        click.echo(f"changed  {name} {_say_change(key, before, after)}")


def _require(version: str) -> VersionFlags:
    from spark_vllm_docker.catalog.flags import find_flags, load_versions
    from spark_vllm_docker.errors import Refused

    flags = find_flags(version.removeprefix("v"))
    if flags is None:
        known = list(load_versions())
        raise Refused(
            f"the flags of vLLM {version} are not known",
            hint=f"known are {known[0]} to {known[-1]}: spark-recipe flags",
        )
    return flags


def _say_flag(flag: dict[str, Any]) -> str:
    values = flag.get("choices") or flag.get("suggested") or flag.get("fields")
    shown = f" {{{', '.join(map(str, values))}}}" if values else ""
    kind = flag["kind"] if flag["kind"] != "value" else flag["type"]
    return f"{kind}{shown}  default {json.dumps(flag.get('default'))}"


def _say_change(key: str, before: Any, after: Any) -> str:
    if isinstance(before, list) and isinstance(after, list):
        gone = f"without {', '.join(map(str, before))}" if before else ""
        new = f"with {', '.join(map(str, after))}" if after else ""
        return f"{key} {' and '.join(part for part in (gone, new) if part)}"
    return f"{key} {json.dumps(before)} → {json.dumps(after)}"
