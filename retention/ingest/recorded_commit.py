"""Commits that add and remove messages: recorded before and after, so that they can be undone as a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from retention.apply.archive import LeavingFiles, archive
from retention.apply.guards import check_update
from retention.apply.keep_ids import keep_ids
from retention.apply.recorded_run import Change, recorded_run
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.context.maintenance import maintaining
from retention.datafile.parquet import stats_table
from retention.datafile.segment_writer import Removal
from retention.engines.select import Engines
from retention.history.kinds import RolledUp
from retention.history.runs import history_of
from retention.plan.run_ranges import ranges_of_files
from retention.ports import Snapshot, Swap

MAINTENANCE_WAIT_S = 60.0


@contextmanager
def recorded_removal(opened: OpenedStream) -> Iterator[str]:
    """Exclude other runs from the stream during the block; a name for the run that may result.

    Raises:
        BusyError: another run is in progress, and does not end.
        RefusedError: a server would refuse the changed configuration for the stream.
    """
    history = history_of(opened.warehouse, opened.name)
    with maintaining(opened, at_least_s=MAINTENANCE_WAIT_S):
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
    """
    copies = stats_table(removal.copies)
    leaving = LeavingFiles(
        removal.files, removal.run, removal.as_of_ns, {removal.rule: removal.messages}
    )
    with Engines("local") as engines:
        archived = archive(opened, leaving, snapshot, engines)
    ranges = ranges_of_files(removal.files, removal.lost, [removal.rule])
    keep_ids(opened, removal.files, removal.lost, snapshot)
    record = RolledUp(
        run=removal.run,
        as_of_ns=removal.as_of_ns,
        policy=opened.config.policy().as_json(),
        removed_messages=removal.messages,
        removed_bytes=removal.bytes,
        by_rule={removal.rule: removal.messages},
        published_messages=swap.metadata["messages"],
        next_seq=dict(swap.next_seq),
    )
    change = Change(
        remove=removal.files,
        add=copies,
        publish=swap.add,
        ranges=[ranges],
        stepped_over=unstored,
        archived=archived,
        requirements=swap.requirements,
        updates=swap.updates,
        metadata={"messages": record.published_messages, "by_rule": record.by_rule},
    )
    with recorded_run(opened, snapshot, removal.run) as run:
        return run.commit(record, change).committed_version
