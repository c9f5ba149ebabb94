"""Guards at the commit: they hold against the messages that the table has then, not those that a plan counted."""

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
    """The guards let a pass go on, with the messages that the table has when it is committed.

    A file that came since the plan was made counts nothing: guards never let more go than with all files counted.
    """

    stream: str
    guards: RemovalGuards
    loss: Loss
    """The loss, counted from the plan."""
    released: int
    """Messages that consumers release in the pass, which no guard counts."""
    counted: pa.Table
    """The files of the table as the plan's commit found it: `path` and `messages`."""
    leaving: pa.Array
    """Paths of the files that leave."""

    def check(self, state: TableState) -> None:
        """Refuse a pass that takes too much of what there is.

        Raises:
            RefusedError: with the numbers of now.
        """
        loss = self.at(state.stays["path"].combine_chunks())
        refusing = [
            finding.sentence for finding in guard_findings(self.guards, loss) if finding.refuses
        ]
        if refusing:
            raise large_error(self.stream, refusing)

    def at(self, stays: pa.Array) -> Loss:
        """The loss in a table of which the files at some paths stay."""
        paths = self.counted["path"]
        there = pc.or_(pc.is_in(paths, value_set=stays), pc.is_in(paths, value_set=self.leaving))
        total = pc.sum(self.counted["messages"].filter(there), min_count=0).as_py()
        return replace(self.loss, of_messages=max(total - self.released, self.loss.messages))


def guards_at_commit(
    opened: OpenedStream, plan: Plan, snapshot: Snapshot, guards: Guards
) -> Iterable[TableRequirement]:
    """The requirement that the guards of a pass hold at its commit; none where there are none, or they are lifted."""
    if guards.allow_large or not _is_guarded(opened, plan):
        return ()
    return (_hold(opened, plan, snapshot),)


def guarded_now(opened: OpenedStream, plan: Plan, snapshot: Snapshot, guards: Guards) -> Plan:
    """Hold a saved pass against the guards of its stream, as `guarded`, by the messages of the table now.

    Raises:
        RefusedError: it takes more than a guard lets go, and the caller does not lift that.
    """
    if not _is_guarded(opened, plan):
        return guarded(opened, plan, guards)
    hold = _hold(opened, plan, snapshot)
    return guarded(opened, plan, guards, hold.at(snapshot.files["path"].combine_chunks()))


def _is_guarded(opened: OpenedStream, plan: Plan) -> bool:
    return plan.request is None and opened.config.guards.rule() != NO_GUARDS


def _hold(opened: OpenedStream, plan: Plan, snapshot: Snapshot) -> GuardsHold:
    return GuardsHold(
        opened.name,
        opened.config.guards.rule(),
        loss_of(plan),
        released_by(plan),
        opened.store.inventory(snapshot).files.select(["path", "messages"]),
        plan.actions.leaving["path"].combine_chunks(),
    )
