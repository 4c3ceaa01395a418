"""What a server answers to the watcher's questions. Apart from `probe.py`, so that the watcher does
not load an HTTP client before the container runs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# What reading a foreign body can run into: it is not JSON, or JSON of another shape.
OTHER_SHAPE = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response that was read to its end; `seconds` is the time until then, and `retry_s` the
    time that a busy server asks to be left alone.
    """

    path: str
    status: int
    body: bytes
    seconds: float
    retry_s: float = 0.0

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace")

    @property
    def words(self) -> str:
        """Path, status and what the server says of an error, in one line."""
        error = self.read(lambda data: data.get("error", data))
        text = error.get("message") if isinstance(error, dict) else error
        words = " ".join(str(text or self.text).split())
        return f"{self.path} answered {self.status}: {words[:300]}"

    def read(self, look: Callable[[Any], Any]) -> Any:
        """What `look` finds in the JSON; None when that has another shape."""
        try:
            return look(json.loads(self.body))
        except OTHER_SHAPE:
            return None


@dataclass(frozen=True, slots=True)
class Listed:
    """What `/v1/models` said: the names, or why there are none."""

    names: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a recipe promises of its server, beyond text. `clip_tokens` is what the canaries' clips
    cost by the model's formula, where there is one.
    """

    modalities: tuple[str, ...] = ("text",)
    tools: bool = False
    structured: bool = False
    clip_tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Canary:
    """One question and what it proved. `failed` tells of a server that looks healthy and is not."""

    name: str
    text: str
    failed: bool = False
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the canaries found: all of them, up to the first that failed."""

    canaries: tuple[Canary, ...] = ()

    @property
    def shown(self) -> str:
        """What was proved, for people; empty when something failed."""
        if self.error:
            return ""
        return "; ".join(
            canary.text if canary.name == "text" else f"{canary.name}: {canary.text}"
            for canary in sorted(self.canaries, key=lambda canary: canary.name != "text")
        )

    @property
    def error(self) -> str:
        """What failed; empty when nothing did."""
        return next((canary.text for canary in self.canaries if canary.failed), "")

    @property
    def fix(self) -> str:
        """What mends it."""
        return next((canary.fix for canary in self.canaries if canary.failed), "")
