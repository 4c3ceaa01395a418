"""The root line of a dead server: the first real error, not the wrapper that the log ends with.

Works line by line while the log goes by and keeps a handful of lines, so that a log of any size
costs no memory and is never read again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import yaml

from spark_vllm_docker import STEP_MARK
from spark_vllm_docker.health.log_lines import LogLine

# The last line of a traceback: a dotted name that is an exception by the habit of naming, or any
# dotted name followed by a colon.
_EXCEPTION = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Warning|Failure|Timeout)(?::|$)"
    r"|(?:[A-Za-z_]\w*\.)+[A-Z]\w*: |Exception(?::|$)"
)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):")
_CHAIN = re.compile(
    r"(?:The above exception was the direct cause|During handling of the above exception)"
)
_PYDANTIC = re.compile(r"(?:[\w.]+\.)?ValidationError: \d+ validation errors? for ")
_QUIET = ("DEBUG", "INFO", "WARNING")


@dataclass(frozen=True, slots=True)
class RootLine:
    """The cause in the server's words; `led_to` is the error that a chain of exceptions ended in.

    `echo` is true for a line that only tells of another one which the log does not hold: a process
    of the server was ended from outside. `step` is true when the server was not even begun: a setup
    step or a mod failed.
    """

    text: str
    process: str = ""
    led_to: str = ""
    echo: bool = False
    step: bool = False


@dataclass(frozen=True, slots=True)
class _Patterns:
    direct: re.Pattern[str]
    wrappers: re.Pattern[str]
    stopped: re.Pattern[str]
    shutdown: re.Pattern[str]
    generic: re.Pattern[str]
    ignored: re.Pattern[str]
    shell: re.Pattern[str]


@cache
def load_patterns() -> _Patterns:
    """Read the pattern lists that ship with the package."""
    text = (Path(__file__).parent / "data/root_lines.yaml").read_text(encoding="utf-8")
    data: dict[str, list[str]] = yaml.safe_load(text)
    return _Patterns(**{name: re.compile("|".join(patterns)) for name, patterns in data.items()})


def is_generic(text: str) -> bool:
    """Whether an error says nothing of its cause: other lines of the log do."""
    return load_patterns().generic.match(text) is not None


@dataclass(slots=True)
class _Thread:
    """What is going on in the lines of one process, which mix with those of others."""

    in_traceback: bool = False
    chained: bool = False
    quiet: bool = False
    pydantic: bool = False
    ignored: bool = False


@dataclass(slots=True)
class RootLineFinder:
    """Feed it every line; ask it at the end. `root` is the first real error so far."""

    _threads: dict[str, _Thread] = field(default_factory=dict)
    root: RootLine | None = None
    _wrapper: RootLine | None = None
    _stopped: RootLine | None = None
    _serving: bool = False
    _shutting_down: bool = False
    _server_spoke: bool = False
    _last: str = ""
    _step: str = ""

    def feed(self, line: LogLine) -> None:
        """Look at one line."""
        message = line.message
        if not self._server_spoke and (line.level or line.process):
            self._server_spoke = True
            if self.root is not None and load_patterns().shell.match(self.root.text):
                self.root = None  # the script went on
        text = message.strip()
        if text.startswith(STEP_MARK):
            self._step = self._step or text.removeprefix(STEP_MARK)
        elif text:
            self._last = text
        if not message or (line.level in _QUIET and not self._wants(line)):
            return
        if message[0] in " \t":
            # Inside a traceback: only what completes an error of pydantic is of use.
            inside = self._threads.get(line.process)
            if inside is None or not inside.pydantic:
                return
        thread = self._threads.setdefault(line.process, _Thread())
        if thread.pydantic and self.root is not None:
            self._complete_pydantic(thread, message)
            return
        self._look(line, thread)

    def _look(self, line: LogLine, thread: _Thread) -> None:
        """Look at a line that may begin, continue or end an error."""
        message, patterns = line.message, load_patterns()
        if _TRACEBACK.match(message):
            thread.in_traceback, thread.quiet = True, line.level in _QUIET or thread.ignored
            thread.ignored = False
        elif patterns.ignored.match(message):
            thread.ignored = True
        elif _CHAIN.match(message):
            thread.chained = True
        elif patterns.direct.match(message):
            self._take_root(line, thread)
        elif patterns.wrappers.match(message):
            self._wrapper = self._wrapper or RootLine(message, line.process, echo=True)
            thread.in_traceback = thread.chained = False
        elif (thread.in_traceback and message[:1] not in " \t" and _EXCEPTION.match(message)) or (
            line.level in ("ERROR", "CRITICAL") and _EXCEPTION.match(message)
        ):
            self._take_exception(line, thread)
        elif patterns.shutdown.match(message):
            self._shutting_down = True

    def forget(self) -> None:
        """The server is ready. What was logged before is not why it will die, and neither are the
        tracebacks that the API process logs for faulty requests from now on.
        """
        self.root = self._wrapper = self._stopped = None
        self._serving = True

    def result(self) -> RootLine | None:
        """The root line so far, or None when the log names no error."""
        return self.root or self._wrapper or self._stopped

    def before_the_server(self) -> RootLine | None:
        """What ended a log in which the server has not said a word: the step or the mod that the
        script names, and the last line beside that.

        The script names it on stderr and the step may have spoken on stdout: an engine reads two
        pipes, so either line may come first.
        """
        if self._server_spoke:
            return None
        if self._step:
            said = f"; its last line: {self._last}" if self._last else ""
            return RootLine(self._step + said, step=True)
        return RootLine(self._last) if self._last else None

    def _wants(self, line: LogLine) -> bool:
        message = line.message
        return bool(_TRACEBACK.match(message) or load_patterns().shutdown.match(message))

    def _take_exception(self, line: LogLine, thread: _Thread) -> None:
        chained, quiet = thread.chained, thread.quiet
        thread.in_traceback = thread.chained = thread.quiet = False
        if self._serving and line.process == "APIServer":
            return  # about a request
        if load_patterns().stopped.match(line.message):
            self._stopped = self._stopped or RootLine(line.message, line.process)
        elif quiet or self._shutting_down:
            return
        elif self.root is None:
            self._take_root(line, thread)
        elif chained and line.process == self.root.process:
            self.root = replace(self.root, led_to=line.message)

    def _take_root(self, line: LogLine, thread: _Thread) -> None:
        if self.root is None:
            self.root = RootLine(line.message.strip(), line.process)
            thread.pydantic = bool(_PYDANTIC.match(line.message))

    def _complete_pydantic(self, thread: _Thread, message: str) -> None:
        """Pydantic's reason stands below its first line: `Value error, …`, or a field and its
        fault.
        """
        assert self.root is not None  # noqa: S101 - by the caller
        text = message.strip()
        if message[:1] in " \t":
            thread.pydantic = False
            reason = text.removeprefix("Value error, ").split(" [type=")[0]
            head, colon, name = self.root.text.rpartition("\0")
            self.root = replace(self.root, text=f"{head}{name + ': ' if colon else ''}{reason}")
        elif re.fullmatch(r"[\w.]+", text):
            self.root = replace(self.root, text=f"\0{text}")
        else:
            thread.pydantic = False
