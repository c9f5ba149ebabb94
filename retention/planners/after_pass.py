"""The next due instant after a pass: decided from the files that it left, so that the next run opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.policy import Policy
from retention.core.row_numbers import rows_at
from retention.core.spans import Spans
from retention.plan.build import segment_numbers
from retention.plan.header import SegmentCounts
from retention.plan.overdue_count import overdue_of
from retention.plan.plan import empty_plan
from retention.plan.remaining import RemainingMessages, RemainingRow, all_remaining
from retention.planners.afresh import Fresh, remember_due
from retention.planners.cached import Planned, token_of
from retention.planners.retention import Planning, decide
from retention.planners.rows import Deletions, SpanRowsReader
from retention.ports import Snapshot, TailTotals
from retention.rules.jetstream.prefix_scan import ends_in_prefix, prefix_policy
from retention.rules.jetstream.whole_segments import unread_answers
from retention.rules.row_verdicts import stop_of
from retention.rules.rule import SubjectExcess
from retention.stores.checks.inventory import in_order


@dataclass(frozen=True)
class CommittedPass:
    """The commit of a pass."""

    run: str
    """The name of its run."""
    base: Snapshot
    """The version that it was prepared on."""
    version: int
    """The version that it made."""
    removed: pa.Table
    """The files that it removed, with their paths."""
    added: pa.Table
    """The files that it added, shape `FILE_STATS`."""


def remember_left(opened: OpenedStream, planned: Planned, done: CommittedPass) -> None:
    """Remember the next due instant of the files that a pass left, if it is certain.

    It is certain if no other commit came after the planned state, and if metadata alone shows that nothing more is due
    at the instant of the pass. A pass that assigned sequences is not remembered.

    Raises:
        DamagedError, StorageError: the log cannot be read.
    """
    state, header = planned.state, planned.plan.header
    if state is None or planned.plan.sets_sequences or not done.base.follows:
        return
    if not state.token.tells(done.base) or done.version != done.base.version + 1:
        return
    files = _left(state.inventory.files, done)
    left = replace(state.inventory, version=done.version, files=files)
    planning = plan_nothing(left, state.tail, header.policy, header.as_of_ns)
    if planning is None:
        return
    token = token_of(opened)
    if token is None or opened.store.find_commit(done.run, done.version - 1) != done.version:
        return
    remember_due(opened, token, Fresh(planning), None)


def plan_nothing(
    inventory: Inventory, tail: TailTotals, policy: Policy, as_of_ns: int
) -> Planning | None:
    """Plan a pass that removes nothing; None: it removes something, or metadata alone does not tell.

    Args:
        inventory: the stream, or its oldest segments.
        tail: totals of the segments after them.
        policy: the stream's, which does not use consumers.
        as_of_ns: the pass's one instant, nanoseconds since the epoch.
    """
    ahead, remaining = prefix_policy(policy, tail.messages, tail.bytes), all_remaining(inventory)
    if ahead is None:
        return None
    try:
        decided = decide(remaining, ahead, as_of_ns, _NoRows())
    except _RowsNeededError:
        return None
    answers = unread_answers(decided) if policy.whole_segments else []
    if len(answers) < np.count_nonzero(decided.ask) or decided.whole(stop_of(answers)).any():
        return None
    if tail.segments and not ends_in_prefix(decided):
        return None
    plan = empty_plan(inventory.stream, as_of_ns, policy)
    _, segments = segment_numbers(inventory.files)
    header = replace(
        plan.header,
        table_id=inventory.table_id,
        version=inventory.version,
        epoch=inventory.counters.epoch,
        segments=SegmentCounts(kept=segments + tail.segments),
    )
    overdue = overdue_of(inventory.files, policy, as_of_ns, decided, answers)
    return Planning(remaining, decided, replace(plan, header=header, overdue=overdue), tail)


class _RowsNeededError(Exception):
    """A question that statistics do not answer."""


class _NoRows:
    """The rows of a stream whose statistics must suffice; implements `StreamRows`."""

    def of(self, remaining: RemainingMessages) -> SpanRowsReader:
        """Refuse to read rows."""
        raise _RowsNeededError

    def subject_counts(self, files: pa.Table) -> NoReturn:
        """Refuse to read digests."""
        raise _RowsNeededError

    def excess(self, remaining: RemainingMessages, spans: Spans, limit: int) -> SubjectExcess:
        """Refuse to read digests."""
        raise _RowsNeededError

    def deletions(self, remaining: RemainingMessages, wanted: Sequence[RemainingRow]) -> Deletions:
        """Refuse to search files."""
        raise _RowsNeededError


def _left(files: pa.Table, done: CommittedPass) -> pa.Table:
    """The files after a pass, in the order of an inventory."""
    removed = pc.is_in(files["path"], value_set=done.removed["path"].combine_chunks())
    left = rows_at(files, np.flatnonzero(~removed.to_numpy()))
    if not done.added.num_rows:
        return left
    return in_order(pa.concat_tables([left, done.added.select(left.schema.names)]))
