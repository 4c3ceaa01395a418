"""The command templates. Version 1 is Python's `str.format`, and nothing else.

`{name}` is a parameter, `{{` and `}}` are literal braces. It is not Jinja. A format specification
(`{port:>5}`) works as in Python; attribute and index access is refused, because a parameter is a
plain value. Faults are reported with their offset in the template, so that the caller can name the
line. Other runners read the same files in other ways: `parse_lenient` and `parse_version2`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_FIELD = re.compile(r"(?P<name>[^!:]*)(?:!(?P<conversion>[rsa]))?(?::(?P<spec>[^{}]{0,16}))?\Z")
# Python would build a string of any width that the template asks for.
_SINGLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DOUBLED = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NESTING = 8
_MOST_CHARACTERS = 1 << 18
_WIDTH = re.compile(r"\d{4,}")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at an offset (in characters) of the template."""

    offset: int
    message: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`{name…}` at an offset; `text` is what stands between the braces."""

    offset: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Template:
    """A scanned template: literal text and placeholders in order, or the faults."""

    parts: tuple[str | Placeholder, ...]
    faults: tuple[Fault, ...]

    @property
    def names(self) -> frozenset[str]:
        """The parameters that the template uses."""
        return frozenset(p.name for p in self.parts if isinstance(p, Placeholder))


def parse_template(text: str) -> Template:
    """Scan a template. Never raises: what is wrong is in `faults`."""
    parts: list[str | Placeholder] = []
    faults: list[Fault] = []
    literal: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char not in "{}":
            end = _next_brace(text, at)
            literal.append(text[at:end])
            at = end
        elif text[at : at + 2] in ("{{", "}}"):
            literal.append(char)
            at += 2
        elif char == "}":
            faults.append(Fault(at, "a '}' without its '{'", "write '}}' for a literal brace"))
            at += 1
        else:
            end = text.find("}", at)
            if end < 0:
                faults.append(Fault(at, "a '{' without its '}'", "write '{{' for a literal brace"))
                break
            found = _parse_field(text[at + 1 : end], at)
            if isinstance(found, Fault):
                faults.append(found)
            else:
                parts += ["".join(literal), found]
                literal = []
            at = end + 1
    parts.append("".join(literal))
    return Template(tuple(part for part in parts if part != ""), tuple(faults))


def parse_lenient(text: str, known: Collection[str]) -> Template | None:
    """Read a command written for another runner, with raw JSON in it or with `{model}`.

    Only `{name}` with a known name is a placeholder; every other brace stays. None where that
    reading makes no sense either: braces that do not pair, or a `{word}` that nobody knows.
    """
    parts: list[str | Placeholder] = []
    at = depth = 0
    for found in re.finditer(r"\{([A-Za-z_][A-Za-z0-9_]*)\}|[{}]", text):
        if found[1] is None:
            depth += 1 if found[0] == "{" else -1
            if depth < 0:
                return None
        elif found[1] not in known:
            return None
        else:
            parts += [text[at : found.start()], Placeholder(found.start(), found[1], found[1])]
            at = found.end()
    parts.append(text[at:])
    return None if depth else Template(tuple(part for part in parts if part != ""), ())


def parse_version2(text: str, known: Collection[str], *, doubled: bool) -> Template:
    """Read a version-2 text: `{name}` with a known name is a placeholder, other braces stay.

    With `doubled`, the older spelling, every doubled brace is one brace.
    """
    pattern = _DOUBLED if doubled else _SINGLE
    parts: list[str | Placeholder] = []
    at = 0
    for found in pattern.finditer(text):
        parts.append(text[at : found.start()])
        at = found.end()
        if found[1] is not None and found[1] in known:
            parts.append(Placeholder(found.start(), found[1], found[1]))
        else:
            parts.append(found[0][0] if found[1] is None else found[0])
    parts.append(text[at:])
    return Template(tuple(part for part in parts if part != ""), ())


def resolve_values(values: Mapping[str, object]) -> dict[str, object]:
    """Version 2: values whose own placeholders are filled (`http://localhost:{port}`); mappings and
    lists are JSON. What names itself stays, and so does what would grow without end.
    """
    done: dict[str, object] = {}
    for name, value in values.items():
        whole = isinstance(value, (dict, list))
        done[name] = (
            json.dumps(value, separators=(",", ":"), ensure_ascii=False) if whole else value
        )
    for _ in range(_NESTING):
        changed = {
            name: filled
            for name, value in done.items()
            if isinstance(value, str)
            and "{" in value
            and (filled := _fill_inner(value, done, name)) != value
        }
        size = sum(len(value) for value in changed.values())
        if not changed or size > _MOST_CHARACTERS:
            break
        done |= changed
    return done


def _fill_inner(text: str, values: Mapping[str, object], own: str) -> str:
    def replace(found: re.Match[str]) -> str:
        name = found[1]
        return str(values[name]) if name in values and name != own else found[0]

    return _SINGLE.sub(replace, text)


def fill_template(template: Template, values: Mapping[str, object]) -> str:
    """The text with every placeholder replaced.

    Raises:
        KeyError: a placeholder has no value.
        ValueError: a value does not go with its format specification.
    """
    return "".join(
        part
        if isinstance(part, str)
        else f"{{{part.text}}}".format_map({part.name: values[part.name]})
        for part in template.parts
    )


def _next_brace(text: str, start: int) -> int:
    ends = [end for end in (text.find("{", start), text.find("}", start)) if end >= 0]
    return min(ends, default=len(text))


def _parse_field(text: str, offset: int) -> Placeholder | Fault:
    found = _FIELD.match(text)
    if found is None or not _NAME.match(found["name"]) or _WIDTH.search(found["spec"] or ""):
        shown = text if len(text) <= 40 else text[:37] + "..."
        return Fault(
            offset,
            f"'{{{shown}}}' is not a placeholder such as {{port}}",
            "write '{{' and '}}' for literal braces, as in JSON",
        )
    return Placeholder(offset, found["name"], text)
