"""A run as people look at it: some fields of its record, and a record that displays itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.core.display import DisplayedDict
from retention.core.json_object import JsonObject

_DONE = "done"
_AMOUNTS = (
    "removed_messages",
    "removed_rows",
    "restored_messages",
    "restored_rows",
    "published_messages",
)


class RunEntry(DisplayedDict):
    """The record of a run as JSON values, which displays itself."""

    def display_fields(self) -> JsonObject:
        """The fields that people look at."""
        return run_fields(self)


def run_fields(record: Mapping[str, Any]) -> JsonObject:
    """The run, its stream or table, what it did, at which instant, and the amounts."""
    size = record.get("restored_bytes") or record.get("removed_bytes")
    return {
        "run": record["run"],
        "stream": record.get("stream"),
        "table": record.get("table"),
        "what": _what(record),
        "as_of_ns": record["as_of_ns"],
        **{name: record.get(name) for name in _AMOUNTS},
        "size": size,
        "by_rule": record.get("by_rule"),
        "undoes": record.get("undoes"),
        "removed_again": (record.get("removed_again") or {}).get("sentence"),
    }


def _what(record: Mapping[str, Any]) -> str:
    """The kind of the run and, unless it is done, its status."""
    what = str(record["kind"]).removesuffix("_table").replace("_", " ")
    if "repair" in record:
        what = f"repair {record['repair']}"
    status = record.get("status", _DONE)
    return what if status == _DONE else f"{what}, {status}"
