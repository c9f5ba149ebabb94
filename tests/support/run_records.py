"""Records of runs, for tests of their readers."""

from __future__ import annotations

from typing import Any

import pytest

from retention.history.kinds import record_of
from retention.history.record import RunRecord
from retention.history.runs import History


def run_record(run: str, **fields: Any) -> RunRecord:
    """The record of a run: by default, the intent of a pass."""
    return record_of({"run": run, "kind": "apply", "status": "begun", "as_of_ns": 0} | fields)


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the records that histories read from now on."""
    read: list[str] = []
    of_history = History._read

    def counted(of: History, name: str) -> RunRecord | None:
        read.append(name)
        return of_history(of, name)

    monkeypatch.setattr(History, "_read", counted)
    return read
