"""A YAML or JSON file as plain values, and the line of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from retention.config.quick_nodes import quick_nodes
from retention.core.encoding import utf8
from retention.errors import ConfigError, NoConfigError

Place: TypeAlias = tuple[str | int, ...]
"""The keys and indexes that lead to a value, from the top of a file."""

_MERGE = "tag:yaml.org,2002:merge"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_DEEPEST = 64
_BRACKETS = re.compile(rf"(?:[\[{{]\s*){{{_DEEPEST + 1}}}")
_MOST_BYTES = 16 << 20
_MOST_REPEATED = 20_000
"""The maximum number of values that aliases may expand to: this many, and `_MOST_TIMES` as many as are written."""
_MOST_TIMES = 20
_MOST_SHOWN = 40
_MOST_QUOTED = 400
_KINDS = {"streams": "stream", "buckets": "bucket", "topics": "topic", "tables": "table"}
_MOST_BITS = 128
"""The maximum number of bits of an integer; the largest that any key accepts has 64."""


@dataclass(frozen=True)
class Mistake:
    """A mistake at a place in a file; `line` is set if it is not the line of the place."""

    place: Place
    text: str
    line: int | None = None


@dataclass
class ConfigDocument:
    """A file's values, the line of each, and its syntax mistakes."""

    path: str | Path
    values: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def line(self, place: Place) -> int:
        """The line of a place, or of the nearest enclosing place in the file; counted from 1."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def read_document(path: str | Path, content: bytes | None = None) -> ConfigDocument:
    """Parse a file, or its given content, as YAML 1.2, a superset of JSON.

    Raises:
        ConfigError: there is no such file, or it is not YAML.
    """
    try:
        content = _content(path) if content is None else content
        if len(content) > _MOST_BYTES:
            raise ConfigError(f"{path}:1: is longer than {_MOST_BYTES >> 20} MiB; write less")
        root = _root(utf8(content))
    except OSError as error:
        kind = NoConfigError if isinstance(error, FileNotFoundError) else ConfigError
        raise kind(
            f"{path}: cannot be read ({error.strerror}): name a configuration that exists, or"
            " write one with `retention init DIR`"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise ConfigError(f"{path}:{line}: is not YAML: {error.problem or error}") from error
    except YAMLError as error:
        raise ConfigError(f"{path}:1: is not YAML: {error}") from error
    except _TooDeepError as error:
        raise _too_deep(path, error.line) from None
    document = ConfigDocument(path)
    document.values = _Reader(document, _yaml().constructor).value(root, ()) if root else {}
    return document


@lru_cache(maxsize=1)
def _root(text: str) -> Node | None:
    """The root node of a text, which readers do not change; kept for a program that opens its warehouse again."""
    _refuse_brackets(text)
    yaml = _yaml()
    return quick_nodes(text, yaml.resolver, _DEEPEST) or yaml.compose(text)


def _yaml() -> YAML:
    yaml = _Yaml(typ="safe", pure=True)
    yaml.Composer = _BoundedComposer
    return yaml


def _content(path: str | Path) -> bytes:
    """A file's content, cut one byte beyond the maximum length."""
    with Path(path).open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _too_deep(path: str | Path, line: int) -> ConfigError:
    return ConfigError(
        f"{path}:{line}: nests more than {_DEEPEST} deep, or an alias contains itself; write the values out"
    )


class _Yaml(YAML):
    """A parser without plug-ins, which ruamel.yaml would look for on disk for each document."""

    def official_plug_ins(self) -> list[str]:
        return []


