"""A log, line by line → what went wrong in it. Memory does not grow with the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

from spark_vllm_docker.diagnose.foreign import strip_prefix
from spark_vllm_docker.diagnose.matcher import Diagnosis, RuleMatcher
from spark_vllm_docker.diagnose.root_line import RootLine, RootLineFinder
from spark_vllm_docker.health.log_lines import LineSplitter, LogLine, parse_line
from spark_vllm_docker.health.phases import PhaseTracker

_TAIL = 8
_NEW_STARTS = ("non-default args: ", "usage: vllm ", "vllm serve: error: ", "vllm: error: ")
"""A log may hold several starts: the last one counts. One that the parser of the command line ends
has no arguments.
"""


@dataclass(frozen=True, slots=True)
class LogReport:
    """What a log tells. `root` is the first real error, `tail` the lines up to it and `phase` the
    one it came in; `diagnoses` are the rules that match, the most exact first.
    """

    root: RootLine | None
    tail: tuple[str, ...]
    phase: str
    diagnoses: tuple[Diagnosis, ...]

    @property
    def failure(self) -> Diagnosis | None:
        """The first rule that tells why the server failed."""
        return next((d for d in self.diagnoses if d.certain and not d.rule.about_a_request), None)


class LogReader:
    """Feed it every line; ask it at the end. `tracker` knows the phase of the start."""

    def __init__(self, tracker: PhaseTracker) -> None:
        self.roots = RootLineFinder()
        self._rules = RuleMatcher()
        self._tracker = tracker
        self._recent: deque[LogLine] = deque(maxlen=_TAIL)
        self._seen: RootLine | None = None
        self._tail: tuple[LogLine, ...] = ()
        self._phase_then = ""

    def feed(self, line: LogLine) -> None:
        """Look at one line."""
        self.roots.feed(line)
        self._rules.feed(line)
        self._recent.append(line)
        if self.roots.root is not self._seen:
            first = self._seen is None
            self._seen = self.roots.root
            if first:
                self._tail = tuple(self._recent)
                self._phase_then = self._tracker.phase

    def forget(self) -> None:
        """The server is ready: what was logged before is not why it will die."""
        self.roots.forget()
        self._rules.forget()
        self._seen, self._tail, self._phase_then = None, (), ""

    def report(self) -> LogReport:
        """What was found so far."""
        root = self.roots.result()
        process = root.process if root else ""
        tail = tuple(
            line.message
            for line in self._tail
            if line.process == process and line.level not in ("INFO", "DEBUG")
        )
        return LogReport(
            root, tail, self._phase_then or self._tracker.phase, tuple(self._rules.results(root))
        )


def read_log(chunks: Iterable[bytes]) -> tuple[LogReport, int]:
    """The report of a whole log, whoever wrote it to wherever it is, and its number of lines."""
    splitter, count = LineSplitter(), 0
    tracker = PhaseTracker("setup")
    reader = LogReader(tracker)
    ends = (splitter.end() for _ in range(1))
    for texts in chain(map(splitter.feed, chunks), ends):
        count += len(texts)
        for text in texts:
            line = parse_line(strip_prefix(text))
            if line.message.startswith(_NEW_STARTS):
                tracker = PhaseTracker("config")
                reader = LogReader(tracker)
            seen = tracker.feed(line)
            reader.feed(line)
            if seen is not None and seen.listening:
                reader.forget()
    return reader.report(), count
