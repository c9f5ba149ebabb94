"""Undoing a run beside the model: expected refusals, and the check of what came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from retention.errors import RefusedError, UsageError, VerificationError
from tests.support.histories.actors import Actors, Refusals
from tests.support.histories.stream_model import (
    ERASED,
    GRACE_OVER,
    THERE_AGAIN,
    UNDONE,
    UNSURE,
    Run,
)

WHY_NOT: Mapping[str, tuple[Refusals, tuple[str, ...]]] = {
    UNDONE: ((UsageError,), ("was undone already",)),
    THERE_AGAIN: ((RefusedError,), ("duplicated", "in the table again")),
    GRACE_OVER: ((VerificationError, RefusedError), ("after the grace period",)),
    ERASED: (
        (UsageError, VerificationError, RefusedError),
        ("erased", "after the grace period", "deleted them"),
    ),
}
"""Reasons that prevent an undo → errors, and words of their sentences."""


def undone(actors: Actors, run: Run, hold: str | None = None) -> dict[str, Any] | None:
    """The record of an undo, which is checked; None: legal holds did not keep all files of the run."""
    is_unsure = actors.model.why_not_undo(run) == UNSURE
    try:
        record: dict[str, Any] = actors.warehouse.undo(run.name, hold=hold)
    except WHY_NOT[GRACE_OVER][0]:
        if not is_unsure:
            raise
        actors.said += " (its files are gone)"
        return None
    assert record["restored_messages"] == len(run.removed)
    assert record["restored_bytes"] == run.removed_bytes
    actors.model.undo(run)
    actors.model.changed_ns = actors.clock()
    return record
