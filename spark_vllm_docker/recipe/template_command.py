"""A command written as bash with placeholders: version 1, and version 2 where it has one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from spark_vllm_docker.findings import Where, did_you_mean
from spark_vllm_docker.recipe.command import Argument
from spark_vllm_docker.recipe.serve import find_serve_words
from spark_vllm_docker.recipe.shell import Word
from spark_vllm_docker.recipe.source import Source
from spark_vllm_docker.recipe.template import Template, fill_template


@dataclass(frozen=True, slots=True)
class TemplateCommand:
    """The text, its scanned template, and `scan`: how a part of the text is read."""

    text: str
    template: Template
    scan: Callable[[str], Template]
    source: Source

    @property
    def names(self) -> Collection[str]:
        """The placeholders."""
        return self.template.names

    def fill(self, values: Mapping[str, object]) -> str:
        """The text with every placeholder replaced."""
        return fill_template(self.template, values)

    def read_arguments(self, values: Mapping[str, object]) -> tuple[Argument, ...] | None:
        """The words after `vllm serve`, filled. A word that a value breaks in two keeps its
        place.
        """
        words = find_serve_words(self.text)
        if words is None:
            return None
        place = CommandPlaces(self.source).find
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
        self._text = str(source.data["command"])  # type: ignore[index]
        self._start = source.where(("command",), value=True)
        self._indent = source.blocks.get(("command",))

    def find(self, offset: int) -> Where:
        """The place of a character. A block scalar's text starts on the line after its key."""
        if self._indent is None:
            return self._start
        before = self._text[:offset]
        line = self._start.line + 1 + before.count("\n")
        column = self._indent + len(before) - before.rfind("\n")
        return Where(self._start.file, line, column)
