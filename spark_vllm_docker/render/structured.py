"""A recipe of another form → the text of a structured recipe with the same argv."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spark_vllm_docker.catalog.flags import find_release
from spark_vllm_docker.catalog.image_versions import read_vllm_version
from spark_vllm_docker.errors import InvalidRecipe, Refused
from spark_vllm_docker.recipe import nodes as rules
from spark_vllm_docker.recipe.arguments import Arguments, Given, read_arguments
from spark_vllm_docker.recipe.command import Argument
from spark_vllm_docker.recipe.flag_command import FlagCommand
from spark_vllm_docker.recipe.forms import Form
from spark_vllm_docker.recipe.recipe import Recipe
from spark_vllm_docker.recipe.serve import strip_command
from spark_vllm_docker.recipe.shell import Word, find_command, scan_shell
from spark_vllm_docker.recipe.source import parse_yaml
from spark_vllm_docker.render.recipe_text import write_recipe

_CONTINUED = re.compile(r"[ \t]*\\\n[ \t]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\.", re.DOTALL)
_EXPANDS = re.compile(r"[*?\[]|\{[^{}]*(?:,|\.\.)[^{}]*\}|^~")
_OPENS = ("then", "do", "else", "{", "(", "!")


@dataclass(frozen=True, slots=True)
class Conversion:
    """The text of the new recipe, and what its user should know."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Parts:
    """A command taken apart: bash before the server, variables in front of it, its words."""

    before: str
    env: Mapping[str, str]
    words: tuple[Word, ...]


def render_structured(recipe: Recipe) -> Conversion:
    """The same recipe with its flags as YAML.

    Raises:
        Refused: it starts something else than `vllm serve`, or its command has what values in YAML
            cannot say (variables, pipes, what follows the server).
    """
    if recipe.form is Form.STRUCTURED:
        raise Refused(f"{recipe.file} is a structured recipe already")
    notes: list[str] = []
    parts = _take_apart(recipe, _fill(recipe, notes))
    steps, comments = _split_comments(parts.before)
    flags = find_release(read_vllm_version(recipe.keys.container)).flags
    place = recipe.source.start
    arguments = read_arguments([Argument(place, word.value) for word in parts.words], flags)
    model, serve = _build_serve(recipe, arguments, flags, notes)
    _check_same(recipe, arguments, model, serve)
    if parts.before.strip() and not parts.before.rstrip().rstrip("\\").rstrip().endswith("&&"):
        notes.append("a step before the server that fails now ends the start")
    notes += _find_lost(recipe)
    data = _build_keys(recipe, model, parts.env, steps)
    text = write_recipe(recipe, data, serve, comments, _find_keys(recipe, flags))
    _check_text(recipe, text, data, serve)
    return Conversion(text, tuple(notes))


def _find_lost(recipe: Recipe) -> list[str]:
    """What the old file says and the new one does not."""
    notes = [note.message for note in recipe.notes if note.code == "REC015"]
    notes += [f"defaults.{name} was used by nothing, and is left out" for name in recipe.unused]
    data: Any = recipe.source.data
    if isinstance(data.get("overrides"), list):
        notes.append("overrides: are laid in as they hold here; other hardware needs when: blocks")
    if data.get("model_revision") and isinstance(data.get("command"), str):
        notes.append(
            "model_revision is left out, as the command does not use it; revision: sets it"
        )
    return notes


def _check_text(recipe: Recipe, text: str, data: dict[str, Any], serve: dict[str, Any]) -> None:
    """The text must be read as what it was written from."""
    try:
        again = parse_yaml(text, str(recipe.file)).data
    except InvalidRecipe as error:
        why = error.findings[0].message if error.findings else error.message
        raise _refuse(recipe, f"a value cannot be written: {why}") from error
    assert isinstance(again, dict)  # noqa: S101 - a mapping was written
    for name, value in {**data, "serve": serve}.items():
        if again.get(name) != value:
            raise _refuse(recipe, f"the value of {name} cannot be written in YAML")


def _fill(recipe: Recipe, notes: list[str]) -> str:
    """The command as it runs: on one machine, unless the recipe is for several only."""
    values = dict(recipe.values)
    counted = rules.PARAMETER
    alone = recipe.form is Form.VERSION_1 and not recipe.keys.cluster_only
    if alone and counted in recipe.command.names and values[counted] != 1:
        notes.append(
            f"{counted} is 1, as on one machine; it was {values[counted]}, for as many machines"
        )
        values[counted] = 1
    command = recipe.command.fill(values)
    return rules.apply_nodes(strip_command(command), rules.Nodes())


