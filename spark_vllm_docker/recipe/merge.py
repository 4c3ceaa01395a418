"""One recipe file laid over another, every value with the place it came from.

The rules are those of `include:` in version 2, and `extends:` and `when:` keep to them: mappings of
settings merge name by name, everything else is replaced whole, and a null takes a value away. A
setting is one value: a JSON flag replaces the other file's JSON flag and is not mixed with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from spark_vllm_docker.recipe.source import KeyPath, Source

SETTINGS = frozenset({"serve", "defaults", "env", "metadata", "when"})
"""The mappings that are merged name by name."""

SameName = Callable[[str, str], str]
"""(section, name) → the name under which two spellings of one setting meet."""


def merge_sources(base: Source, over: Source, same_name: SameName, layer: str = "") -> Source:
    """`over` on top of `base`; `layer` names `over` for those who ask where a value came from."""
    below, above = _mapping(base.data), _mapping(over.data)
    data: dict[str, Any] = dict(below)
    replaced: set[KeyPath] = set()
    gone: set[KeyPath] = set()
    for key, value in above.items():
        settings = key in SETTINGS and isinstance(value, dict) and isinstance(below.get(key), dict)
        if not settings:
            _put(data, key, value, (), replaced, gone)
            continue
        data[key] = dict(below[key])
        known = {same_name(key, name): name for name in data[key]}
        for name, setting in value.items():
            old = known.get(same_name(key, name), name)
            data[key] = _rename(data[key], old, name)
            if old != name:
                replaced.add((key, old))
            _put(data[key], name, setting, (key,), replaced, gone)
    return replace(
        over,
        data=data,
        keys=_lay(base.keys, over.keys, replaced, gone),
        values=_lay(base.values, over.values, replaced, gone),
        blocks={
            **{p: indent for p, indent in base.blocks.items() if not _under(p, replaced)},
            **{p: indent for p, indent in over.blocks.items() if _under(p, replaced)},
        },
        layers={
            **{p: named for p, named in base.layers.items() if not _under(p, replaced)},
            **{p: over.layers.get(p, layer) for p in replaced if over.layers.get(p, layer)},
        },
    )


def lift(source: Source, path: KeyPath) -> Source:
    """A part of a file as a source of its own: `("when", "h100")` → what stands under it."""
    data: Any = source.data
    for key in path:
        data = data[key]
    size = len(path)

    def below(places: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
        return {p[size:]: where for p, where in places.items() if p[:size] == path}

    return replace(
        source,
        data=data,
        keys=below(source.keys),
        values=below(source.values),
        blocks=below(source.blocks),
        layers={},
    )


def pick(source: Source, wanted: Callable[[str], bool]) -> Source:
    """Only the top-level keys that are wanted."""
    if not isinstance(source.data, dict):
        return source
    data = {key: value for key, value in source.data.items() if wanted(key)}

    def kept(places: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
        return {p: where for p, where in places.items() if not p or p[0] in data}

    return replace(
        source,
        data=data,
        keys=kept(source.keys),
        values=kept(source.values),
        blocks=kept(source.blocks),
        layers=kept(source.layers),
    )


def _mapping(data: object) -> dict[str, Any]:
    return data if isinstance(data, dict) else {}


def _put(
    data: dict[str, Any],
    key: str,
    value: object,
    above: KeyPath,
    replaced: set[KeyPath],
    gone: set[KeyPath],
) -> None:
    replaced.add((*above, key))
    if value is None:
        data.pop(key, None)
        gone.add((*above, key))
    else:
        data[key] = value


def _rename(data: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The same order with another spelling."""
    return data if old == new else {new if k == old else k: v for k, v in data.items()}


def _under(path: KeyPath, points: set[KeyPath]) -> bool:
    return path[:1] in points or path[:2] in points


def _lay(
    base: Mapping[KeyPath, Any],
    over: Mapping[KeyPath, Any],
    replaced: set[KeyPath],
    gone: set[KeyPath],
) -> dict[KeyPath, Any]:
    laid = {path: where for path, where in base.items() if not _under(path, replaced)}
    laid |= {p: w for p, w in over.items() if _under(p, replaced) and not _under(p, gone)}
    laid |= {p: w for p, w in over.items() if len(p) <= 1 and not _under(p, gone)}
    return laid
