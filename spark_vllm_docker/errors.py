"""Every error that spark-recipe raises on purpose.

    SparkRecipeError                exit code
    ├── UsageError                  2   the command line asks for something that cannot be meant
    ├── Refused                     1   the answer is no
    │   ├── RecipeNotFound
    │   ├── InvalidRecipe               carries all findings at once
    │   ├── SpecDiffers                 running already, with another spec
    │   ├── BadMedia                    a file that no model can look at or listen to
    │   ├── RequestRefused              the server refuses a request; the text says what to change
    │   └── NotProven                   the server answers, but not what the recipe promises
    ├── EngineError                 4   the engine or the image is not there
    │   ├── EngineUnavailable
    │   ├── EngineForbidden
    │   ├── ImageMissing
    │   ├── PullFailed
    │   ├── BuildFailed
    │   ├── NoSpace
    │   ├── NameTaken
    │   ├── PortTaken
    │   ├── NoGpuSupport
    │   ├── ServerUnreachable           nothing answers at the address of a server
    │   └── NotDeployed                 nothing of ours has that name
    ├── ServerFailed                5   the server exited or stalled
    └── TimedOut                    6   a limit that the user set has passed

A finding is something noticed; an exception means that we cannot go on. Foreign exceptions become
one of these at the border where they appear (`engine/docker_errors.py` is the largest such border).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spark_vllm_docker.findings import Finding

GPU_HINT = (
    "sudo apt-get install nvidia-container-toolkit && sudo nvidia-ctk runtime configure "
    "--runtime=docker && sudo systemctl restart docker; or --no-gpu with a CPU image"
)

DISK_HINT = "docker system df shows what uses it; docker system prune frees what nothing uses"


def say_reason(error: OSError) -> str:
    """What the system says of a file, in lower case: `no such file or directory`."""
    return (error.strerror or str(error)).lower()


class SparkRecipeError(Exception):
    """Known trouble: one lower-case sentence, its cause when that is known, and a hint that is a
    command or an edit.
    """

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, cause: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.cause = cause
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        """Keyword arguments survive pickling: a recipe may be read in another process."""
        return (_rebuild, (type(self), self.__dict__))


def _rebuild(kind: type[SparkRecipeError], state: dict[str, object]) -> SparkRecipeError:
    error = kind.__new__(kind, str(state["message"]))
    error.__dict__.update(state)
    return error


class UsageError(SparkRecipeError):
    """The options contradict each other or name something that does not exist."""

    exit_code = 2


class Refused(SparkRecipeError):
    """The question was understood and the answer is no."""

    exit_code = 1


class RecipeNotFound(Refused):
    """No recipe file has that name."""


class InvalidRecipe(Refused):
    """A recipe file with at least one fault; all faults are in `findings`."""

    def __init__(self, findings: Sequence[Finding], *, hint: str = "") -> None:
        count = len(findings)
        super().__init__(f"the recipe has {count} fault{'s' if count > 1 else ''}", hint=hint)
        self.findings = tuple(findings)


class SpecDiffers(Refused):
    """The recipe runs already, with another spec."""


class BadMedia(Refused):
    """A file that cannot be read, or is of no kind that a model takes."""


class RequestRefused(Refused):
    """A server answered a request with an error. `status` is that of HTTP, 0 where the connection
    broke; `words` are the server's own; `kind` names what is known, such as `too-long`; `address`
    is that of the server.
    """

    def __init__(
        self, message: str, *, hint: str = "", status: int = 0, words: str = "", kind: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.words = words
        self.kind = kind
        self.address = ""


class NotProven(Refused):
    """The server answers, but it did not prove what the recipe promises."""


class EngineError(SparkRecipeError):
    """The engine, or something that it was asked for, is not available."""

    exit_code = 4


class EngineUnavailable(EngineError):
    """No engine answers at the address."""


class EngineForbidden(EngineError):
    """The engine's socket may not be opened by this user."""


class ImageMissing(EngineError):
    """The image is neither here nor in its registry, and cannot be built."""


class PullFailed(EngineError):
    """The registry or the engine broke off a pull."""


class BuildFailed(EngineError):
    """A build step failed."""


class NoSpace(EngineError):
    """The disk of the engine is full."""


class NameTaken(EngineError):
    """A container that is not ours has the name."""


class PortTaken(EngineError):
    """Something listens on the port already."""


class NoGpuSupport(EngineError):
    """The engine cannot hand a GPU to a container."""


class ServerUnreachable(EngineError):
    """Nothing answers at the address of a server."""


class NotDeployed(EngineError):
    """No deployment of ours has that name."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """The rule that explains a failure, and the flags and variables that mend it without anybody's
    judgement; a flag whose value is None is taken away. `kind` is that of the rule's fix.
    """

    rule: str
    flags: tuple[tuple[str, str | None], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    kind: str = ""


class ServerFailed(SparkRecipeError):
    """The server process ended or stalled. `remedy` is None where no rule knows why; `served` says
    whether it had been ready.
    """

    exit_code = 5

    def __init__(
        self,
        message: str,
        *,
        cause: str = "",
        hint: str = "",
        remedy: Remedy | None = None,
        served: bool = False,
    ) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.remedy = remedy
        self.served = served


class TimedOut(SparkRecipeError):
    """A time limit that the user set has passed."""

    exit_code = 6
