"""What changed in the flags between two releases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from spark_vllm_docker.catalog.flags import VersionFlags

_COMPARED = ("kind", "type", "default", "choices", "suggested", "nargs", "aliases")


@dataclass(frozen=True, slots=True)
class FlagDiff:
    """`changed` holds (flag or set, key, before, after); lists are given as what went and came."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[tuple[str, str, Any, Any], ...]


def diff_flags(old: VersionFlags, new: VersionFlags) -> FlagDiff:
    """Compare two releases."""
    changed: list[tuple[str, str, Any, Any]] = []
    for name in sorted(set(old.flags) & set(new.flags)):
        before, after = old.flags[name], new.flags[name]
        for key in _COMPARED:
            changed += _compare(name, key, before.get(key), after.get(key))
    for name in sorted(set(old.sets) | set(new.sets)):
        changed += _compare(name, "values", old.sets.get(name, []), new.sets.get(name, []))
    return FlagDiff(
        tuple(sorted(set(new.flags) - set(old.flags))),
        tuple(sorted(set(old.flags) - set(new.flags))),
        tuple(changed),
    )


def _compare(name: str, key: str, before: Any, after: Any) -> list[tuple[str, str, Any, Any]]:
    if before == after:
        return []
    if isinstance(before, list) and isinstance(after, list):
        gone = [value for value in before if value not in after]
        new = [value for value in after if value not in before]
        return [(name, key, gone, new)] if gone or new else []
    return [(name, key, before, after)]
