"""The verbs by name. A verb's module is imported when it runs; `--help` needs only this table."""

from __future__ import annotations

import importlib

import click

from spark_vllm_docker import __version__
from spark_vllm_docker.findings import did_you_mean

VERBS = {
    "list": "Recipes that can be started by name.",
    "show": "A recipe's parameters, where each comes from, and what would run.",
    "new": "Write a starter recipe for a model.",
    "check": "Show every fault of recipe files, each at its line.",
    "convert": "Write a recipe of another form as a structured one.",
    "schema": "The JSON Schema of recipes, for editors.",
    "flags": "The flags of `vllm serve` in a release, and what changed.",
    "plan": "Block size, memory, videos: what vLLM would only say after minutes.",
    "doctor": "Can this machine serve models? What is missing, and what mends it.",
    "render": "Print what `up` would run: command, script, docker run or docker-py.",
    "up": "Start a recipe, watch it to ready, prove it.",
    "smoke": "Start a recipe, prove it with every canary, take it away: for CI.",
    "compare": "Run a recipe on two images and say what differs.",
    "ps": "Deployments on this machine.",
    "logs": "The log of a deployment.",
    "diagnose": "What went wrong in the log of a deployment, or in any log of vLLM.",
    "rules": "The failures that diagnose knows, each with its cause and its fix.",
    "ask": "Ask a model about text, pictures, sound and video.",
    "watch": "Notes, a transcript or an answer from a video of any length.",
    "gateway": "One address in front of all deployments; video does not hold up chat.",
    "health": "Ask a deployment whether it can be used now.",
    "wait": "Wait until a deployment is ready.",
    "down": "Stop a deployment and remove it.",
}


class LazyGroup(click.Group):
    """A group whose commands are `command` in the modules `spark_vllm_docker.cli.<verb>_verb`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table: the way of a recipe from file to server."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"spark_vllm_docker.cli.{cmd_name}_verb")
        command = module.command
        assert isinstance(command, click.Command)  # noqa: S101 - a test looks at every verb
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with a did-you-mean."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(
                f"there is no command '{args[0]}'{did_you_mean(args[0], VERBS)}", ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing a verb."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="spark-recipe %(version)s")
def spark_recipe() -> None:
    """A YAML recipe becomes a running, watched, proven vLLM container.

    \b
    spark-recipe up nemotron-omni
    spark-recipe up recipes/mine.yaml --set port=8010 -- --seed 1
    """  # noqa: D301 - click's mark for lines that stay as they are
