"""A command written as bash with placeholders: version 1, and version 2 where it has one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from spark_vllm_docker.findings import Where, did_you_mean
from spark_vllm_docker.recipe.command import Argument
from spark_vllm_docker.recipe.serve import find_serve_words
from spark_vllm_docker.recipe.shell import Word
from spark_vllm_docker.recipe.source import Source
from spark_vllm_docker.recipe.template import Template, fill_template, resolve_values


@dataclass(frozen=True, slots=True)
class TemplateCommand:
    """The text, its scanned template, and `scan`: how a part of the text is read. With `nested`, as
    in version 2, values may have placeholders of their own; `inner` are the names of those.
    """

    text: str
    template: Template
    scan: Callable[[str], Template]
    source: Source
    nested: bool = False
    inner: frozenset[str] = frozenset()

    @property
    def names(self) -> Collection[str]:
        """The placeholders, and those in their values."""
        return self.template.names | self.inner

    def fill(self, values: Mapping[str, object]) -> str:
        """The text with every placeholder replaced."""
        return fill_template(self.template, resolve_values(values) if self.nested else values)

    def read_arguments(self, values: Mapping[str, object]) -> tuple[Argument, ...] | None:
        """The words after `vllm serve`, filled. A word that a value breaks in two keeps its
        place.
        """
        words = find_serve_words(self.text)
        if words is None:
            return None
        place = CommandPlaces(self.source).find
        values = resolve_values(values) if self.nested else values
        return tuple(
            Argument(place(word.start), piece)
            for word in words
            for piece in self._fill_word(word, values)
        )

    def find_parameter(self, name: str) -> str:
        """The name itself, where the command has that placeholder."""
        return name if name in self.names else ""

    def say_unknown(self, name: str) -> tuple[str, str]:
        """The command has no such placeholder."""
        names = sorted(self.names)
        flag = name.replace("_", "-")
        return (
            f"the command has no {{{name}}}{did_you_mean(name, names)}",
            f"write {{{name}}} in the command, or append the flag: -- --{flag} …",
        )

    def parse_value(self, name: str, text: str, current: object) -> object:
        """A number where the default is one, so that `{port:d}` goes on working; else the text."""
        del name
        if isinstance(current, bool) or not isinstance(current, (int, float)):
            return text
        for kind in (int, float):
            try:
                number = kind(text)
            except ValueError:
                continue
            if str(number) == text:
                return number
        return text

    def _fill_word(self, word: Word, values: Mapping[str, object]) -> Iterator[str]:
        template = self.scan(word.value)
        if template.faults or not template.names <= set(values):
            yield word.value
            return
        try:
            text = fill_template(template, values)
        except (ValueError, TypeError):
            text = word.value
        whole = template.names and word.value.startswith("{")
        yield from text.split() if whole else [text]


class CommandPlaces:
    """Offsets in a command's text → places in its file."""

    def __init__(self, source: Source) -> None:
        text = str(source.data["command"])  # type: ignore[index]
        self._start = source.where(("command",), value=True)
        self._indent = source.blocks.get(("command",))
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def find(self, offset: int) -> Where:
        """The place of a character. A block scalar's text starts on the line after its key."""
        if self._indent is None:
            return self._start
        line = bisect_right(self._lines, offset) - 1
        column = self._indent + offset - self._lines[line] + 1
        return Where(self._start.file, self._start.line + 1 + line, column)
