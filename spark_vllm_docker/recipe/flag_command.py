"""A command made of a mapping of flags: the structured form, and version 2 without a command.

A key is a flag without its two dashes (`max-model-len`, `max_model_len`), or a flag with its dash
(`-tp`, `-O3`). A value says how it is written:

    true                 --flag
    false                --no-flag; nothing for a flag that has no such form
    null                 nothing: takes away what another file has set
    a mapping            --flag '{"compact":"JSON"}'
    a list               --flag a b, or JSON, or --flag a --flag b, as the flag takes it
    anything else        --flag value

`flag.key` sets one key of a JSON flag, as vLLM's parser reads it.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from spark_vllm_docker.catalog.flags import find_release, flag_spellings
from spark_vllm_docker.findings import Where, did_you_mean
from spark_vllm_docker.recipe.command import Argument

MODEL = "model"
_COMMON_NAMES = {
    "tensor_parallel": "tensor-parallel-size",
    "pipeline_parallel": "pipeline-parallel-size",
    "data_parallel": "data-parallel-size",
}
"""The parameters of version 1 and 2 that are no flag's name."""


@dataclass(frozen=True, slots=True)
class FlagCommand:
    """A model, and flags in order.

    `flags` are (key, value) as written; `places` says where each key and value stands, under the
    key's name in `flags`, and under `model`. `version` is the release in the image, or empty.
    """

    version: str
    model: str
    flags: tuple[tuple[str, Any], ...]
    places: Mapping[str, tuple[Where, Where]]

    @property
    def values(self) -> dict[str, Any]:
        """Parameter → value: the model, and every flag under its own name."""
        model = {MODEL: self.model} if self.model else {}
        return {**model, **{flag_name(key, self.version): value for key, value in self.flags}}

    @property
    def names(self) -> Collection[str]:
        """The parameters that are in it."""
        return self.values.keys()

    @property
    def text(self) -> str:
        """The command with the values of the recipe."""
        return self.fill(self.values)

    def fill(self, values: Mapping[str, object]) -> str:
        """`vllm serve` with one flag on each line."""
        model = str(values.get(MODEL, "") or "")
        head = f"vllm serve {shlex.quote(model)}" if model else "vllm serve"
        rows = [shlex.join(words) for _, words in self._written(values) if words]
        return " \\\n  ".join([head, *rows])

    def read_arguments(self, values: Mapping[str, object]) -> tuple[Argument, ...] | None:
        """The words after `vllm serve`, each at its flag or at its value."""
        arguments = []
        if values.get(MODEL):
            arguments.append(Argument(self.places[MODEL][1], str(values[MODEL])))
        for key, words in self._written(values):
            at_key, at_value = self.places.get(key, self.places[""])
            arguments += [Argument(at_key, word) for word in words[:1]]
            arguments += [Argument(at_value, word) for word in words[1:]]
        return tuple(arguments)

    def find_parameter(self, name: str) -> str:
        """Any flag of the release can be set; dashes and underscores are the same."""
        found = flag_name(_COMMON_NAMES.get(name, name), self.version)
        known = f"--{found.partition('.')[0]}" in find_release(self.version).flags
        return found if known or found in self.names or name == MODEL else ""

    def say_unknown(self, name: str) -> tuple[str, str]:
        """The release has no such flag."""
        flags = [flag[2:] for flag in find_release(self.version).flags]
        release = f"vLLM {self.version}" if self.version else "no release of vLLM"
        verb = "has no" if self.version else "has a"
        found = flag_name(name, self.version)
        return (
            f"{release} {verb} flag --{found}{did_you_mean(found, flags)}",
            f"spark-recipe flags {self.version}".strip(),
        )

    def parse_value(self, name: str, text: str, current: object) -> object:
        """As the flag takes it: null, true or false, JSON, or the text as it is.

        Raises:
            ValueError: it is not that.
        """
        if text == "null":
            return None
        flag = find_release(self.version).flags.get(f"--{name}", {})
        kind = flag.get("kind", "")
        if isinstance(current, bool) or kind in ("bool", "store_true", "store_false"):
            if text not in ("true", "false"):
                raise ValueError(f"expected true or false, found '{text}'")
            return text == "true"
        if kind == "json" or (kind == "json-or-str" and text[:1] in "{["):
            try:
                return json.loads(text)
            except (json.JSONDecodeError, RecursionError) as error:
                raise ValueError(f"expected JSON, found '{text[:60]}'") from error
        return text

    def _written(self, values: Mapping[str, object]) -> list[tuple[str, list[str]]]:
        """(key, words) in the order of the recipe; what only an override sets comes last."""
        left = {name: value for name, value in values.items() if name != MODEL}
        rows = []
        for key, _ in self.flags:
            name = flag_name(key, self.version)
            if name in left:
                rows.append((key, write_flag(key, left.pop(name), self.version)))
        rows += [(name, write_flag(name, value, self.version)) for name, value in left.items()]
        return rows


def flag_name(key: str, version: str) -> str:
    """The flag's own name without dashes in front: `-tp` and `tensor_parallel_size` are
    `tensor-parallel-size`. A dotted key keeps what stands after its first dot.
    """
    base, dot, rest = key.partition(".")
    dashed = base if base.startswith("-") else f"--{base}"
    if dashed.startswith("--"):
        dashed = dashed.replace("_", "-")
    if re.fullmatch(r"-O\d", dashed):
        dashed = "-O"
    return flag_spellings(version).get(dashed, dashed).lstrip("-") + dot + rest


def write_flag(key: str, value: object, version: str) -> list[str]:
    """The words of one flag."""
    word = key if key.startswith("-") else f"--{key}"
    flag = find_release(version).flags.get(f"--{flag_name(key, version).partition('.')[0]}", {})
    dotted = "." in word
    match value:
        case None:
            return []
        case bool() if dotted:
            return [f"{word}={'true' if value else 'false'}"]
        case True:
            return [word]
        case False:
            fixed = flag.get("kind") in ("store_true", "store_false")
            long = word if word.startswith("--") else f"--{flag_name(key, version)}"
            return [] if fixed else [f"--no-{long[2:]}"]
        case dict():
            words = [to_json(value)]
        case list() if flag.get("kind") == "append":
            return [part for item in value for part in (word, _text(item))]
        case list() if flag.get("kind") in ("json", "json-or-str") and not flag.get("nargs"):
            words = [to_json(value)]
        case list():
            words = [_text(item) for item in value]
        case _:
            words = [_text(value)]
    if len(words) == 1 and (dotted or _looks_like_flag(words[0])):
        return [f"{word}={words[0]}"]
    return [word, *words]


def to_json(value: object) -> str:
    """JSON without blanks, as people write it on a command line."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return to_json(value) if isinstance(value, (dict, list)) else str(value)


def _looks_like_flag(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)
