"""YAML text → plain data that remembers the line and column of every key and value.

Built on PyYAML's node tree. What YAML allows and a recipe has no use for is refused here, with its
place: duplicate keys, merge keys, tags that make Python objects, files that are deep or huge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from spark_vllm_docker.errors import InvalidRecipe, RecipeNotFound, say_reason
from spark_vllm_docker.findings import Finding, Severity, Where

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 20_000
MAX_NUMBER = float(1 << 63)

_PLAIN_TAG = "tag:yaml.org,2002:"

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed file: its data, and where each key path stands.

    `keys[path]` is the place of the key (of the item, in a list) and `values[path]` the place of
    its value. `blocks` holds the indentation of block scalars, whose text begins on the line
    after. `duplicates` are the keys that are there twice: the last one counts, as in other YAML
    readers, and whoever knows the dialect says how much that weighs. `layers` names, for values
    that another file or a `when:` block has put there, which one.
    """

    file: str
    data: object
    keys: dict[KeyPath, Where] = field(default_factory=dict)
    values: dict[KeyPath, Where] = field(default_factory=dict)
    blocks: dict[KeyPath, int] = field(default_factory=dict)
    text: str = field(default="", repr=False)
    duplicates: tuple[Finding, ...] = ()
    layers: dict[KeyPath, str] = field(default_factory=dict)

    @property
    def start(self) -> Where:
        """The first line of the document."""
        return self.values.get((), Where(self.file))

    def where(self, path: KeyPath, *, value: bool = False) -> Where:
        """The place of `path`, or of the nearest parent that has one."""
        places = self.values if value else self.keys
        while path:
            if path in places:
                return places[path]
            path = path[:-1]
        return Where(self.file)


def read_text(path: Path) -> str:
    """The text of a recipe file.

    Raises:
        RecipeNotFound: it cannot be read.
        InvalidRecipe: it is not UTF-8 text of a reasonable size.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = say_reason(error)
        raise RecipeNotFound(f"{path}: cannot be read: {reason}") from error
    if len(raw) > MAX_BYTES:
        raise _too_large(str(path))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise _fault(Where(str(path), line), "the file is not UTF-8 text") from error


def parse_yaml(text: str, file: str) -> Source:
    """Parse one YAML document.

    Raises:
        InvalidRecipe: it is broken, empty, or uses what a recipe has no use for.
    """
    if len(text) > MAX_BYTES:
        raise _too_large(file)
    try:
        _check_size(text, file)
        node = yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        where = _where_of(error, file)
        raise _fault(where, _reason_of(error, text, where.line)) from error
    except yaml.YAMLError as error:
        raise _fault(Where(file), str(error).splitlines()[0].lower()) from error
    if node is None:
        raise _fault(Where(file), "the file is empty; a recipe is a mapping of keys")
    return _Reader(file, text).read(node)


def scan_tokens(text: str) -> Iterator[Any]:
    """The YAML tokens of a text that has been parsed before."""
    return iter(yaml.scan(text, Loader=Loader))


def _check_size(text: str, file: str) -> None:
    """Walk the events first: the node tree of a hostile file must not even be built."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            limit = f"{MAX_DEPTH} levels" if depth > MAX_DEPTH else f"{MAX_NODES} entries"
            raise _fault(_mark(event.start_mark, file), f"the file has more than {limit}")


