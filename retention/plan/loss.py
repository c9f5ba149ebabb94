"""The loss of a stream to the limits of a pass, counted from the plan and its cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from retention.plan.cause import Cause
from retention.plan.plan import Plan

if TYPE_CHECKING:
    from retention.core.spans import Array
    from retention.rules.removal_guards import Loss


def loss_of(plan: Plan) -> Loss:
    """Count the messages that limits remove, without those released by consumers.

    Example: a file of 10 messages loses 7. Consumers have released 4 of them, so limits remove 3.

    Args:
        plan: the plan of a pass; the files of a saved plan are read, unless it removes nothing.

    Raises:
        DamagedError: a saved plan's files cannot be decoded.
    """
    from retention.rules.removal_guards import Loss

    if not plan.actions.files.num_rows:
        return Loss()
    cause = plan.cause
    left, _ = cause.made_from.remaining_of(np.arange(cause.files.num_rows))
    touched = _rows_of(plan, cause)
    return Loss(
        plan.removed_messages - _released(cause, "messages", touched),
        plan.removed_bytes - _released(cause, "bytes", touched),
        left + cause.tail.messages,
    )


def released_by(plan: Plan) -> int:
    """The number of messages released by consumers in a pass.

    Raises:
        DamagedError: as `loss_of`.
    """
    cause = plan.cause
    return _released(cause, "messages", _rows_of(plan, cause)) if plan.actions.files.num_rows else 0


def _rows_of(plan: Plan, cause: Cause) -> Array:
    """Row numbers of a plan's files among the files of its cause."""
    numbers = pc.index_in(
        plan.actions.files["path"], value_set=cause.files["path"].combine_chunks()
    )
    return numbers.to_numpy()


def _released(cause: Cause, name: str, touched: Array) -> int:
    """Released messages or bytes in some files; a plan removes them with every file that it touches."""
    if cause.remaining is None:
        return 0
    stored = cause.files[name].to_numpy()[touched]
    return int((stored - getattr(cause.remaining, name)[touched]).sum())
