"""Records of runs for tests of what reads them."""

from __future__ import annotations

from typing import Any

from retention.history.kinds import record_of
from retention.history.record import RunRecord


def run_record(run: str, **fields: Any) -> RunRecord:
    """The record of a run: the intent of a pass, unless fields say otherwise."""
    return record_of({"run": run, "kind": "apply", "status": "begun", "as_of_ns": 0} | fields)
