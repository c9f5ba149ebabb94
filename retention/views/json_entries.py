"""Outcomes of plans and runs as entries of their JSON documents: every requested stream has one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retention.core.json_object import JsonObject
from retention.core.outcomes import Outcome, failure_entry

if TYPE_CHECKING:
    from retention.history.report import RunReport
    from retention.plan.ahead_of_clock import AheadOfClock
    from retention.plan.lowered import LoweredLimit
    from retention.plan.plan import Plan
    from retention.rules.removal_guards import GuardFinding
    from retention.tables.plan import TablePlan
    from retention.tables.report import TableReport

_NOTHING: JsonObject = {
    "stream": None,
    "plan_id": None,
    "removed_messages": 0,
    "removed_bytes": 0,
    "by_rule": {},
    "segments": {"dropped": 0, "rewritten": 0, "kept": 0},
    "markers": 0,
    "deleted_consumers": [],
    "files_read": 0,
    "bytes_read": 0,
    "bytes_written": 0,
    "seconds": 0.0,
    "version_before": None,
    "version_after": None,
}
_OF_STREAMS = {"stream", "removed_messages", "segments", "markers", "deleted_consumers"}
_NO_ROWS: JsonObject = {"removed_rows": 0, "files": {"dropped": 0, "cut": 0, "kept": 0}}
_NO_PLAN: JsonObject = {"next_due_ns": None, "due": [], "groups": []}


def plan_entry(outcome: Outcome[Plan]) -> JsonObject:
    """The JSON entry of a planned stream."""
    from retention.views.segment_groups import groups_of

    plan = outcome.value
    if plan is None:
        return _NO_PLAN | failed_entry(outcome)
    return (
        plan.summary()
        | plan.forecast.as_json()
        | ({} if plan.overdue is None else {"overdue": plan.overdue.as_json()})
        | {"groups": [group.as_json() for group in groups_of(plan)]}
        | _unless_empty("guards", plan.guards)
        | _unless_empty("lowered", plan.lowered)
        | _unless_empty("ahead_of_clock", plan.ahead)
        | {
            "files_read": plan.header.read.files,
            "bytes_read": plan.header.read.bytes,
            "bytes_written": 0,
            "seconds": round(outcome.seconds, 6),
            "version_before": plan.header.version,
            "version_after": plan.header.version,
        }
    )


def _unless_empty(
    name: str,
    values: Sequence[GuardFinding] | Sequence[LoweredLimit] | Sequence[AheadOfClock],
) -> JsonObject:
    return {name: [value.as_json() for value in values]} if values else {}


def report_entry(outcome: Outcome[RunReport]) -> JsonObject:
    """The JSON entry of a stream that a run was applied to."""
    return failed_entry(outcome) if outcome.value is None else outcome.value.as_json()


def entry(outcome: Outcome[Any]) -> JsonObject:
    """The JSON entry of a stream: its value's `as_json`, or its error."""
    return failure_entry(outcome) if outcome.value is None else outcome.value.as_json()


def table_plan_entry(outcome: Outcome[TablePlan]) -> JsonObject:
    """The JSON entry of a planned table."""
    from retention.tables.report import numbers_of

    plan = outcome.value
    if plan is None:
        return failed_table_entry(outcome)
    return (
        numbers_of(plan)
        | _unless_empty("guards", plan.guards)
        | {"bytes_written": 0, "seconds": round(outcome.seconds, 6), "version_after": plan.version}
    )


def table_report_entry(outcome: Outcome[TableReport]) -> JsonObject:
    """The JSON entry of a table that a pass was applied to."""
    return failed_table_entry(outcome) if outcome.value is None else outcome.value.as_json()


def table_entry(outcome: Outcome[Any]) -> JsonObject:
    """The JSON entry of a table: its value's `as_json`, or its error."""
    if outcome.value is not None:
        return outcome.value.as_json()
    failure = failure_entry(outcome)
    return {"table": failure["stream"], "error": failure["error"]}


def failed_table_entry(outcome: Outcome[Any]) -> JsonObject:
    """The JSON entry of a table that failed: nothing was removed, and the reason."""
    failure = dict(failure_entry(outcome))
    table = failure.pop("stream")
    nothing = {name: value for name, value in _NOTHING.items() if name not in _OF_STREAMS}
    seconds = {"seconds": round(outcome.seconds, 6)}
    return {"table": table, **nothing, **_NO_ROWS, **seconds, **failure}


def failed_entry(outcome: Outcome[Any]) -> JsonObject:
    """The JSON entry of a stream that failed: nothing was removed, and the reason."""
    return _NOTHING | {"seconds": round(outcome.seconds, 6)} | failure_entry(outcome)
