"""Recipe file → `Recipe`, with all faults of the file at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from spark_vllm_docker.errors import InvalidRecipe
from spark_vllm_docker.findings import Finding, Severity, Where, did_you_mean
from spark_vllm_docker.recipe.faults import build_findings
from spark_vllm_docker.recipe.models import RecipeModel, Scalar
from spark_vllm_docker.recipe.source import Source, parse_yaml, read_text
from spark_vllm_docker.recipe.template import Template, parse_lenient, parse_template

MODEL = "model"
SUGGESTIONS = 20  # after so many faults nobody reads on, and each costs a search


@dataclass(frozen=True, slots=True)
class Recipe:
    """A valid recipe: typed keys, the scanned command, and where everything stands."""

    file: Path
    keys: RecipeModel
    command: Template
    source: Source
    notes: tuple[Finding, ...] = ()

    @property
    def values(self) -> Mapping[str, Scalar]:
        """The defaults, and `model` where the lenient reading uses it."""
        defaults = self.keys.defaults
        if MODEL in self.command.names and MODEL not in defaults:
            return {MODEL: self.keys.model, **defaults}
        return defaults

    @property
    def command_text(self) -> str:
        """The command as it stands in the file, with its placeholders."""
        return self.keys.command

    @property
    def name(self) -> str:
        """The name under which it is deployed and listed."""
        return self.keys.name


def load_recipe(path: Path) -> Recipe:
    """Read and check one recipe file.

    Raises:
        RecipeNotFound: the file cannot be read.
        InvalidRecipe: with every fault that the file has.
    """
    return parse_recipe(read_text(path), path)


def parse_recipe(text: str, path: Path) -> Recipe:
    """Check the text of a recipe; `path` names it in findings and resolves what is relative."""
    source = parse_yaml(text, str(path))
    findings: list[Finding] = []
    keys: RecipeModel | None = None
    try:
        keys = RecipeModel.model_validate(source.data)
    except ValidationError as error:
        findings += build_findings(error, source, RecipeModel)
    # The command is checked even when another key is at fault, so that one run shows everything.
    template = _raw_template(source.data)
    notes: tuple[Finding, ...] = ()
    if template is not None:
        faults = check_command(template, source, _raw_defaults(source.data))
        lenient = _read_leniently(source.data) if faults else None
        if lenient is not None:
            template, notes = lenient, (_say_lenient(lenient, source),)
        else:
            findings += faults
    if findings or keys is None or template is None:
        raise InvalidRecipe(sorted(findings, key=lambda f: f.where or Where(str(path))))
    return Recipe(path, keys, template, source, notes)


def check_command(
    template: Template, source: Source, defaults: Mapping[str, object]
) -> list[Finding]:
    """Findings for stray braces and for placeholders without a value."""
    findings = [
        Finding(
            "REC006",
            Severity.ERROR,
            f"command: {fault.message}",
            find_place(source, fault.offset),
            fault.fix,
        )
        for fault in template.faults
    ]
    for part in template.parts:
        if isinstance(part, str) or part.name in defaults:
            continue
        close = did_you_mean(part.name, defaults) if len(findings) < SUGGESTIONS else ""
        findings.append(
            Finding(
                "REC007",
                Severity.ERROR,
                f"command: {{{part.name}}} has no value{close}",
                find_place(source, part.offset),
                f"add '{part.name}:' to defaults",
            )
        )
    return findings


def find_place(source: Source, offset: int) -> Where:
    """The place of a character of the command. A block scalar's text starts on the next line."""
    data = source.data
    assert isinstance(data, dict)  # noqa: S101 - only called with a command in hand
    before = str(data["command"])[:offset]
    start = source.where(("command",), value=True)
    if ("command",) not in source.blocks:
        return start
    line = start.line + 1 + before.count("\n")
    below = source.text.splitlines()[start.line :]
    indent = next((len(row) - len(row.lstrip()) for row in below if row.strip()), 0)
    return Where(start.file, line, indent + len(before) - before.rfind("\n"))


def _read_leniently(data: object) -> Template | None:
    """The lenient reading, where the file needs it and it makes sense."""
    assert isinstance(data, dict)  # noqa: S101 - only called with a command in hand
    known = {*_raw_defaults(data), *([MODEL] if isinstance(data.get(MODEL), str) else [])}
    return parse_lenient(data["command"], known)


def _say_lenient(template: Template, source: Source) -> Finding:
    injected = " and {model} from model:" if MODEL in template.names else ""
    message = f"read leniently: other braces stay{injected}; the file was made for another runner"
    return Finding("REC011", Severity.NOTE, message, source.where(("command",), value=True))


def _raw_template(data: object) -> Template | None:
    command = data.get("command") if isinstance(data, dict) else None
    return parse_template(command) if isinstance(command, str) else None


def _raw_defaults(data: object) -> Mapping[str, object]:
    defaults = data.get("defaults") if isinstance(data, dict) else None
    return defaults if isinstance(defaults, dict) else {}
