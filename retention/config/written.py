"""Values in a configuration file, each with its stream, group or section, and its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from retention.config.document import ConfigDocument


@dataclass(frozen=True)
class Written:
    """A value of the file."""

    source: str
    """The stream, topic, group or section that has it, such as `group pii`."""
    line: int
    value: Any


@dataclass(frozen=True)
class WrittenFile:
    """All values of a file that apply to streams, topics and tables, by key."""

    streams: Mapping[str, Mapping[str, Written]] = field(default_factory=dict)
    """The values of each stream and topic by its name, including those inherited from groups."""
    defaults: Mapping[str, Written] = field(default_factory=dict)
    server_defaults: Mapping[str, Written] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Written]] = field(default_factory=dict)
    """The values of each table, as `streams`."""


def written_section(document: ConfigDocument, section: str) -> dict[str, Written]:
    """The values of a top-level section of a file; empty if it is absent."""
    values = document.values.get(section) or {}
    return {
        key: Written(section, document.line((section, key)), value)
        for key, value in values.items()
        if value is not None
    }