class _BoundedComposer(Composer):
    """A composer that refuses nodes deeper than any configuration, long before Python's recursion limit."""

    _depth = 0

    def compose_node(self, parent: object, index: object) -> object:
        self._depth += 1
        if self._depth > _DEEPEST + 1:
            raise _TooDeepError(self.parser.peek_event().start_mark.line + 1)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class _TooDeepError(Exception):
    """The line at which a text nests too deeply."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


def _refuse_brackets(text: str) -> None:
    """Refuse brackets nested too deeply, which the YAML scanner takes too long to reject."""
    match = _BRACKETS.search(text)
    if match is not None:
        raise _TooDeepError(text.count("\n", 0, match.end()) + 1)


class _Reader:
    """A reader of nodes into values; it records lines and mistakes in the document."""

    def __init__(self, document: ConfigDocument, constructor: Any) -> None:
        self._document = document
        self._constructor = constructor
        self._written: set[int] = set()
        self._values = 0

    def value(self, node: Node, place: Place) -> Any:
        line = node.start_mark.line + 1
        self._document.lines.setdefault(place, line)
        if len(place) > _DEEPEST:
            raise _too_deep(self._document.path, line)
        self._values += 1
        self._written.add(id(node))
        if self._values > _MOST_REPEATED + _MOST_TIMES * len(self._written):
            raise ConfigError(
                f"{self._document.path}:{line}: aliases stand for more than {_MOST_REPEATED:,} values; write"
                " fewer of them"
            )
        match node:
            case MappingNode():
                return self._mapping(node, place)
            case SequenceNode():
                return [self.value(item, (*place, at)) for at, item in enumerate(node.value)]
            case ScalarNode():
                return self._scalar(node, place)
            case _:
                raise TypeError(f"{node!r} is not a YAML node")

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, object]:
        values: dict[str, object] = {}
        inherited: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                inherited |= self._merged(value_node, place)
                continue
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._note(place, line, "a key is not plain text; write `key: value`")
                continue
            key = str(key_node.value)
            if key in values:
                first = self._document.line((*place, key))
                self._note((*place, key), line, f"is there already, on line {first}; remove one")
                continue
            self._document.lines[*place, key] = line
            values[key] = self.value(value_node, (*place, key))
        return inherited | values

    def _merged(self, node: Node, place: Place) -> dict[str, object]:
        parts = node.value if isinstance(node, SequenceNode) else [node]
        merged: dict[str, object] = {}
        for part in reversed(parts):
            if isinstance(part, MappingNode):
                merged |= self._mapping(part, (*place, "<<"))
            else:
                self._note((*place, "<<"), part.start_mark.line + 1, "<< merges mappings only")
        return merged

    def _scalar(self, node: ScalarNode, place: Place) -> Any:
        if node.tag == _TIMESTAMP:
            return node.value
        try:
            value = self._constructor.construct_object(node)
        except YAMLError:
            text = f"the tag {node.tag} is not supported; write a plain value"
        except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError):
            text = f"{_shortened(node.value)} is not a value of {str(node.tag).rpartition(':')[2]}; write a plain value"
        else:
            if not isinstance(value, int) or value.bit_length() <= _MOST_BITS:
                return value
            text = f"{_shortened(node.value)} is a number of {len(node.value):,} digits; write a smaller one"
        self._note(place, node.start_mark.line + 1, text)
        return None

    def _note(self, place: Place, line: int, text: str) -> None:
        self._document.mistakes.append(Mistake(place, text, line))


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…")


def describe_mistakes(document: ConfigDocument, mistakes: list[Mistake]) -> str:
    """All mistakes in line order, each as `file:line: key: what is wrong`."""
    lines = {
        (mistake.line or document.line(mistake.place), _readable(_sentence(document, mistake)))
        for mistake in mistakes
    }
    return "\n".join(f"{document.path}:{line}: {text}" for line, text in sorted(lines))


def _readable(text: str) -> str:
    """A text that quotes a long value, cut to its beginning (the mistake) and end (the remedy)."""
    return (
        text if len(text) <= 2 * _MOST_QUOTED else f"{text[:_MOST_QUOTED]} … {text[-_MOST_QUOTED:]}"
    )


def _sentence(document: ConfigDocument, mistake: Mistake) -> str:
    place = mistake.place
    kind = _KINDS.get(str(place[0])) if len(place) > 1 else None
    if place[:1] == ("groups",) and len(place) > 2:  # noqa: PLR2004  (a key of a group)
        return f"{_dotted(place[2:])}: group {place[1]}: {mistake.text}"
    if kind is None:
        return f"{_dotted(place)}: {mistake.text}" if place else mistake.text
    stream = document.values[place[0]][place[1]]
    config = stream.get("config", stream) if isinstance(stream, Mapping) else {}
    name = config.get("name") if isinstance(config, Mapping) else None
    key = _dotted(place[2:]) or _dotted(place)
    return f"{key}: {kind} {name}: {mistake.text}" if name else f"{key}: {mistake.text}"


def _dotted(place: Place) -> str:
    return ".".join(str(part) for part in place)
