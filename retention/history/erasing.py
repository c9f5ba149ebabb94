"""Destroying values of a run history that may name a person, without a change of any link."""

from __future__ import annotations

from collections.abc import Collection

from retention.history.chain import without_values
from retention.history.record_files import read_fields, write_fields
from retention.history.runs import History
from retention.storage.crash_points import Step


def erase_values(history: History, run: str, names: Collection[str]) -> bool:
    """Destroy values of a run's records, with their salts; False if there are none.

    Raises:
        DamagedError: a record is damaged.
    """
    erased = False
    for location in (history.begun_location(run), history.done_location(run)):
        fields = read_fields(location)
        if fields is not None and any(name in fields for name in names):
            write_fields(location, without_values(fields, names), Step.HISTORY_VALUES_ERASED)
            erased = True
    return erased
