"""Mods: folders with a `run.sh` that patches the image inside the container, before the server.

The format's runner looks for them from the root of its repository, copies each to `mods/` in the
image's working directory, and runs it there with that directory in `WORKSPACE_DIR`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spark_vllm_docker.errors import Refused
from spark_vllm_docker.render.spec import Mount

_SCRIPT = "run.sh"
_INSIDE = "/spark-recipe/mods"


@dataclass(frozen=True, slots=True)
class Mod:
    """A mod that was found: `folder` on the host, `name` inside the container."""

    name: str
    folder: Path

    @property
    def mount(self) -> Mount:
        """Read-only: a mod works on a copy."""
        return Mount(str(self.folder), f"{_INSIDE}/{self.name}", read_only=True)

    @property
    def lines(self) -> str:
        """Bash: copy it beside the server's working directory, run it, stop when it fails."""
        quoted = f"mods/{self.name}"
        return (
            f"mkdir -p mods && cp -r {_INSIDE}/{self.name} mods/ || exit\n"
            f'(export WORKSPACE_DIR="$PWD"; cd {quoted} && bash ./{_SCRIPT}) || exit'
        )


def find_mods(names: list[str], recipe: Path) -> tuple[Mod, ...]:
    """The folders of a recipe's mods: looked for from the recipe's own folder upwards.

    Raises:
        Refused: one is not there; without it the image would serve something else.
    """
    return tuple(_find(name, recipe) for name in names)


def _find(name: str, recipe: Path) -> Mod:
    relative = Path(name)
    safe = not relative.is_absolute() and ".." not in relative.parts
    if safe and relative.name and all(char.isalnum() or char in "._-" for char in relative.name):
        for folder in recipe.resolve().parents:
            if (folder / relative / _SCRIPT).is_file():
                return Mod(relative.name, folder / relative)
    raise Refused(
        f"{recipe.stem} needs the mod {name}, and there is no {name}/{_SCRIPT} beside the recipe "
        "or above it; without its patches the image would serve something else",
        hint=f"copy the folder {name} of the recipe's repository beside the recipe",
    )
