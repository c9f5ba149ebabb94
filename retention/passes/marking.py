"""Writing a plan's markers behind the last sequence, for the commit that also removes what they announce."""

from __future__ import annotations

from retention.errors import StalePlanError
from retention.opened import OpenedStream
from retention.passes.plan import Plan
from retention.passes.position import locate
from retention.ports import Snapshot
from retention.rows import complete
from retention.rules import markers
from retention.staging import Staged, Staging, stage_rows


def stage_markers(
    opened: OpenedStream, plan: Plan, snapshot: Snapshot, staging: Staging
) -> Staged | None:
    """Stage a plan's markers; None if it stores none.

    Args:
        opened: the stream.
        plan: what was decided.
        snapshot: what the commit will be checked against.
        staging: where files come from.

    Raises:
        StalePlanError: messages were appended since: a marker may announce no deletion that did not happen.
    """
    if plan.sequences is None:
        return None
    first, after = plan.sequences
    position = locate(opened, snapshot)
    if position.next_seq != first:
        raise StalePlanError(
            f"{plan.stream}: the next sequence is {position.next_seq:,}, and this plan writes delete markers from "
            f"{first:,} on; messages came since, nothing was changed; plan again"
        )
    raw = markers.rows(plan.markers, plan.policy, plan.as_of_ns)
    rows = [complete(raw, plan.policy.storage)] if raw.num_rows else []
    return stage_rows(staging, rows, position.active, position.rule, after)
