"""Delta file actions, built from typed values only: a malformed action would ruin the table for every reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from retention.core.vector_paths import data_path
from retention.delta import entries
from retention.delta.entries import Action
from retention.errors import VerificationError
from retention.schemas.deadlines import NEVER
from retention.stores.layout import is_ours

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT64 = range(-(2**63), 2**63)


def add_action(
    row: Mapping[str, Any], vector: Mapping[str, Any] | None, *, data_change: bool
) -> Action:
    """The action that adds a file.

    Args:
        row: one row of `FILE_STATS`, of the rows that a vector leaves.
        vector: the vector's descriptor; None without one.
        data_change: whether streaming readers see its rows as new.

    Raises:
        VerificationError: a value does not fit the table's columns.
    """
    _check(row)
    hidden = 0 if vector is None else vector["cardinality"]
    fields = {
        **_located(row),
        "modificationTime": row["modified_ms"],
        "dataChange": data_change,
        "stats": json.dumps(_stats(row, hidden), separators=(",", ":")),
    }
    return {"add": fields if vector is None else {**fields, "deletionVector": dict(vector)}}


def remove_action(
    row: Mapping[str, Any], vector: Mapping[str, Any] | None, *, data_change: bool, at_ms: int
) -> Action:
    """The action that removes a file, with the vector that the table has for it.

    Args:
        row: one row of `LOGGED_FILES`.
        vector: the vector's descriptor; None without one.
        data_change: whether readers of changes see it.
        at_ms: the wall clock; VACUUM counts the grace from here.
    """
    fields = {**_located(row), "deletionVector": vector}
    return entries.remove_of(fields, at_ms, data_change=data_change)


def _located(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "path": entries.escaped(data_path(row["path"])),
        "partitionValues": {
            "partition": str(int(row["partition"])),
            "segment": str(int(row["segment"])),
        },
        "size": row["file_bytes"],
    }


def _stats(row: Mapping[str, Any], hidden: int = 0) -> dict[str, object]:
    """The statistics of a file: bounds of the rows of `row`, and the number of all rows, `hidden` ones included."""
    lowest = {"seq": row["min_seq"], "ts_ns": row["min_ts_ns"]}
    highest = {"seq": row["max_seq"], "ts_ns": row["max_ts_ns"]}
    without_deadline = row["messages"] - row["never"] - row["deadlines"]
    nulls = {"seq": 0, "ts_ns": 0, "size": 0, "deadline_ns": without_deadline}
    if row["never"] or row["deadlines"]:
        lowest["deadline_ns"] = row["min_deadline_ns"] if row["deadlines"] else NEVER
        highest["deadline_ns"] = NEVER if row["never"] else row["max_deadline_ns"]
    if is_ours(row["path"]):
        # Other writers may leave `time` empty or set it otherwise; this engine always derives it from ts_ns.
        nulls["time"] = 0
        return {
            "numRecords": row["messages"] + hidden,
            "minValues": lowest | {"time": _instant(row["min_ts_ns"])},
            "maxValues": highest | {"time": _instant(row["max_ts_ns"])},
            "nullCount": nulls,
        }
    return {
        "numRecords": row["messages"] + hidden,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }


def _instant(ts_ns: int) -> str:
    """An instant in the form of Delta statistics: always six digits of microseconds, in UTC."""
    moment = _EPOCH + timedelta(microseconds=ts_ns // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _check(row: Mapping[str, Any]) -> None:
    for name, value in row.items():
        optional = name in ("min_deadline_ns", "max_deadline_ns") and not row["deadlines"]
        if name in ("path", "in_time_order") or (optional and value is None):
            continue
        if type(value) is not int or value not in _INT64:
            raise _malformed(row, f"{name} is {value!r}")
    place = f"partition={row['partition']}/segment={row['segment']}/"
    if is_ours(row["path"]) and not row["path"].startswith(place):
        raise _malformed(row, f"it does not lie in {place}")
    ordered = row["min_seq"] <= row["max_seq"] and row["min_ts_ns"] <= row["max_ts_ns"]
    counted = 0 <= row["never"] + row["deadlines"] <= row["messages"]
    if not (ordered and counted and row["messages"] > 0 and row["file_bytes"] > 0):
        raise _malformed(row, "its statistics contradict each other")


def _malformed(row: Mapping[str, object], why: str) -> VerificationError:
    return VerificationError(
        f"{row['path']}: cannot be committed, {why}; nothing was committed; this is a defect of the program, "
        "report it"
    )
