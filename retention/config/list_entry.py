"""Adding an entry to a list of `retention.yaml`, with every other byte of the file unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from retention.config.load import load_config
from retention.errors import BusyError, ConfigError
from retention.storage import files

_PLAIN = re.compile(r"(?!(?:true|false|null)$)(?:[A-Za-z_][\w-]*|[0-9]+[a-zA-Z]+)", re.IGNORECASE)


@dataclass(frozen=True)
class ListEntry:
    """An entry of a list."""

    key: str
    """The key of the list, such as `buckets`."""
    noun: str
    """A word for an entry, with its article."""
    values: Mapping[str, Any]
    comments: Sequence[str] = ()
    """Lines after the values, for people."""

    def text(self, indent: int) -> str:
        """The entry as lines of YAML."""
        lines = [f"{key}: {_scalar(value)}" for key, value in self.values.items()]
        first, *others = [*lines, *(f"# {comment}" for comment in self.comments)]
        margin = " " * indent
        return "".join([f"{margin}- {first}\n", *(f"{margin}  {line}\n" for line in others)])


def add_entry(place: str, entry: ListEntry) -> None:
    """Add an entry to a configuration, which is created if missing.

    Args:
        place: the location of the file.
        entry: with values that are not None.

    Raises:
        ConfigError: the file is not valid with the entry, or has a form that only a person can edit.
        BusyError: another process changed the file at the same time.
    """
    before = files.read_bytes(place)
    content = _with_entry(place, (before or b"").decode(), entry).encode()
    load_config(place, content)
    if files.read_bytes(place) != before:
        raise BusyError(
            f"{place}: another process has just changed it; nothing was written; try again"
        )
    if not files.is_remote(place):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    files.replace(place, content)


def _with_entry(place: str, text: str, entry: ListEntry) -> str:
    """A file's text with one more entry, after the last one of its list or at the end."""
    root = YAML(typ="safe", pure=True).compose(text)
    if root is None:
        return f"{text}{_line_end(text)}{entry.key}:\n{entry.text(2)}"
    if not isinstance(root, MappingNode) or root.flow_style:
        raise _not_ours(place, entry)
    listed = next((value for key, value in root.value if key.value == entry.key), None)
    if listed is None:
        return f"{text}{_line_end(text)}\n{entry.key}:\n{entry.text(2)}"
    if not isinstance(listed, SequenceNode) or listed.flow_style or not listed.value:
        raise _not_ours(place, entry)
    lines = f"{text}{_line_end(text)}".splitlines(keepends=True)
    end = max(_last_lines(listed)) + 1
    end += _comments(lines[end:], listed.start_mark.column)
    return "".join([*lines[:end], entry.text(listed.start_mark.column), *lines[end:]])


def _comments(lines: Sequence[str], indent: int) -> int:
    """The number of leading lines that are comments inside an entry at an indentation."""
    inside = (line.lstrip().startswith("#") and line[: indent + 1].isspace() for line in lines)
    return next((at for at, is_comment in enumerate(inside) if not is_comment), len(lines))


def _last_lines(node: Node) -> Iterator[int]:
    """The lines, from 0 on, on which the parts of a node end."""
    if not isinstance(node, MappingNode | SequenceNode) or node.flow_style:
        # A part that ends at the start of a line belongs to the line before.
        yield node.end_mark.line - (node.end_mark.column == 0)
    else:
        pairs = isinstance(node, MappingNode)
        for part in node.value:
            for inner in part if pairs else (part,):
                yield from _last_lines(inner)


def _not_ours(place: str, entry: ListEntry) -> ConfigError:
    written = "; ".join(entry.text(0).strip().split("\n"))
    return ConfigError(
        f"{place}: {entry.noun} is added to a list of the form `{entry.key}:`, then lines with `- name: …`, which the "
        f"file does not have; nothing was written; write it there: {written}"
    )


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def _line_end(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"
