"""Adding a bucket to `retention.yaml`: a new list entry, with every other byte of the file unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from retention.config.bucket import bucket_key, stream_values, with_stream_keys
from retention.config.discovery import CONFIG_NAME
from retention.config.load import Config, load_config
from retention.core.bucket_names import stream_of
from retention.errors import BusyError, ConfigError
from retention.storage import files

_KEY = "buckets"
_PLAIN = re.compile(r"(?!(?:true|false|null)$)(?:[A-Za-z_][\w-]*|[0-9]+[a-zA-Z]+)", re.IGNORECASE)


def add_bucket(config: Config, values: Mapping[str, object]) -> str | None:
    """Add a bucket to a warehouse's configuration, which is created if missing.

    Args:
        config: the current configuration.
        values: the bucket's keys, including `name`.

    Returns:
        The location of the file; None: the bucket is already listed with exactly these settings.

    Raises:
        ConfigError: the bucket is listed with other settings, or is not valid, or the file has a form that only a
            person can edit.
        BusyError: another process changed the file at the same time.
    """
    listed = config.stream(stream_of(str(values["name"])))
    if listed is not None:
        _refuse_other_settings(config, values)
        return None
    place = config.file or files.join(config.warehouse, CONFIG_NAME)
    before = files.read_bytes(place)
    content = _with_entry(place, (before or b"").decode(), values).encode()
    load_config(place, content)
    if files.read_bytes(place) != before:
        raise BusyError(
            f"{place}: another process has just changed it; nothing was written; try again"
        )
    if not files.is_remote(place):
        Path(place).parent.mkdir(parents=True, exist_ok=True)
    files.replace(place, content)
    return place


def _refuse_other_settings(config: Config, values: Mapping[str, object]) -> None:
    name = str(values["name"])
    wanted = load_config("-", f"{_KEY}:\n{_entry(values, 0)}".encode()).stream(stream_of(name))
    there = config.stream(stream_of(name))
    keys = stream_values(with_stream_keys(values)).keys()
    other = [bucket_key(key) for key in sorted(keys) if getattr(wanted, key) != getattr(there, key)]
    if other:
        raise ConfigError(
            f"{config.file}: bucket {name} is listed already, with another {', '.join(other)}; nothing was changed; "
            "edit it there"
        )


def _with_entry(place: str, text: str, values: Mapping[str, object]) -> str:
    """A file's text with one more bucket, after the last one or at the end."""
    root = YAML(typ="safe", pure=True).compose(text)
    if root is None:
        return f"{text}{_line_end(text)}{_KEY}:\n{_entry(values, 2)}"
    if not isinstance(root, MappingNode) or root.flow_style:
        raise _not_ours(place, values)
    listed = next((value for key, value in root.value if key.value == _KEY), None)
    if listed is None:
        return f"{text}{_line_end(text)}\n{_KEY}:\n{_entry(values, 2)}"
    if not isinstance(listed, SequenceNode) or listed.flow_style or not listed.value:
        raise _not_ours(place, values)
    lines = f"{text}{_line_end(text)}".splitlines(keepends=True)
    end = max(_last_lines(listed)) + 1
    entry = _entry(values, listed.start_mark.column)
    return "".join([*lines[:end], entry, *lines[end:]])


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


def _not_ours(place: str, values: Mapping[str, object]) -> ConfigError:
    written = "; ".join(_entry(values, 0).strip().split("\n"))
    return ConfigError(
        f"{place}: a bucket is added to a list of the form `{_KEY}:`, then lines with `- name: …`, which the file does "
        f"not have; nothing was written; write it there: {written}"
    )


def _entry(values: Mapping[str, object], indent: int) -> str:
    """An entry of a list, as lines of YAML."""
    given = {key: value for key, value in values.items() if value is not None}
    lines = [f"{key}: {_scalar(value)}" for key, value in given.items()]
    first, *others = lines
    margin = " " * indent
    return "".join([f"{margin}- {first}\n", *(f"{margin}  {line}\n" for line in others)])


def _scalar(value: Any) -> str:
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value)
    return str(value) if is_plain else json.dumps(value, ensure_ascii=False)


def _line_end(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"
