"""`up --fix` after a death: what the rule changes without anybody's judgement, at most twice."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_vllm_docker.cli.options import RecipeChoice
    from spark_vllm_docker.errors import Remedy


@dataclass(frozen=True, slots=True)
class Change:
    """A flag or a variable before and after; None where it is not set."""

    rule: str
    name: str
    before: str | None
    after: str | None
    is_env: bool = False

    def __str__(self) -> str:
        before, after = self.before or "unset", "unset" if self.after is None else self.after
        return f"fixed ({self.rule}): {self.name} {before} → {after}"

    def to_json(self) -> dict[str, str | None]:
        """The change as it stands in the result of `up`."""
        return {
            "rule": self.rule,
            "name": self.name,
            "before": self.before,
            "after": self.after,
        }


def apply_remedy(
    choice: RecipeChoice, remedy: Remedy, command: str, *, structured: bool
) -> tuple[RecipeChoice, list[Change]] | None:
    """The choice with the remedy in it, and what it changes; None where it changes nothing more.

    Flags are parameters of a structured recipe; of another they are added at the end, where the
    last one counts, and none can be taken away.
    """
    from spark_vllm_docker.recipe.serve import parse_serve

    serve = parse_serve(command)
    if serve is None:
        return None
    changes, sets, extra, env = [], list(choice.sets), list(choice.extra), list(choice.env)
    for name, value in remedy.flags:
        flag = f"--{name}"
        values = serve.flag_values(flag)
        given = flag in {word.partition("=")[0].replace("_", "-") for word in serve.arguments}
        before = " ".join(map(shlex.quote, values)) or ("set" if given else None)
        if (value is None and not given) or value == before:
            continue
        if not structured and value is None:
            return None
        if structured and flag not in choice.extra:
            sets.append(f"{name}={'null' if value is None else value}")
        else:
            extra += [flag] if value == "true" else [flag, str(value)]
        changes.append(Change(remedy.rule, flag, before, value))
    for name, value in remedy.env:
        if f"{name}={value}" not in env:
            env.append(f"{name}={value}")
            changes.append(Change(remedy.rule, name, None, value, is_env=True))
    if not changes:
        return None
    return replace(choice, sets=tuple(sets), env=tuple(env), extra=tuple(extra)), changes