class _Reader:
    """Turns the node tree into data and places."""

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._text = text
        self._lines = text.splitlines()
        self._loader = Loader("")
        self._keys: dict[KeyPath, Where] = {}
        self._values: dict[KeyPath, Where] = {}
        self._blocks: dict[KeyPath, int] = {}
        self._faults: list[Finding] = []
        self._duplicates: list[Finding] = []
        self._nodes = 0

    def read(self, node: yaml.Node) -> Source:
        data = self._value(node, ())
        if self._faults:
            raise InvalidRecipe(self._faults)
        twice = tuple(self._duplicates)
        places = (self._keys, self._values, self._blocks)
        return Source(self._file, data, *places, self._text, twice)

    def _value(self, node: yaml.Node, path: KeyPath) -> object:
        self._nodes += 1  # aliases make a small file large: count what is read, not what is written
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            raise _fault(self._mark(node), f"aliases make more than {MAX_NODES} entries")
        self._values[path] = self._mark(node)
        if isinstance(node, yaml.CollectionNode) and not node.tag.startswith(_PLAIN_TAG):
            self._fault(self._mark(node), f"the tag {node.tag} has no meaning in a recipe")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self._keys[(*path, index)] = self._mark(item)
                items.append(self._value(item, (*path, index)))
            return items
        # In a folded scalar (>) the lines of the text are not those of the file.
        if isinstance(node, yaml.ScalarNode) and node.style == "|":
            self._blocks[path] = self._indentation(node.start_mark.line + 1)
        return self._scalar(node)

    def _indentation(self, line: int) -> int:
        """Of the first line with something on it."""
        while line < len(self._lines) and not self._lines[line].strip():
            line += 1
        row = self._lines[line] if line < len(self._lines) else ""
        return len(row) - len(row.lstrip())

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        data: dict[str, object] = {}
        for key_node, value_node in node.value:
            where = self._mark(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(where, "a key must be a word, found a list or a mapping")
                continue
            key = str(key_node.value)
            if key_node.tag == "tag:yaml.org,2002:merge":
                self._fault(where, "merge keys (<<) are not supported; write the keys out")
            else:
                if key in data:
                    self._duplicate(key, where, (*path, key), data[key])
                self._keys[(*path, key)] = where
                data[key] = self._value(value_node, (*path, key))
        return data

    def _duplicate(self, key: str, where: Where, path: KeyPath, old: object) -> None:
        first = self._keys[path].line
        message = f"'{key}' is here twice, and the last one counts; the first is on line {first}"
        fix = "remove the one that is not meant"
        self._duplicates.append(Finding("REC014", Severity.WARNING, message, where, fix))
        for places in (self._keys, self._values) if isinstance(old, (dict, list)) else ():
            for below in [known for known in places if known[: len(path)] == path]:
                del places[below]

    def _scalar(self, node: yaml.Node) -> object:
        constructor = self._loader.yaml_constructors.get(node.tag)
        if constructor is None:
            self._fault(self._mark(node), f"the tag {node.tag} has no meaning in a recipe")
            return None
        if node.tag == "tag:yaml.org,2002:timestamp":
            return str(node.value)
        try:
            value = self._loader.construct_object(node)
            usable = not isinstance(value, bytes) and "\0" not in str(value)
            usable = usable and (not isinstance(value, (int, float)) or abs(value) <= MAX_NUMBER)
        except (ValueError, KeyError, IndexError, yaml.YAMLError):
            usable, value = False, None
        if not usable:
            kind, shown = node.tag.rpartition(":")[2], str(node.value)[:60]
            self._fault(self._mark(node), f"'{shown}' is no usable value of type {kind}")
        return value if usable else None

    def _mark(self, node: yaml.Node) -> Where:
        return _mark(node.start_mark, self._file)

    def _fault(self, where: Where, message: str) -> None:
        self._faults.append(Finding("REC001", Severity.ERROR, message, where))


def _mark(mark: Any, file: str) -> Where:
    return Where(file, mark.line + 1, mark.column + 1) if mark else Where(file)


def _where_of(error: yaml.MarkedYAMLError, file: str) -> Where:
    return _mark(error.problem_mark or error.context_mark, file)


def _reason_of(error: yaml.MarkedYAMLError, text: str, line: int) -> str:
    lines = text.splitlines()
    indent = lines[line - 1][: -len(lines[line - 1].lstrip()) or None] if line <= len(lines) else ""
    if "\t" in indent:
        return "the YAML is broken: a tab in the indentation; YAML is indented with spaces"
    parts = [part for part in (error.context, error.problem) if part]
    return "the YAML is broken: " + ", ".join(parts).lower()


def _too_large(file: str) -> InvalidRecipe:
    return _fault(Where(file), f"the file is larger than {MAX_BYTES >> 20} MiB")


def _fault(where: Where, message: str) -> InvalidRecipe:
    return InvalidRecipe([Finding("REC001", Severity.ERROR, message, where)])
