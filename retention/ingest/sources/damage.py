"""The first line of a text file that is not a valid row, which Spark's readers do not report; pure."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from retention.core.wording import counted
from retention.ingest.sources.columns import Columns

_WHOLE = ("byte", "short", "integer", "long")
_SHOWN = 60


def first_bad_line(
    format_: str, lines: Iterable[bytes], columns: Columns, width: int | None = None
) -> tuple[int, str] | None:
    """The number of the first line that is not a row of a format, counted from 1, and the reason; None: all are rows.

    Args:
        format_: `json` or `csv`.
        lines: those of the file.
        columns: the file's, JSON of a Spark schema.
        width: the number of columns of a CSV file, if it differs from that of `columns`.
    """
    find: Callable[[str], str | None] = (
        partial(_json_fault, columns)
        if format_ == "json"
        else partial(_csv_fault, width or len(columns["fields"]))
    )
    for number, line in enumerate(lines, 1):
        text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace").strip("\r\n")
        why = find(text) if text.strip() else None
        if why is not None:
            return number, why
    return None


def _json_fault(columns: Columns, text: str) -> str | None:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        return (
            f"not a complete JSON value ({error.msg} at character {error.pos + 1}): {_shown(text)}"
        )
    if not isinstance(row, Mapping):
        return f"not a JSON object: {_shown(text)}"
    for field in columns["fields"]:
        value = row.get(field["name"])
        if value is not None and not _is_a(value, field["type"]):
            return f"its {field['name']} is not of type {_name_of(field['type'])}: {_shown(json.dumps(value))}"
    return None


def _csv_fault(wanted: int, text: str) -> str | None:
    fields = next(csv.reader([text], escapechar="\\"), [])
    if wanted and len(fields) != wanted:
        return (
            f"it has {counted(len(fields), 'column')}, and {wanted} were expected: {_shown(text)}"
        )
    return None


def _is_a(value: object, kind: object) -> bool:
    if kind in _WHOLE:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in ("double", "float"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(kind, Mapping) and kind.get("type") == "array":
        return isinstance(value, list)
    if isinstance(kind, Mapping) and kind.get("type") in ("struct", "map"):
        return isinstance(value, Mapping)
    return True


def _name_of(kind: Any) -> str:
    if isinstance(kind, Mapping):
        return str(kind.get("type"))
    return {"long": "bigint", "integer": "int"}.get(kind, str(kind))


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
