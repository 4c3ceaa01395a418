"""An exit and a root line → the two lines that stand at the end: cause and fix.

A server that ends is a failure whatever its exit code says: vLLM exits with 0 when its engine
process was killed (seen with 0.20.0 and 0.32.0).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_vllm_docker.diagnose.matcher import Diagnosis
from spark_vllm_docker.diagnose.root_line import RootLine

_SIGKILL, _SIGTERM = 137, 143
NOT_EXECUTABLE, _NOT_FOUND, _USAGE = 126, 127, 2


@dataclass(frozen=True, slots=True)
class Death:
    """Why a server ended and what to do about it, each in one line."""

    cause: str
    fix: str


_LONGEST = 320


def explain_death(
    code: int,
    root: RootLine | None,
    name: str,
    *,
    out_of_memory: str = "",
    diagnosis: Diagnosis | None = None,
) -> Death:
    """The cause by the rule that matches, else in the server's own words when it left some, else
    from the way it ended. `out_of_memory` is what shows that the kernel killed for want of memory.
    """
    see = f"spark-recipe logs {name} shows everything; spark-recipe down {name} removes it"
    if out_of_memory:
        return Death(
            f"the kernel killed a process of the server: out of memory ({out_of_memory})",
            f"lower gpu_memory_utilization, max_model_len or max_num_seqs; {see}",
        )
    if diagnosis is not None:
        said = _cut(f"{diagnosis.process}: " if diagnosis.process else "", diagnosis.line)
        return Death(
            f"{diagnosis.rule.name}. {diagnosis.cause} ({said})",
            f"{diagnosis.fix}; spark-recipe rules {diagnosis.rule.id}; {see}",
        )
    if root is not None and not root.echo:
        led = f" (and so: {root.led_to})" if root.led_to else ""
        where = f"{root.process}: " if root.process and root.process != "APIServer" else ""
        cause = _cut(where, f"{root.text}{led}")
        edit = ""
        if root.step:
            edit = "the server was not begun; mend the step or the mod, then run up again; "
        elif code == _USAGE:
            edit = "change the flag in the recipe or after --, then run up again; "
        return Death(cause, f"{edit}{see}")
    if root is not None:
        return Death(
            f"a process of the server was killed and left no error of its own ({root.text})",
            f"the usual killer is the kernel when memory runs out: dmesg | grep -i oom; {see}",
        )
    return Death(_by_code(code), see)


def _cut(process: str, text: str) -> str:
    whole = f"{process}{text}"
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}…"


def _by_code(code: int) -> str:
    if code == 0:
        return "the server ended by itself and left no error (its exit code is 0)"
    if code == _SIGKILL:
        return "SIGKILL from outside: docker kill, or the kernel when memory ran out"
    if code == _SIGTERM:
        return "SIGTERM from outside: somebody stopped it"
    if code == _NOT_FOUND:
        return "the image does not have the command that the recipe runs"
    if code == NOT_EXECUTABLE:
        return "the image's command may not be executed"
    if code > 128:
        return f"signal {code - 128} ended the server"
    return f"the server left no error; its exit code is {code}"
