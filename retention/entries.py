"""Outcomes of plans and runs as the entries of their JSON documents: every stream asked for has one."""

from __future__ import annotations

from typing import Any

from retention.estimate import Estimate
from retention.outcomes import Outcome, failure
from retention.plan import Plan
from retention.report import Report

_NO_SEGMENTS = {"dropped": 0, "rewritten": 0, "kept": 0}


def plan_entry(outcome: Outcome[Plan]) -> dict[str, Any]:
    """A planned stream."""
    plan = outcome.value
    if plan is None:
        return failed_entry(outcome)
    return plan.summary() | {
        "files_read": plan.read.files,
        "bytes_read": plan.read.bytes,
        "bytes_written": 0,
        "seconds": round(outcome.seconds, 6),
        "version_before": plan.version,
        "version_after": plan.version,
    }


def report_entry(outcome: Outcome[Report]) -> dict[str, Any]:
    """A stream that a run was over."""
    return failed_entry(outcome) if outcome.value is None else outcome.value.as_json()


def estimate_entry(outcome: Outcome[Estimate]) -> dict[str, Any]:
    """An estimated stream."""
    if outcome.value is None:
        return {"stream": outcome.stream} | _error(outcome)
    return outcome.value.as_json()


def failed_entry(outcome: Outcome[Any]) -> dict[str, Any]:
    """A stream that failed: nothing was removed, and why."""
    return {
        "stream": outcome.stream,
        "plan_id": None,
        "removed_messages": 0,
        "removed_bytes": 0,
        "by_rule": {},
        "segments": dict(_NO_SEGMENTS),
        "markers": 0,
        "files_read": 0,
        "bytes_read": 0,
        "bytes_written": 0,
        "seconds": round(outcome.seconds, 6),
        "version_before": None,
        "version_after": None,
    } | _error(outcome)


def _error(outcome: Outcome[Any]) -> dict[str, Any]:
    return {} if outcome.error is None else {"error": failure(outcome.error)}
