"""`Recipe` and options → the bash text that the container runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spark_vllm_docker.errors import UsageError
from spark_vllm_docker.recipe import nodes as rules
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.nodes import Nodes
from spark_vllm_docker.recipe.overrides import Overrides, Parameter
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import append_arguments, parse_serve
from spark_vllm_docker.recipe.shell import scan_shell
from spark_vllm_docker.render.deployment import LOOPBACK

_NOT_ONE_COMMAND = re.compile(r"[\n#;|&]|\\\Z")


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What the command line adds to a recipe.

    `in_container` is false for the process engine, where the server listens on the host itself.
    `nodes` are several machines, and `rank` which of them is meant.
    """

    overrides: Overrides = field(default_factory=Overrides)
    extra_arguments: tuple[str, ...] = ()
    network: str | None = None
    listen: str = LOOPBACK
    use_gpus: bool = True
    in_container: bool = True
    with_api_key: bool = False
    nodes: Nodes = field(default_factory=Nodes)
    rank: int = 0


def render_command(
    recipe: Recipe, parameters: Mapping[str, Parameter], options: LaunchOptions
) -> str:
    """The text of a recipe with its values, what was added to it, and its steps in front.

    Raises:
        UsageError: a value does not go with its format, or nothing keeps it off the network.
    """
    used = apply_machines(recipe, parameters, options.nodes)
    values = {name: parameter.value for name, parameter in used.items()}
    # Outside a container nothing stands between a server that listens everywhere and the network.
    if not options.in_container and "host" in recipe.command.names:
        values["host"] = options.listen
    try:
        command = recipe.command.fill(values)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{recipe.name}: a parameter does not go with its format: {error}"
        ) from error
    command = append_arguments(command, _and_words(options.extra_arguments))
    if recipe.form is not Form.STRUCTURED:
        command = rules.apply_nodes(command, options.nodes)
    command = append_arguments(command, rules.node_arguments(options.nodes, options.rank))
    command = _after_steps(recipe.fill_steps(values), command)
    if not options.in_container:
        serve = parse_serve(command)
        if serve is None and "host" not in recipe.command.names:
            raise UsageError(
                f"{recipe.name}: without a container nothing but --host keeps a server off the "
                "network, and this command starts no `vllm serve` that it could be given to",
                hint="write --host {host} in the command, or use --engine docker",
            )
        if serve is not None and serve.host != options.listen:
            command = append_arguments(command, ["--host", options.listen])
    return command


def apply_machines(
    recipe: Recipe, parameters: Mapping[str, Parameter], nodes: Nodes
) -> Mapping[str, Parameter]:
    """The parameters as they are used: version 1 counts machines with `tensor_parallel`, unless the
    user has set it, and on one machine that is 1.
    """
    found = parameters.get(rules.PARAMETER)
    own = recipe.paths.get(rules.PARAMETER)
    if recipe.form is not Form.VERSION_1 or found is None or own is None or nodes.several:
        return parameters
    if found.origin != recipe.origin(own) or found.value == 1:
        return parameters
    origin = f"one machine; {found.origin} says {found.value}"
    return {**parameters, rules.PARAMETER: Parameter(1, origin)}


def _after_steps(steps: Sequence[str], command: str) -> str:
    """The steps in front of a command: one that fails ends the script."""
    texts = [step.strip() for step in steps if _does_something(step)]
    if not texts:
        return command
    one = len(scan_shell(command).commands) == 1
    if one and not any(_NOT_ONE_COMMAND.search(text) for text in texts):
        return "".join(f"{text} && \\\n" for text in texts) + command
    # Several lines, comments, jobs in the background: bash itself must stop at what fails.
    return "\n".join(["set -e", *texts, "set +e", command])


def _does_something(step: str) -> bool:
    """Whether it is more than blanks and comments."""
    return any(row.strip() and not row.strip().startswith("#") for row in step.split("\n"))


def _and_words(arguments: Sequence[str]) -> list[str]:
    for argument in arguments:
        if "\0" in argument:
            raise UsageError("an argument holds a NUL character")
    return list(arguments)
