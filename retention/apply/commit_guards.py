"""Guards at the commit: they apply to the messages in the table at that moment, not to those that a plan counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.guards import Guards, guarded, large_error
from retention.context.context import OpenedStream
from retention.core.removal_guards import NO_GUARDS, RemovalGuards
from retention.core.table_requirements import TableRequirement, TableState
from retention.plan.loss import loss_of, released_by
from retention.plan.plan import Plan
from retention.ports import Snapshot
from retention.rules.removal_guards import Loss, guard_findings


@dataclass(frozen=True)
class GuardsHold:
    """The requirement that guards permit a pass, given the messages in the table when it commits.

    A file added since the plan was made counts as empty: guards never permit a larger removal than with all files
    counted.
    """

    stream: str
    guards: RemovalGuards
    loss: Loss
    """The loss, counted from the plan."""
    released: int
    """Messages that consumers release in the pass; no guard counts them."""
    counted: pa.Table
    """The files of the table as the plan's commit read it: `path` and `messages`."""
    leaving: pa.Array
    """Paths of the files to be removed."""

    def check(self, state: TableState) -> None:
        """Refuse a pass that removes too large a share of the table.

        Raises:
            RefusedError: with the current numbers.
        """
        loss = self.at(state.stays["path"].combine_chunks())
        refusing = [
            finding.sentence for finding in guard_findings(self.guards, loss) if finding.refuses
        ]
        if refusing:
            raise large_error(self.stream, refusing)

    def at(self, stays: pa.Array) -> Loss:
        """The loss in a table that keeps the files at some paths."""
        paths = self.counted["path"]
        there = pc.or_(pc.is_in(paths, value_set=stays), pc.is_in(paths, value_set=self.leaving))
        total = pc.sum(self.counted["messages"].filter(there), min_count=0).as_py()
        return replace(self.loss, of_messages=max(total - self.released, self.loss.messages))


def guards_at_commit(
    opened: OpenedStream, plan: Plan, snapshot: Snapshot, guards: Guards
) -> Iterable[TableRequirement]:
    """The requirement that guards permit a pass at its commit; none if no guard is set, or guards are lifted."""
    if guards.allow_large or not _is_guarded(opened, plan):
        return ()
    return (_hold(opened, plan, snapshot),)


def guarded_now(opened: OpenedStream, plan: Plan, snapshot: Snapshot, guards: Guards) -> Plan:
    """Check a saved pass against the guards of its stream, as `guarded` does, by the current messages of the table.

    Raises:
        RefusedError: it removes more than a guard permits, and the caller does not lift that.
    """
    if not _is_guarded(opened, plan):
        return guarded(opened, plan, guards)
    hold = _hold(opened, plan, snapshot)
    return guarded(opened, plan, guards, hold.at(snapshot.files["path"].combine_chunks()))


def _is_guarded(opened: OpenedStream, plan: Plan) -> bool:
    return plan.header.request is None and opened.config.guards.rule() != NO_GUARDS


def _hold(opened: OpenedStream, plan: Plan, snapshot: Snapshot) -> GuardsHold:
    return GuardsHold(
        opened.name,
        opened.config.guards.rule(),
        loss_of(plan),
        released_by(plan),
        opened.store.inventory(snapshot).files.select(["path", "messages"]),
        plan.actions.files["path"].combine_chunks(),
    )
