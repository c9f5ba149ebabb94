"""The columns of a source, fixed when it was first taken; only added columns change them; pure.

Columns are JSON of Spark's schemas: `{"type": "struct", "fields": [{"name", "type", "nullable", "metadata"}]}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Columns = Mapping[str, Any]
_INSIDE = ("elementType", "keyType", "valueType")
"""The element types of an array or a map."""


def names_of(columns: Columns) -> list[str]:
    """The names of columns, in order."""
    return [field["name"] for field in columns["fields"]]


def without(columns: Columns, names: Mapping[str, object]) -> dict[str, Any]:
    """The columns without the given ones, and without the column for corrupt records."""
    lowered = {name.lower() for name in names} | {"_corrupt_record"}
    fields = [field for field in columns["fields"] if field["name"].lower() not in lowered]
    return {**columns, "fields": fields}


def with_added(kept: Columns, present: Columns) -> dict[str, Any]:
    """The kept columns, followed by the new ones; kept columns keep their types."""
    known = {name.lower() for name in names_of(kept)}
    added = [field for field in present["fields"] if field["name"].lower() not in known]
    return {**kept, "fields": [*kept["fields"], *added]}


def contradictions(kept: Columns, present: Columns) -> list[str]:
    """A phrase for each kept column that is missing from a table or has another type there."""
    there = {field["name"].lower(): field["type"] for field in present["fields"]}
    phrases = []
    for field in kept["fields"]:
        name = field["name"]
        now = there.get(name.lower())
        if now is None:
            phrases.append(f"the column {name} is missing")
        elif not _extends(field["type"], now):
            phrases.append(f"the column {name} was {_text(field['type'])} and is {_text(now)}")
    return phrases


def _extends(kept: object, present: object) -> bool:
    """Whether a type equals another, apart from fields added to a struct."""
    if not isinstance(kept, Mapping) or not isinstance(present, Mapping):
        return bool(kept == present)
    if kept.get("type") != present.get("type"):
        return False
    if kept["type"] == "struct":
        return not contradictions(kept, present)
    inside = [name for name in _INSIDE if name in kept]
    return all(_extends(kept[name], present.get(name)) for name in inside)


def _text(kind: Any) -> str:
    """A type as Spark prints it: `array<struct<x:long>>`."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        inside = [f"{field['name']}:{_text(field['type'])}" for field in kind["fields"]]
    else:
        inside = [_text(kind[name]) for name in _INSIDE if name in kind]
    return f"{kind['type']}<{','.join(inside)}>"
