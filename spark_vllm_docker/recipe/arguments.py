"""The words after `vllm serve` → flags and their values, as vLLM's parser groups them.

Source of the rules: `FlexibleArgumentParser` (vllm/utils/argparse_utils.py, the same from 0.16 to
0.32): underscores count as dashes up to the first dot, `--x.y` sets one key of a JSON flag,
`-O3` is `--optimization-level 3`, an unambiguous beginning of a name is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spark_vllm_docker.findings import Where
from spark_vllm_docker.recipe.command import Argument

_ENOUGH = 64  # words behind one flag: more of them say nothing new
_NUMBER = re.compile(r"-\d+(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Given:
    """A flag as it was given.

    `written` is the word in the command and `name` its `--name` in the catalogue, empty when the
    release has none. `key` is what stands after the first dot. `negated` is for `--no-…`.
    """

    where: Where
    written: str
    name: str
    values: tuple[Argument, ...]
    key: str = ""
    negated: bool = False
    candidates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Arguments:
    """The positional words (a model, at most) and the flags, in order."""

    positional: tuple[Argument, ...]
    given: tuple[Given, ...]

    def find(self, name: str) -> Given | None:
        """The last use of a flag: the one that counts."""
        return next((given for given in reversed(self.given) if given.name == name), None)


def read_arguments(words: Sequence[Argument], flags: Mapping[str, dict[str, Any]]) -> Arguments:
    """Group the words. A flag that is not known takes the words up to the next flag."""
    names = _names(flags)
    positional: list[Argument] = []
    given: list[Given] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _is_flag(word.value):
            # The model is one word; what follows it, or a flag without a value, belongs to nothing.
            if positional and given and len(given[-1].values) < _ENOUGH:
                given[-1] = _with(given[-1], [*given[-1].values, word])
            else:
                positional.append(word)
            continue
        head, equals, text = word.value.partition("=")
        found = _resolve(word.where, head, flags, names)
        if equals:
            given.append(_with(found, [Argument(_after(word.where, len(head) + 1), text)]))
            continue
        if head.startswith("-O") and len(head) > 2 and not head.startswith("--"):
            given.append(_with(found, [Argument(word.where, head[2:])]))
            continue
        end = at + _taken(found, words, at, flags)
        given.append(_with(found, list(words[at:end])))
        at = end
    return Arguments(tuple(positional), tuple(given))


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _NUMBER.match(word)


def _names(flags: Mapping[str, dict[str, Any]]) -> dict[str, tuple[str, bool]]:
    """Every spelling → its flag, and whether it is the negation."""
    names: dict[str, tuple[str, bool]] = {"-O": ("--optimization-level", False)}
    for name, flag in flags.items():
        for spelling in (name, *flag.get("aliases", ())):
            names[spelling] = (name, False)
            if flag.get("negatable") and spelling.startswith("--"):
                names[f"--no-{spelling[2:]}"] = (name, True)
    return names


def _resolve(
    where: Where,
    head: str,
    flags: Mapping[str, dict[str, Any]],
    names: Mapping[str, tuple[str, bool]],
) -> Given:
    spelling, dot, key = head.partition(".")
    key = key.removesuffix("+")
    dashed = spelling.replace("_", "-") if spelling.startswith("--") else spelling
    if re.match(r"-O\d", dashed):
        dashed = "-O"
    if dashed in names:
        name, negated = names[dashed]
        return Given(where, head, name if name in flags else "", (), key, negated)
    begun = _find_begun(dashed, names) if dashed.startswith("--") else ()
    if len(begun) == 1 and not dot:
        name, negated = names[begun[0]]
        return Given(where, head, name, (), key, negated)
    return Given(where, head, "", (), key, candidates=tuple(begun))


def _find_begun(dashed: str, names: Mapping[str, tuple[str, bool]]) -> list[str]:
    return sorted(name for name in names if name.startswith(dashed))


def _taken(
    found: Given, words: Sequence[Argument], at: int, flags: Mapping[str, dict[str, Any]]
) -> int:
    """How many of the words from `at` on the flag takes."""
    count = 0
    while at + count < len(words) and not _is_flag(words[at + count].value):
        count += 1
    flag = flags.get(found.name)
    if flag is None or flag.get("nargs") in ("+", "*"):
        return count
    if flag["kind"] in ("bool", "store_true", "store_false") and not found.key:
        return 0
    nargs = flag.get("nargs")
    return min(count, nargs if isinstance(nargs, int) else 1)


def _with(found: Given, values: list[Argument]) -> Given:
    return replace(found, values=tuple(values))


def _after(where: Where, columns: int) -> Where:
    return replace(where, column=where.column + columns) if where.column else where
