"""What a recipe's command can do, whatever form it is written in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from spark_vllm_docker.findings import Where


@dataclass(frozen=True, slots=True)
class Argument:
    """A word after `vllm serve`, and where in a file it comes from."""

    where: Where
    value: str


class Command(Protocol):
    """A command with parameters.

    `TemplateCommand` is bash with placeholders, `FlagCommand` a mapping of flags.
    """

    @property
    def names(self) -> Collection[str]:
        """The parameters that are in it."""
        ...

    @property
    def text(self) -> str:
        """The command as bash, placeholders unfilled where it has any."""
        ...

    def fill(self, values: Mapping[str, object]) -> str:
        """The command with these values.

        Raises:
            ValueError, TypeError: a value does not go with its format.
        """
        ...

    def read_arguments(self, values: Mapping[str, object]) -> tuple[Argument, ...] | None:
        """The words after `vllm serve`; None when it starts something else."""
        ...

    def find_parameter(self, name: str) -> str:
        """The parameter that `--set NAME=…` means, or empty when there is none to set."""
        ...

    def say_unknown(self, name: str) -> tuple[str, str]:
        """Why `--set NAME=…` cannot be meant, and what to do instead."""
        ...

    def parse_value(self, name: str, text: str, current: object) -> object:
        """The text of an override as a value of that parameter.

        Raises:
            ValueError: it cannot be one; the message says what was expected.
        """
        ...
