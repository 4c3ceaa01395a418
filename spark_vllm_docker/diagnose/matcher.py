"""Log lines → the failures that they tell of, while the log goes by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from re import Pattern

from spark_vllm_docker.diagnose.anchors import WORD, find_anchor
from spark_vllm_docker.diagnose.root_line import RootLine, is_generic
from spark_vllm_docker.diagnose.rules import (
    REQUEST,
    Rule,
    compute_values,
    fill,
    is_plausible,
    load_benign,
    load_rules,
)
from spark_vllm_docker.health.log_lines import LogLine


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A failure that was found: the rule, the line that told of it, and its texts.

    `flags` and `env` are what the fix sets (None takes a flag away); empty unless everything that
    they need was in the line. `automatic` says whether they may be applied unasked; `certain`
    whether the rule tells why the server failed: not so beside an error that no rule knows.
    """

    rule: Rule
    line: str
    process: str
    number: int
    cause: str
    fix: str
    flags: tuple[tuple[str, str | None], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    automatic: bool = False
    certain: bool = True


@dataclass(frozen=True, slots=True)
class _Index:
    """Patterns by the word that a line must hold; each has one."""

    by_word: dict[str, list[tuple[Rule, Pattern[str], bool]]]
    words: frozenset[str]


@cache
def _load_index() -> _Index:
    by_word: dict[str, list[tuple[Rule, Pattern[str], bool]]] = defaultdict(list)
    for rule in load_rules().values():
        for patterns, is_also in ((rule.patterns, False), (rule.also, True)):
            for pattern in patterns:
                by_word[find_anchor(pattern.pattern)].append((rule, pattern, is_also))
    return _Index(dict(by_word), frozenset(by_word))


@dataclass(slots=True)
class RuleMatcher:
    """Feed it every line; ask it at the end. Memory: one line for each rule, at most."""

    _hits: dict[str, tuple[int, LogLine, dict[str, str]]] = field(default_factory=dict)
    _also: set[str] = field(default_factory=set)
    _number: int = 0
    _serving: bool = False

    def feed(self, line: LogLine) -> None:
        """Look at one line."""
        self._number += 1
        index = _load_index()
        words = WORD.findall(line.message)
        if index.words.isdisjoint(words):
            return
        for word in set(words) & index.words:
            for entry in index.by_word[word]:
                self._try(entry, line)

    def forget(self) -> None:
        """The server is ready: what was logged before is not why it will die."""
        self._hits.clear()
        self._serving = True

    def results(self, root: RootLine | None = None) -> list[Diagnosis]:
        """What was found: first what the root line tells of, then the more exact, then in the order
        of the log. Failures of the server come before refused requests.
        """
        if root is not None:
            # The root line may be put together from several lines, as pydantic's are.
            self.feed(LogLine(root.process, "", root.text))
        rules = load_rules()
        found = [rules[name] for name in self._hits if not rules[name].also or name in self._also]
        texts = (root.text, root.led_to) if root else ()
        beaten = {name for rule in found for name in rule.beats}

        # An error that says nothing of its cause is explained by the lines beside it.
        speaks = root is not None and not root.echo and not is_generic(root.text)

        def is_certain(rule: Rule) -> bool:
            _, line, _ = self._hits[rule.id]
            # What the API process tells while it serves is about a request.
            handled = self._serving and line.process == "APIServer" and REQUEST not in rule.phases
            weak = line.level == "WARNING" or handled
            return _matches(rule, texts) or not (speaks or weak)

        def order(rule: Rule) -> tuple[bool, bool, bool, bool, int, int]:
            number, _, _ = self._hits[rule.id]
            own = speaks and _matches(rule, texts[:1])
            led = speaks and _matches(rule, texts[1:])
            certain = is_certain(rule)
            return (rule.about_a_request, not certain, not own, not led, -rule.weight, number)

        kept = [rule for rule in sorted(found, key=order) if rule.id not in beaten]
        if root is not None and not root.echo:
            # A last guess is not made where there is an error, known or not.
            kept = [rule for rule in kept if rule.weight >= 0]
        guessed = [rule for rule in kept if rule.weight >= 0]
        return [self._build(rule, certain=is_certain(rule)) for rule in guessed or kept]

    def _try(self, entry: tuple[Rule, Pattern[str], bool], line: LogLine) -> None:
        rule, pattern, is_also = entry
        if is_also:
            if rule.id not in self._also and pattern.search(line.message):
                self._also.add(rule.id)
            return
        if line.level in ("INFO", "DEBUG") or (rule.id in self._hits and not rule.compute):
            return
        match = pattern.search(line.message)
        if match is None or load_benign().match(line.message):
            return
        captures = {name: text for name, text in match.groupdict().items() if text is not None}
        before = self._hits.get(rule.id)
        if before is None or len(captures) > len(before[2]):
            number = before[0] if before else self._number
            self._hits[rule.id] = (number, line, captures)

    def _build(self, rule: Rule, *, certain: bool) -> Diagnosis:
        number, line, captures = self._hits[rule.id]
        values = compute_values(rule, captures)
        cause, _ = fill(rule.cause, values)
        text, _ = fill(rule.fix.text, values)
        flags = [(n, None if v is None else fill(v, values)) for n, v in rule.fix.flags.items()]
        complete = all(
            value is None or (value[1] and is_plausible(name, value[0])) for name, value in flags
        )
        return Diagnosis(
            rule=rule,
            line=line.message.strip(),
            process=line.process,
            number=number,
            cause=cause,
            fix=text,
            flags=tuple((n, v[0] if v else None) for n, v in flags) if complete else (),
            env=tuple(rule.fix.env.items()),
            automatic=rule.fix.automatic and complete and certain,
            certain=certain,
        )


def _matches(rule: Rule, texts: Iterable[str]) -> bool:
    return any(pattern.search(text) for pattern in rule.patterns for text in texts if text)
