"""The flags of `vllm serve` for each release, as data.

`data/flags.json` holds the oldest release whole and every later one as its differences from the one
before. It is made by `catalog/extract` from the released wheels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from spark_vllm_docker.catalog.yaml_data import read_data


@dataclass(frozen=True, slots=True)
class VersionFlags:
    """One release. `flags` maps `--name` to its record; `sets` are registries such as parsers.

    A record has `kind` (value, list, json, json-or-str, bool, store_true, append, optional-value,
    custom), `type`, `default` and, where they apply, `choices` (closed), `suggested` (open),
    `fields` (of a JSON value), `nargs`, `negatable`, `nullable`, `aliases`, `help`.
    """

    version: str
    flags: dict[str, dict[str, Any]]
    sets: dict[str, list[str]]


def version_key(version: str) -> tuple[int, ...]:
    """`0.20.1` → (0, 20, 1), for sorting."""
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def pack_versions(versions: Sequence[VersionFlags]) -> dict[str, Any]:
    """Version → what differs from the version before (`gone` names what is not there any more)."""
    packed: dict[str, Any] = {}
    before = VersionFlags("", {}, {})
    for now in sorted(versions, key=lambda v: version_key(v.version)):
        entry: dict[str, Any] = {}
        for part in ("flags", "sets"):
            old, new = getattr(before, part), getattr(now, part)
            changed = {key: value for key, value in new.items() if old.get(key) != value}
            gone = sorted(set(old) - set(new))
            if changed:
                entry[part] = changed
            if gone:
                entry[f"gone_{part}"] = gone
        packed[now.version] = entry
        before = now
    return packed


def unpack_versions(packed: dict[str, Any]) -> dict[str, VersionFlags]:
    """The inverse of `pack_versions`."""
    versions: dict[str, VersionFlags] = {}
    parts: dict[str, dict[str, Any]] = {"flags": {}, "sets": {}}
    for version, entry in packed.items():
        for part, before in parts.items():
            gone = set(entry.get(f"gone_{part}", ()))
            kept = {key: value for key, value in before.items() if key not in gone}
            parts[part] = kept | entry.get(part, {})
        versions[version] = VersionFlags(version, parts["flags"], parts["sets"])
    return versions


@cache
def load_versions() -> dict[str, VersionFlags]:
    """Every release of the catalogue, oldest first."""
    text = (Path(__file__).parent / "data/flags.json").read_text(encoding="utf-8")
    return unpack_versions(json.loads(text))


def find_flags(version: str) -> VersionFlags | None:
    """The flags of a release; None when the catalogue does not have it."""
    return load_versions().get(version)


@cache
def load_flag_changes() -> dict[str, str]:
    """What to write instead of a flag that a release does not have, by flag."""
    changes: dict[str, str] = read_data("flag_changes.yaml")
    return changes


@cache
def find_release(version: str | None) -> VersionFlags:
    """The flags of a release; for one that is not known, everything that any release has.

    Then `version` is empty, and records are without what differs between releases: closed lists and
    fields.
    """
    versions = load_versions()
    if version in versions:
        return versions[version]
    flags: dict[str, dict[str, Any]] = {}
    sets: dict[str, set[str]] = {}
    for known in versions.values():
        flags |= known.flags
        for name, values in known.sets.items():
            sets.setdefault(name, set()).update(values)
    every = {name: _widest(flag) for name, flag in flags.items()}
    return VersionFlags("", every, {name: sorted(values) for name, values in sets.items()})


def _widest(flag: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in flag.items() if key not in ("choices", "fields")}


@cache
def flag_spellings(version: str) -> dict[str, str]:
    """Every spelling of a flag in a release (`""` for all) → its `--name`: aliases and short
    forms.
    """
    spellings = {"-O": "--optimization-level"}
    for name, flag in find_release(version).flags.items():
        for spelling in (name, *flag.get("aliases", ())):
            spellings.setdefault(spelling, name)
    return spellings
