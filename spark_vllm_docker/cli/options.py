"""Options that several verbs share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from spark_vllm_docker.catalog.hardware_names import HARDWARE

if TYPE_CHECKING:
    from spark_vllm_docker.recipe.overrides import Overrides
    from spark_vllm_docker.recipe.recipe import Recipe
    from spark_vllm_docker.render.command import LaunchOptions
    from spark_vllm_docker.render.deployment import Deployment

Command = TypeVar("Command", bound=Callable[..., Any])
_OPTIONS = ("recipe", "sets", "env", "hardware", "network", "listen", "no_gpu")
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
    env: tuple[str, ...]
    hardware: str | None
    network: str | None
    listen: str
    no_gpu: bool
    extra: tuple[str, ...]

    def load(self, environ: Mapping[str, str]) -> ChosenRecipe:
        """Find and read the recipe, for the hardware that is meant, with all that lies over it."""
        from spark_vllm_docker.catalog.hardware_names import CPU
        from spark_vllm_docker.errors import InvalidRecipe
        from spark_vllm_docker.recipe.load import load_recipe
        from spark_vllm_docker.recipe.lookup import find_recipe
        from spark_vllm_docker.recipe.user_config import (
            find_overrides,
            find_user_config,
            load_user_config,
        )

        config, source = load_user_config(find_user_config(environ))
        hardware = self._choose_hardware(config.hardware)
        file = find_recipe(self.recipe)
        try:
            recipe = load_recipe(file, hardware)
            if not hardware and recipe.keys.gpus == "none":
                recipe = load_recipe(file, CPU)
        except InvalidRecipe as error:
            from spark_vllm_docker.cli.checking import find_the_rest

            raise InvalidRecipe(find_the_rest(file, error.findings, hardware)) from None
        own = find_overrides(config, source, (recipe.name, recipe.file.stem))
        return ChosenRecipe(self, recipe, own)

    def _choose_hardware(self, configured: str | None) -> str:
        from spark_vllm_docker.catalog.hardware import detect_hardware
        from spark_vllm_docker.catalog.hardware_names import CPU

        return self.hardware or (CPU if self.no_gpu else configured or detect_hardware())


@dataclass(frozen=True)
class ChosenRecipe:
    """A recipe that was read, and what the user lays over it: first their configuration."""

    choice: RecipeChoice
    recipe: Recipe
    configured: Overrides

    def with_choice(self, choice: RecipeChoice) -> ChosenRecipe:
        """The same recipe with other options."""
        return dataclasses.replace(self, choice=choice)

    @functools.cached_property
    def overrides(self) -> Overrides:
        """The configuration, and the options over it."""
        from spark_vllm_docker.recipe.overrides import Overrides, parse_env, parse_set

        return Overrides(
            (*self.configured.sets, *(parse_set(text) for text in self.choice.sets)),
            (*self.configured.env, *(parse_env(text) for text in self.choice.env)),
        )

    def build(self, environ: Mapping[str, str], *, in_container: bool = True) -> Deployment:
        """Render the recipe with the options."""
        from spark_vllm_docker.render.build import build_deployment

        return build_deployment(self.recipe, self.options(in_container), environ)

    def command(self) -> str:
        """The command alone, without what a container needs besides."""
        from spark_vllm_docker.recipe.overrides import resolve_parameters
        from spark_vllm_docker.render.command import render_command

        parameters = resolve_parameters(self.recipe, self.overrides.sets)
        return render_command(self.recipe, parameters, self.options())

    def options(self, in_container: bool = True) -> LaunchOptions:
        """The options that the renderer takes."""
        from spark_vllm_docker.render.command import LaunchOptions
        from spark_vllm_docker.render.deployment import LOOPBACK

        choice = self.choice
        return LaunchOptions(
            overrides=self.overrides,
            extra_arguments=choice.extra,
            network=choice.network,
            listen=choice.listen,
            use_gpus=not choice.no_gpu,
            in_container=in_container,
            with_api_key=choice.listen not in (LOOPBACK, "::1", "localhost"),
        )

    def find_secrets(self, deployment: Deployment, environ: Mapping[str, str]) -> frozenset[str]:
        """The secret values that must not be shown."""
        from spark_vllm_docker.recipe.overrides import resolve_env, resolve_parameters
        from spark_vllm_docker.render.secrets import find_secrets

        parameters = resolve_parameters(self.recipe, self.overrides.sets)
        env = resolve_env(self.recipe, self.overrides.env)
        written = {name: value.value for name, value in env.items() if not value.from_host}
        return find_secrets(deployment, written, parameters, environ)


def recipe_options(command: Command) -> Command:
    """RECIPE and what changes how it runs; the command gets them as `choice`."""

    @functools.wraps(command)
    def with_choice(**values: Any) -> Any:
        own = {name: values.pop(name) for name in _OPTIONS}
        extra = click.get_current_context().meta.get("spark_recipe.extra", ())
        return command(choice=RecipeChoice(**own, extra=extra), **values)

    decorated: Any = with_choice
    for decorate in reversed(
        (
            click.argument("recipe", metavar="RECIPE"),
            click.option(
                "--set", "sets", multiple=True, metavar="NAME=VALUE", help="Override a parameter."
            ),
            click.option(
                "--env",
                multiple=True,
                metavar="NAME[=VALUE]",
                help="A variable of the server; without a value, the one of this machine.",
            ),
            click.option(
                "--hardware",
                type=click.Choice(HARDWARE),
                envvar="SPARK_RECIPE_HARDWARE",
                help="For `when:` blocks; without it, what the NVIDIA driver says.",
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
        decorated = decorate(decorated)
    return cast("Command", decorated)
