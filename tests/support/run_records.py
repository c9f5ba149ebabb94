"""Records of runs, for tests of their readers."""

from __future__ import annotations

from typing import Any

from retention.history.kinds import record_of
from retention.history.record import RunRecord


def run_record(run: str, **fields: Any) -> RunRecord:
    """The record of a run: by default, the intent of a pass."""
    return record_of({"run": run, "kind": "apply", "status": "begun", "as_of_ns": 0} | fields)
