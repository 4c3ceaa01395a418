"""Mods: folders with a `run.sh` that patches the image inside the container, before the server.

The format's runner looks for them from the root of its repository, copies each to `mods/` in the
image's working directory, and runs it there with that directory in `WORKSPACE_DIR`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from spark_vllm_docker import STEP_MARK
from spark_vllm_docker.errors import Refused
from spark_vllm_docker.recipe.lookup import is_file
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.render.spec import Mount

_SCRIPT = "run.sh"
_INSIDE = "/spark-recipe/mods"


@dataclass(frozen=True, slots=True)
class Mod:
    """A mod that was found: `folder` on the host, `name` inside the container; `number` counts
    them.
    """

    number: int
    name: str
    folder: Path

    @property
    def mount(self) -> Mount:
        """Read-only: a mod works on a copy."""
        return Mount(str(self.folder), self._inside, read_only=True)

    @property
    def _inside(self) -> str:
        return f"{_INSIDE}/{self.number}-{self.name}"

    @property
    def lines(self) -> str:
        """Bash: copy it beside the server's working directory, run it, stop when it fails."""
        quoted = f"mods/{self.name}"
        return (
            f"mkdir -p mods && rm -rf {quoted} && cp -r {self._inside} {quoted} || exit\n"
            f'(export WORKSPACE_DIR="$PWD"; cd {quoted} && bash ./{_SCRIPT}) || '
            f'{{ told=$?; echo "{STEP_MARK}the mod {self.name} ended with $told" >&2; '
            "exit $told; }"
        )


def find_mods(recipe: Recipe) -> tuple[Mod, ...]:
    """The folders of a recipe's mods: looked for from the folder of the file that names them
    upwards.

    Raises:
        Refused: one is not there; without it the image would serve something else.
    """
    return tuple(
        _find(number, name, recipe.folder_of(("mods", number)), recipe.file.stem)
        for number, name in enumerate(recipe.keys.mods)
    )


def _find(number: int, name: str, beside: Path, recipe: str) -> Mod:
    relative = Path(name)
    safe = not relative.is_absolute() and ".." not in relative.parts
    if safe and relative.name and all(char.isalnum() or char in "._-" for char in relative.name):
        start = beside.resolve()
        for folder in (start, *start.parents):
            found = folder / relative
            if is_file(found / _SCRIPT) and ":" not in str(found):
                return Mod(number, relative.name, found)
    raise Refused(
        f"{recipe} needs the mod {name}, and there is no {name}/{_SCRIPT} beside the recipe "
        "or above it; without its patches the image would serve something else",
        hint=f"copy the folder {name} of the recipe's repository beside the recipe",
    )