def _take_apart(recipe: Recipe, command: str) -> _Parts:
    line = scan_shell(command)
    found = find_command(line, "vllm", "serve")
    if found is None:
        raise _refuse(recipe, "its command starts no `vllm serve`")
    simple, at = found
    env = {}
    for word in simple.words[:at]:
        assigned = _ASSIGNMENT.fullmatch(word.value)
        if assigned is None and word.value != "exec":
            raise _refuse(recipe, f"`{word.value}` stands in front of `vllm serve`")
        if assigned is not None:
            if "$" in assigned[2]:
                raise _refuse(recipe, f"`{word.value}` has a $ that bash does not expand")
            env[assigned[1]] = assigned[2]
    words = simple.words[at + 2 :]
    for word in simple.words:
        if not word.fixed or _EXPANDS.search(_QUOTED.sub("", command[word.start : word.end])):
            raise _refuse(recipe, f"bash expands `{word.value}` in its command")
    if simple is not line.commands[-1] or simple.after.strip("\n"):
        raise _refuse(recipe, "something follows `vllm serve`")
    end = simple.words[-1].end
    rest = command[end:].strip().removesuffix("\\").strip()
    if rest and not rest.startswith("#"):
        raise _refuse(recipe, f"`{rest[:40]}` follows `vllm serve`")
    before = command[: simple.words[0].start]
    previous = line.commands[line.commands.index(simple) - 1] if len(line.commands) > 1 else None
    opened = previous is not None and previous.words[-1].value in _OPENS
    if opened or (previous and previous.after.strip("\n;&") and previous.after != "&&"):
        raise _refuse(recipe, "`vllm serve` stands inside a longer bash construct")
    return _Parts(before, env, words)


def _split_comments(before: str) -> tuple[list[str], dict[str, list[str]]]:
    """The steps before the server, and the comments in front of them and of the server.

    What has a quote or a here-document over several lines stays as it is, comments and all.
    """
    comments: dict[str, list[str]] = {"setup": [], "serve": []}
    rows = _CONTINUED.sub(" ", before).split("\n")
    if len([row for row in rows if row.strip() and not row.strip().startswith("#")]) > 1:
        text = textwrap.dedent(before).strip("\n")
        return [_without_join(text)], comments
    steps: list[str] = []
    for row in rows:
        text = row.strip()
        if text.startswith("#"):
            comments["serve" if steps else "setup"].append(text)
        elif text:
            steps.append(text)
    step = _without_join("\n".join(steps))
    if not step:
        return [], {"setup": [], "serve": comments["setup"]}
    return [step], comments


def _without_join(text: str) -> str:
    return re.sub(r"\s*(&&|;)\s*\\?\s*$", "", text).strip()


def _build_serve(
    recipe: Recipe,
    arguments: Arguments,
    flags: Mapping[str, dict[str, Any]],
    notes: list[str],
) -> tuple[str, dict[str, Any]]:
    if len(arguments.positional) > 1:
        words = " ".join(word.value for word in arguments.positional)
        raise _refuse(recipe, f"there are several words that could be the model: {words}")
    for given in arguments.given:
        kind = flags.get(given.name, {}).get("kind", "")
        if kind in ("bool", "store_true", "store_false") and given.values and not given.key:
            word = given.values[0].value
            raise _refuse(recipe, f"{given.written} takes no value, and '{word}' follows it")
    model = arguments.positional[0].value if arguments.positional else ""
    serve: dict[str, Any] = {}
    for given in arguments.given:
        key = find_key(given, flags)
        value = _find_value(given, flags.get(given.name, {}))
        if key == "model" and not model:
            model = str(value)
        elif key in serve and flags.get(given.name, {}).get("kind") == "append":
            old = serve[key]
            serve[key] = [*(old if isinstance(old, list) else [old]), value]
        else:
            if key in serve:
                notes.append(f"{given.written} was given twice; the last one is kept")
                del serve[key]
            serve[key] = value
    if not model:
        raise _refuse(recipe, "it names no model after `vllm serve`")
    if recipe.keys.model and recipe.keys.model != model:
        notes.append(f"model: is what the command serves, {model}; it said {recipe.keys.model}")
    return model, serve


