"""Commits that add and remove messages: recorded before and after, so that they can be undone as a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from retention.apply.execute import prepare
from retention.apply.guards import check_update
from retention.apply.recorded_run import recorded_run
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.context.maintenance import removing
from retention.engines.select import Engines
from retention.history.kinds import RolledUp
from retention.history.runs import history_of
from retention.plan.plan import Plan
from retention.ports import Snapshot, Swap

MAINTENANCE_WAIT_S = 60.0


@dataclass(frozen=True)
class Removal:
    """The removal by a commit that adds messages, recorded and undone like a run."""

    run: str
    plan: Plan


@contextmanager
def recorded_removal(opened: OpenedStream) -> Iterator[str]:
    """Exclude other runs from the stream during the block; a name for the run that may result.

    Raises:
        BusyError: another run is in progress, and does not end.
        RefusedError: a server would refuse the changed configuration for the stream.
    """
    history = history_of(opened.warehouse, opened.name)
    with removing(opened, at_least_s=MAINTENANCE_WAIT_S):
        settle_interrupted(opened, history)
        check_update(opened, history)
        yield history.name_run(opened.clock())


def commit_removal(
    opened: OpenedStream,
    swap: Swap,
    removal: Removal,
    unstored: Mapping[int, int],
    snapshot: Snapshot,
) -> int:
    """Commit a swap that adds messages together with a removal; return the new version.

    Args:
        opened: the stream, under `recorded_removal`.
        swap: the added files.
        removal: the removed messages.
        unstored: partition → the highest sequence that is assigned and not stored, where there is one.
        snapshot: the version that both are based on.

    Raises:
        StalePlanError, ConflictError: another commit came first.
        VerificationError: a copy differs from the plan; nothing was committed.
    """
    plan = removal.plan
    record = RolledUp(
        run=removal.run,
        as_of_ns=plan.header.as_of_ns,
        policy=plan.header.policy.as_json(),
        removed_messages=plan.removed_messages,
        removed_bytes=plan.removed_bytes,
        by_rule=plan.by_rule,
        published_messages=swap.metadata["messages"],
        next_seq=dict(swap.next_seq),
    )
    with recorded_run(opened, snapshot, removal.run) as run, Engines("local") as engines:
        change = replace(
            prepare(opened, plan, engines, run).change,
            publish=swap.add,
            stepped_over=unstored,
            requirements=swap.requirements,
            updates=swap.updates,
            metadata={"messages": record.published_messages, "by_rule": record.by_rule},
        )
        return run.commit(record, change).committed_version
