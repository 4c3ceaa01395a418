"""The bash script that a container runs, from `launch/serve.sh.j2`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from spark_vllm_docker import STEP_MARK
from spark_vllm_docker.catalog.shipped import find_shipped


@cache
def _templates() -> Environment:
    # The output is bash, not HTML: escaping is what `quote_export` does.
    return Environment(  # noqa: S701
        loader=FileSystemLoader(find_shipped("launch")),
        undefined=StrictUndefined,
        keep_trailing_newline=False,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render_script(
    name: str, command: str, exports: Iterable[tuple[str, str]], *, has_steps: bool = False
) -> str:
    """The script: a comment with the recipe's name, the exports, the command. With `has_steps` the
    step that ends it is told in a last line, which begins with `STEP_MARK`.
    """
    template = _templates().get_template("serve.sh.j2")
    quoted = [(key, quote_export(value)) for key, value in exports]
    return template.render(
        name=name, command=command, exports=quoted, has_steps=has_steps, mark=STEP_MARK
    )


def quote_export(value: str) -> str:
    """A value in double quotes in which only `$` keeps its meaning.

    Variables are expanded inside the container, as version-1 recipes expect; a quote inside the
    value (JSON) stays a quote.
    """
    for char in ("\\", '"', "`"):
        value = value.replace(char, "\\" + char)
    return f'"{value}"'