def find_key(given: Given, flags: Mapping[str, dict[str, Any]]) -> str:
    """The key of a flag: its spelling without two dashes, a short one as it is."""
    written = given.written
    if written.startswith("-O") and len(written) > 2:
        return written
    if given.negated and given.name and f"--no-{given.name[2:]}" not in flags:
        return given.name[2:]
    if not written.startswith("--"):
        return written
    return written[2:]


def _find_value(given: Given, flag: Mapping[str, Any]) -> Any:
    words = [value.value for value in given.values]
    if given.negated:
        return False
    if not words or given.written.startswith("-O"):
        return True if len(given.written) != 2 or not words else _as_scalar(words[0])
    if len(words) > 1 or flag.get("nargs") in ("+", "*"):
        return [_as_scalar(word) for word in words] if len(words) > 1 else _as_scalar(words[0])
    word = words[0]
    if flag.get("kind") in ("json", "json-or-str") and word[:1] in "{[" and not given.key:
        try:
            return json.loads(word)
        except (json.JSONDecodeError, RecursionError):
            return word
    if given.key and word in ("true", "false"):
        return word == "true"
    return _as_scalar(word)


def _as_scalar(word: str) -> str | int | float:
    """A number where its text is the same again; else the text."""
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        if str(value) == word and word not in ("inf", "nan", "-inf"):
            return value
    return word


def _check_same(recipe: Recipe, arguments: Arguments, model: str, serve: dict[str, Any]) -> None:
    """Read the new recipe's words as the old one's were read: they must say the same."""
    version = read_vllm_version(recipe.keys.container) or ""
    place = recipe.source.start
    command = FlagCommand(
        version, model, tuple(serve.items()), {"": (place, place), "model": (place, place)}
    )
    again = read_arguments(
        command.read_arguments(command.values) or (), find_release(version).flags
    )
    before, after = list(_meaning(arguments)), list(_meaning(again))
    if before != after:
        at = next((i for i, (b, a) in enumerate(zip(before, after, strict=False)) if b != a), -1)
        raise _refuse(recipe, f"`{arguments.given[at].written}` would change its meaning")


def _meaning(arguments: Arguments) -> Iterator[tuple[object, ...]]:
    """Flags in order; of one that is given twice the last, as vLLM takes it."""
    last = {(g.name or g.written, g.key): n for n, g in enumerate(arguments.given)}
    for number, given in enumerate(arguments.given):
        name = given.name or given.written.partition(".")[0].replace("_", "-")
        if name == "--model" and not arguments.positional:
            continue
        words = tuple(_comparable(value.value) for value in given.values)
        if last[given.name or given.written, given.key] == number or name == "--middleware":
            yield name, given.key, given.negated, words


def _comparable(word: str) -> object:
    if word[:1] not in "{[":
        return word
    try:
        return json.dumps(json.loads(word), sort_keys=True)
    except (json.JSONDecodeError, RecursionError):
        return word


def _build_keys(
    recipe: Recipe, model: str, env: Mapping[str, str], steps: list[str]
) -> dict[str, Any]:
    """The keys beside `serve`, in the order in which they are written."""
    keys = recipe.keys
    literal = [name for name, value in keys.env.items() if "$" in str(value)]
    if keys.env_is_literal and literal:
        raise _refuse(recipe, f"env.{literal[0]} has a literal $, which would be expanded")
    set_keys = keys.model_dump(exclude_defaults=True, exclude={"env_is_literal", "setup", "env"})
    first = {"name": keys.name, "description": keys.description, "model": model}
    first["container"] = keys.container
    data: dict[str, Any] = {name: value for name, value in first.items() if value}
    data |= {name: _whole(value) for name, value in set_keys.items() if name not in first}
    if keys.env or env:
        data["env"] = {**keys.env, **env}
    if keys.setup or steps:
        data["setup"] = [*recipe.fill_steps(recipe.values), *steps]
    return data


def _whole(value: object) -> object:
    """300.0 as 300."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _find_keys(recipe: Recipe, flags: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Parameter → the flag whose value it is, for the comments that stand at it."""
    found: dict[str, str] = {}
    nothing = {name: f"{{{name}}}" for name in recipe.values}
    words = recipe.command.read_arguments(nothing)
    for given in read_arguments(words or (), flags).given:
        for name in re.findall(r"\{(\w+)\}", " ".join(word.value for word in given.values)):
            found.setdefault(name, find_key(given, flags))
    return found


def _refuse(recipe: Recipe, why: str) -> Refused:
    return Refused(f"{recipe.file} cannot be converted: {why}")
