"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from spark_vllm_docker.recipe.load import Recipe
    from spark_vllm_docker.render.deployment import Deployment

Command = TypeVar("Command", bound=Callable[..., Any])
ENGINES = ("docker", "podman", "process")

json_option = click.option("--json", "as_json", is_flag=True, help="One versioned JSON document.")
engine_option = click.option(
    "--engine",
    type=click.Choice(ENGINES),
    envvar="SPARK_RECIPE_ENGINE",
    help="docker (the default), podman, or process: no container, a child of this machine.",
)
name_argument = click.argument("name", metavar="NAME")


class PassThrough(click.Command):
    """A command in which everything after `--` is for vLLM, verbatim."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the words after the first `--` aside."""
        if "--" in args:
            at = args.index("--")
            ctx.meta["spark_recipe.extra"] = tuple(args[at + 1 :])
            args = args[:at]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """`[-- VLLM ARGUMENTS]` at the end of the usage line."""
        return [*super().collect_usage_pieces(ctx), "[-- VLLM ARGUMENTS]"]


@dataclass(frozen=True, slots=True)
class RecipeChoice:
    """A recipe and the options that change how it runs."""

    recipe: str
    sets: tuple[str, ...]
    network: str | None
    listen: str
    no_gpu: bool
    extra: tuple[str, ...]

    def load(self) -> Recipe:
        """Find and read the recipe."""
        from spark_vllm_docker.recipe.load import load_recipe
        from spark_vllm_docker.recipe.lookup import find_recipe

        return load_recipe(find_recipe(self.recipe))

    def build(
        self, recipe: Recipe, environ: Mapping[str, str], *, in_container: bool = True
    ) -> Deployment:
        """Render the recipe with the options."""
        from spark_vllm_docker.recipe.overrides import parse_set
        from spark_vllm_docker.render.build import LaunchOptions, build_deployment
        from spark_vllm_docker.render.deployment import LOOPBACK

        options = LaunchOptions(
            sets=tuple(parse_set(text) for text in self.sets),
            extra_arguments=self.extra,
            network=self.network,
            listen=self.listen,
            use_gpus=not self.no_gpu,
            in_container=in_container,
            with_api_key=self.listen not in (LOOPBACK, "::1", "localhost"),
        )
        return build_deployment(recipe, options, environ)

    def find_secrets(
        self, recipe: Recipe, deployment: Deployment, environ: Mapping[str, str]
    ) -> frozenset[str]:
        """The secret values that must not be shown."""
        from spark_vllm_docker.recipe.overrides import parse_set, resolve_parameters
        from spark_vllm_docker.render.secrets import find_secrets

        parameters = resolve_parameters(recipe, [parse_set(text) for text in self.sets])
        return find_secrets(deployment, recipe.keys.env, parameters, environ)


def recipe_options(command: Command) -> Command:
    """RECIPE, --set, --network, --listen and --no-gpu; `choose_recipe` reads them."""
    for decorate in reversed(
        (
            click.argument("recipe", metavar="RECIPE"),
            click.option(
                "--set", "sets", multiple=True, metavar="NAME=VALUE", help="Override a parameter."
            ),
            click.option(
                "--network", type=click.Choice(["bridge", "host"]), help="Instead of the recipe's."
            ),
            click.option(
                "--listen",
                default="127.0.0.1",
                show_default=True,
                metavar="ADDRESS",
                help="Publish the port on this address; any but the default gets an API key.",
            ),
            click.option("--no-gpu", is_flag=True, help="Start without GPUs, for CPU images."),
        )
    ):
        command = decorate(command)
    return command


def choose_recipe(
    recipe: str, sets: tuple[str, ...], network: str | None, listen: str, no_gpu: bool
) -> RecipeChoice:
    """Collect the options of `recipe_options` and what stands after `--`."""
    extra = click.get_current_context().meta.get("spark_recipe.extra", ())
    return RecipeChoice(recipe, sets, network, listen, no_gpu, extra)
