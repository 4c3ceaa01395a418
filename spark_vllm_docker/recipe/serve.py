"""`vllm serve` inside a rendered command: what it serves, where it listens, how it becomes PID
1's child.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from spark_vllm_docker.recipe.shell import Word, find_command, scan_shell

UNKNOWN = "\0"
"""Stands for a word whose value only bash knows, such as `$MODEL`."""
VLLM_DEFAULT_PORT = 8000  # vllm/entrypoints/openai/cli_args.py, 0.16 to 0.32
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """The `vllm serve` of a command, as argparse would see it.

    `arguments` are the words after `serve`. Of a flag that is given twice the last one counts, as
    in
    vLLM.
    """

    arguments: tuple[str, ...]

    @property
    def model(self) -> str:
        """The model, from its place after `serve` or from `--model`; empty if there is none."""
        if self.arguments and not self.arguments[0].startswith("-"):
            return self.arguments[0]
        return self.flag("--model")

    @property
    def served(self) -> tuple[str, ...]:
        """The names under which `/v1/models` lists the model; none when only bash knows them."""
        names = self.flag_values("--served-model-name") or ((self.model,) if self.model else ())
        return () if UNKNOWN in names else names

    @property
    def port(self) -> int:
        """The port that it listens on; 0 when the flag's value is not a number."""
        value = self.flag("--port")
        if not value:
            return VLLM_DEFAULT_PORT
        return int(value) if value.isdecimal() and int(value) < 65536 else 0

    @property
    def host(self) -> str:
        """The address that it listens on; empty (all addresses) when it does not say."""
        return self.flag("--host")

    @property
    def api_key(self) -> str:
        """The first key of `--api-key`, or empty."""
        return self.flag("--api-key").replace(UNKNOWN, "")

    def flag(self, name: str) -> str:
        """The first value of a flag, or empty."""
        values = self.flag_values(name)
        return values[0] if values else ""

    def flag_values(self, name: str) -> tuple[str, ...]:
        """All values of a flag (it may take several words), or nothing."""
        values: tuple[str, ...] = ()
        for index, word in enumerate(self.arguments):
            flag, equals, value = word.partition("=")
            if flag.replace("_", "-") != name:
                continue
            if equals:
                values = (value,)
                continue
            found = []
            for following in self.arguments[index + 1 :]:
                if following.startswith("--") or re.match(r"-[A-Za-z]", following):
                    break
                found.append(following)
            values = tuple(found)
        return values


def parse_serve(command: str) -> ServeCommand | None:
    """The last `vllm serve` of a command, or None when the command starts something else."""
    found = find_command(scan_shell(command), "vllm", "serve")
    if found is None:
        return None
    simple, at = found
    words = simple.words[at + 2 :]
    return ServeCommand(tuple(word.value if word.fixed else UNKNOWN for word in words))


def find_serve_words(command: str) -> tuple[Word, ...] | None:
    """The words after the last `vllm serve`, with their places; None for another command."""
    found = find_command(scan_shell(command), "vllm", "serve")
    return None if found is None else found[0].words[found[1] + 2 :]


def append_arguments(command: str, arguments: Sequence[str]) -> str:
    """Put arguments at the end of `vllm serve` (of the text, when the command starts something
    else).
    """
    text = strip_command(command)
    if not arguments:
        return text
    line = scan_shell(text)
    found = find_command(line, "vllm", "serve")
    if found is not None:
        end = found[0].words[-1].end
    else:
        end = line.comment_at if line.comment_at >= 0 else len(text)
    head, tail = text[:end].rstrip(), text[end:]
    # A continuation that follows the insertion would swallow nothing and stays where it is.
    return f"{head} {shlex.join(arguments)}{tail}"


def strip_command(command: str) -> str:
    """Without trailing blanks and without one trailing backslash, as the format's runner does."""
    text = command.rstrip()
    return text[:-1].rstrip() if text.endswith("\\") else text


def exec_serve(command: str) -> str:
    """Put `exec` before a `vllm serve` that ends the command, so that bash does not stay between
    the
    container's init and the server: a stop signal then reaches vLLM, and its exit is the
    container's.

    The command is left alone where that could change what it does: something follows, the server is
    in the background or in a pipe, or the text holds what the scanner does not understand.
    """
    line = scan_shell(command)
    found = find_command(line, "vllm", "serve")
    if found is None or not line.plain:
        return command
    simple, at = found
    starts_with_it = all(_ASSIGNMENT.match(word.value) for word in simple.words[:at])
    alone = simple is line.commands[-1] and not simple.after.strip("\n")
    piped = any("|" in c.after and c.after != "||" for c in line.commands if c is not simple)
    if not (starts_with_it and alone) or piped:
        return command
    start = simple.words[at].start
    return f"{command[:start]}exec {command[start:]}"
