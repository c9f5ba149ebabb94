"""Saved plans of tables in place: one JSON document with a checksum."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyroaring import BitMap64

from retention.core.table_policy import (
    RowPolicy,
    Scalar,
    TableColumns,
    TableLimits,
    TablePolicy,
)
from retention.errors import DamagedError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.errors import first_line
from retention.storage.outputs import OutputKind, begins, write_output
from retention.tables.plan import FileRemovals, TablePlan, Unlimited

_KIND = "retention table plans"
_FORMAT = 1
TABLE_PLANS = OutputKind("a saved plan of tables", begins(rf'\s*\{{\s*"kind":\s*"{_KIND}"'))
"""The file of `plan -o` for tables."""
_TYPES: Mapping[str, Callable[[str], Scalar]] = {
    "Decimal": Decimal,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}


def save_table_plans(location: str, plans: Sequence[TablePlan]) -> None:
    """Write plans to a file that `load_table_plans` reads."""
    document = {
        "kind": _KIND,
        "format_version": _FORMAT,
        "plans": [_as_json(plan) for plan in plans],
    }
    write_output(location, TABLE_PLANS, json.dumps(with_checksum(document)).encode() + b"\n")


def is_of_tables(location: str) -> bool:
    """Whether a file has plans of tables."""
    try:
        with files.reading(location) as source:
            return TABLE_PLANS.recognizes(source)
    except FileNotFoundError:
        return False


def load_table_plans(location: str) -> list[TablePlan]:
    """The plans of a file.

    Raises:
        DamagedError: it cannot be read.
    """
    try:
        document = verified(parse_json(files.read_bytes(location) or b""))
        return [_plan(plan) for plan in document["plans"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{location}: this plan cannot be read ({first_line(error)}); nothing was changed; plan again"
        ) from error


def _as_json(plan: TablePlan) -> dict[str, Any]:
    return {
        "table": plan.table,
        "location": plan.location,
        "table_id": plan.table_id,
        "version": plan.version,
        "as_of_ns": plan.as_of_ns,
        "policy": plan.policy.as_json(),
        "removals": [
            {
                "add": dict(removals.add),
                "live": removals.live,
                "rows": {
                    limit: None if rows is None else base64.b64encode(rows.serialize()).decode()
                    for limit, rows in removals.rows.items()
                },
            }
            for removals in plan.removals
        ],
        "files": plan.files,
        "unlimited": vars(plan.unlimited),
        "files_read": plan.files_read,
        "bytes_read": plan.bytes_read,
        "table_rows": plan.rows,
        "passed_over": dict(plan.passed_over),
        **({"holds": plan.holds, "kept_by_holds": plan.kept_by_holds} if plan.holds else {}),
        "plan_id": plan.plan_id,
    }


def _plan(value: Mapping[str, Any]) -> TablePlan:
    plan = TablePlan(
        value["table"],
        value["location"],
        value["table_id"],
        value["version"],
        value["as_of_ns"],
        _policy(value["policy"]),
        tuple(map(_removals, value["removals"])),
        value["files"],
        Unlimited(**value["unlimited"]),
        value["files_read"],
        value["bytes_read"],
        value["table_rows"],
        passed_over=value["passed_over"],
        holds=tuple(value.get("holds", ())),
        kept_by_holds=value.get("kept_by_holds"),
    )
    if plan.plan_id != value["plan_id"]:
        raise ValueError("its content contradicts its id")
    return plan


def _removals(value: Mapping[str, Any]) -> FileRemovals:
    rows = {
        limit: None if text is None else BitMap64.deserialize(base64.b64decode(text))
        for limit, text in value["rows"].items()
    }
    return FileRemovals(value["add"], rows, value["live"])


def _policy(value: Mapping[str, Any]) -> TablePolicy:
    return TablePolicy(
        TableColumns(**{name: _column(name, given) for name, given in value["columns"].items()}),
        TableLimits(**value["limits"]),
        tuple(
            RowPolicy(
                tuple(
                    (tuple(column), tuple(map(_scalar, values)))
                    for column, values in policy["where"]
                ),
                TableLimits(**policy["limits"]),
                frozenset(policy["named"]),
            )
            for policy in value["policies"]
        ),
    )


def _column(name: str, value: Any) -> Any:
    if name in {"key", "order"}:
        return tuple(tuple(column) for column in value)
    return tuple(value) if isinstance(value, list) else value


def _scalar(value: Any) -> Scalar:
    if isinstance(value, list):
        kind, text = value
        return _TYPES[kind](text)
    scalar: Scalar = value
    return scalar
