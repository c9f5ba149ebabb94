"""The loss that the limits of a pass inflict on its stream, counted from the plan and what it was made from."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc

from retention.core.removal_guards import NO_GUARDS, RemovalGuards
from retention.core.spans import Array
from retention.plan.cause import Cause
from retention.plan.plan import Plan
from retention.rules.removal_guards import GuardFinding, Loss, guard_findings


def findings_of(guards: RemovalGuards, plan: Plan) -> tuple[GuardFinding, ...]:
    """Name the guards that a plan exceeds; none of a removal that people ask for, which is no pass.

    Raises:
        DamagedError: as `loss_of`.
    """
    if plan.request is not None or guards == NO_GUARDS:
        return ()
    return guard_findings(guards, loss_of(plan))


def loss_of(plan: Plan) -> Loss:
    """Count what limits take of a stream, without what its consumers release.

    A file of 10 messages of which consumers leave 6 loses 7 of them: 4 are released, and 3 taken.

    Args:
        plan: that of a pass; the files of a saved one are read for it, unless it takes nothing.

    Raises:
        DamagedError: a saved plan's files cannot be decoded.
    """
    if not plan.files.num_rows:
        return Loss()
    cause = plan.cause
    left, _ = cause.remaining_of(np.arange(cause.files.num_rows))
    touched = _rows_of(plan, cause)
    return Loss(
        plan.removed_messages - _released(cause, "messages", touched),
        plan.removed_bytes - _released(cause, "bytes", touched),
        left + cause.tail.messages,
    )


def released_by(plan: Plan) -> int:
    """The number of messages that consumers release in a pass.

    Raises:
        DamagedError: as `loss_of`.
    """
    cause = plan.cause
    return _released(cause, "messages", _rows_of(plan, cause)) if plan.files.num_rows else 0


def _rows_of(plan: Plan, cause: Cause) -> Array:
    """Row numbers of a plan's files among those that it was made from."""
    numbers = pc.index_in(plan.files["path"], value_set=cause.files["path"].combine_chunks())
    return numbers.to_numpy()


def _released(cause: Cause, name: str, touched: Array) -> int:
    """Messages or bytes that consumers release of some files: all of these go with a file that a plan touches."""
    if cause.remaining is None:
        return 0
    stored = cause.files[name].to_numpy()[touched]
    return int((stored - getattr(cause.remaining, name)[touched]).sum())
