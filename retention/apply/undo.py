"""Undoing a run within its grace period: exactly the files it removed come back, and its copies go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.foreign_changes import (
    UndoCheck,
    back_under_other_names,
    refuse_changed,
    refuse_put_back,
)
from retention.apply.recover import basis, settle_interrupted
from retention.apply.undo_records import (
    is_in_force,
    keep_for_undo,
    read_record,
    refuse_claimed,
    undo_location,
)
from retention.context.context import OpenedStream
from retention.context.topic import has_data
from retention.core.table_requirements import AssertEpoch, AssertRowTombstones, RowsCompared
from retention.core.table_updates import set_epoch, set_row_tombstones
from retention.errors import ForeignRowsError, RefusedError, UsageError
from retention.history.runs import REPAIR, UNKNOWN, History, history_of
from retention.interest.commit_offsets import lower_watermarks
from retention.ports import Snapshot, Swap
from retention.rules import DELETE_SEGMENTS
from retention.stores.checks import duplicates, inventory
from retention.stores.checks import swap as swaps
from retention.stores.layout import Layout
from retention.stores.lease import lease
from schemas.files import LOGGED_FILES, TOMBSTONED_FILES

RESTORE = "restore"
"""The run history's kind of a run that brings messages back from an archive."""
_COUNTING = frozenset({"done", UNKNOWN})
"""The statuses of runs that have, or may have, changed the table."""


def undo_run(opened: OpenedStream, run: str) -> dict[str, Any]:
    """Bring back what a run removed, as one commit; sequences and counters stay as they are.

    Args:
        opened: the stream.
        run: the run to undo.

    Returns:
        The record of the undoing run.

    Raises:
        UsageError: the stream has no such run, it changed nothing, or it was undone already.
        RefusedError: a later run touched the same segments; or a topic was purged since, or written to since it was.
        VerificationError: a removed file is gone or changed: the grace period is over.
    """
    history = history_of(opened.warehouse, opened.name)
    with lease(opened.root, "maintenance", opened.clock):
        settle_interrupted(opened, history)
        outcome = _undoable(opened, history, run)
        undo = history.name_run(opened.clock())
        snapshot = opened.store.snapshot()
        refuse_put_back(opened, snapshot, outcome)
        removed, added = (read_record(opened, run, name) for name in ("removed", "added"))
        _check_untouched(opened, history, run, removed)
        _check_in_force(opened, outcome, added)
        undoing = UndoCheck(opened, snapshot, outcome, removed, added)
        refuse_changed(undoing)
        if DELETE_SEGMENTS in outcome.get("by_rule", {}):
            lower_watermarks(opened, removed, history.continuing(outcome.get("epoch", 0))[-1])
            snapshot = opened.store.snapshot()
        epochs = _epochs(opened, history, outcome, snapshot)
        compared = _compared(undoing)
        record = {
            "kind": "undo",
            "undoes": run,
            "as_of_ns": outcome["as_of_ns"],
            "restored_messages": outcome["removed_messages"],
            "restored_bytes": outcome["removed_bytes"],
        } | ({"epoch": epochs[1]} if epochs[1] else {})
        unclaimed = refuse_claimed(opened, snapshot, removed)
        released = _record_before(opened, snapshot, outcome)
        keep_for_undo(opened, undo, added, removed)
        history.begin(undo, record | basis(snapshot) | {"status": "begun"})
        swap = Swap(
            remove=added.select(LOGGED_FILES.names),
            add=removed,
            metadata={"run": undo, "undoes": run},
            requirements=[
                AssertEpoch(epochs[0]),
                AssertRowTombstones(released[0]),
                unclaimed,
                *compared,
            ],
            updates=[*set_row_tombstones(*released), *set_epoch(*epochs)],
        )
        version = opened.store.commit(swap, snapshot)
        history.finish(undo, record | {"status": "done", "version_after": version})
    return {"run": undo, "stream": opened.name, **record, "version_after": version}


def _undoable(opened: OpenedStream, history: History, run: str) -> dict[str, Any]:
    outcome = history.done(run)
    if outcome is None or outcome.get("kind") == "undo" or outcome.get("status") not in _COUNTING:
        raise UsageError(
            f"{opened.name}: there is no finished run {run} to undo; `retention history` lists the runs"
        )
    if outcome.get("repair") == "sequences":
        raise UsageError(
            f"{opened.name}: run {run} repaired the stream, which cannot be undone: no pass goes on with what it took "
            f"out; its files stay for the grace period, and {undo_location(opened, run, 'removed')} names them"
        )
    if not outcome.get("removed_messages") and "ends_epoch" not in outcome:
        raise UsageError(f"{opened.name}: run {run} removed nothing, so there is nothing to undo")
    if outcome.get("request", {}).get("erase"):
        raise UsageError(
            f"{opened.name}: run {run} erased what it deleted, which cannot be undone; import a backup if you have one"
        )
    return outcome


def _may_be_in_force(opened: OpenedStream, outcome: Mapping[str, Any]) -> bool:
    """Whether a run committed, as far as anybody knows: where the history does not, the files that are live decide."""
    if outcome.get("status") != UNKNOWN:
        return outcome.get("status") == "done"
    return is_in_force(opened, outcome["run"], opened.store.snapshot()) is not False


def _check_in_force(opened: OpenedStream, outcome: Mapping[str, Any], added: pa.Table) -> None:
    """Refuse to undo an interrupted run of unknown outcome unless the table can be as that run left it.

    Raises:
        UsageError: it is not.
        RefusedError: nobody can tell, and what the run has put in place of its files cannot be taken away.
    """
    if outcome["status"] != UNKNOWN:
        return
    run = outcome["run"]
    in_force = is_in_force(opened, run, opened.store.snapshot())
    if in_force is False:
        raise UsageError(
            f"{opened.name}: run {run} was interrupted, and files that it was about to remove are in the table, so "
            "there is nothing to undo"
        )
    if in_force is None and added.num_rows:
        raise RefusedError(
            f"{opened.name}: run {run} was interrupted, and neither the log nor the files of the table tell any more "
            "whether it committed: neither those that it took nor those that it wrote in their place are there; "
            "nothing was changed; bring messages back from an archive or a backup"
        )


def _check_untouched(opened: OpenedStream, history: History, run: str, removed: pa.Table) -> None:
    """Refuse if `run` was undone already, or a run after it removed files of the same segments and still counts."""
    later = [record for record in history.since(run) if _may_be_in_force(opened, record)]
    undone = {record["undoes"]: record["run"] for record in later if record.get("kind") == "undo"}
    if run in undone:
        raise UsageError(f"{opened.name}: run {run} was undone already, by {undone[run]}")
    segments = _segments(removed) | _segments(_recorded_anew(opened, history.done(run) or {}))
    for record in later:
        counts = record.get("kind") != "undo" and record.get("repair") != "returned"
        counts = counts and record["run"] not in undone
        if counts and _purged(record):
            raise RefusedError(
                f"{opened.name}: run {record['run']} purged the topic after run {run}; undo that one first"
            )
        if record.get("kind") == RESTORE:
            back = _segments(read_record(opened, record["run"], "added"))
            if segments & back:
                raise RefusedError(
                    f"{opened.name}: run {record['run']} brought messages of the same segments back from an archive "
                    f"after run {run}, so that they would be there twice; nothing was changed; bring back the others "
                    "from the archive as well"
                )
        if not counts or not record["removed_messages"]:
            continue
        theirs = _segments(read_record(opened, record["run"], "removed"))
        if segments & (theirs | _segments(_recorded_anew(opened, record))):
            raise RefusedError(
                f"{opened.name}: run {record['run']} removed messages of the same segments after run {run}; undo "
                "that one first"
            )


def _purged(record: Mapping[str, Any]) -> bool:
    """Whether offsets began again with a run: a repair goes on with those that stay."""
    return "ends_epoch" in record and record.get("kind") != REPAIR


def _epochs(
    opened: OpenedStream, history: History, outcome: Mapping[str, Any], snapshot: Snapshot
) -> tuple[int, int]:
    """The epochs before and behind the undoing of a run: what a purge has ended goes on while nothing is in its way.

    Raises:
        RefusedError: messages came behind a purge.
    """
    here = history.continuing(outcome.get("epoch", 0))[-1]
    if "ends_epoch" not in outcome:
        return here, here
    if has_data(opened, snapshot):
        raise RefusedError(
            f"{opened.name}: messages came since run {outcome['run']} purged the topic, and have the offsets of those "
            "that it removed; nothing was changed; the run cannot be undone any more"
        )
    return here, outcome["ends_epoch"]


def _recorded_anew(opened: OpenedStream, outcome: Mapping[str, Any]) -> pa.Table:
    """The rows of both records of released ranges in which a run changed what is hidden, shape `TOMBSTONED_FILES`."""
    if "released" not in outcome:
        return TOMBSTONED_FILES.empty_table()
    before, after = (opened.store.released(number) for number in outcome["released"])
    return pa.concat_tables([_without(before, after), _without(after, before)])


def _without(record: pa.Table, other: pa.Table) -> pa.Table:
    """The rows of a record that the other does not have."""
    columns = ["path", "messages"]
    both = [pc.binary_join_element_wise(*_texts(table, columns), "/") for table in (record, other)]
    return record.filter(pc.invert(pc.is_in(both[0], value_set=both[1].combine_chunks())))


def _texts(record: pa.Table, columns: list[str]) -> list[pa.ChunkedArray]:
    return [record[name].cast(pa.string()) for name in columns]


def _record_before(
    opened: OpenedStream, snapshot: Snapshot, outcome: Mapping[str, Any]
) -> tuple[int, int]:
    """The numbers of the record of released ranges as it is, and of one that hides what it hid before the run."""
    number = snapshot.counters.released
    touched = _recorded_anew(opened, outcome)["path"].combine_chunks()
    if not len(touched):
        return number, number
    now, before = opened.store.released(number), opened.store.released(outcome["released"][0])
    others = now.filter(pc.invert(pc.is_in(now["path"], value_set=touched)))
    again = before.filter(pc.is_in(before["path"], value_set=touched))
    return number, opened.store.keep_released(pa.concat_tables([others, again]))


def _compared(undoing: UndoCheck) -> list[RowsCompared]:
    """Compare rows where ranges of files that come back meet files that stay, as those of one shuffle do.

    Returns:
        The files whose rows were compared with what comes back; nothing if there was nothing to compare.

    Raises:
        RefusedError: a message that would come back is there again.
    """
    opened, snapshot, removed = undoing.opened, undoing.snapshot, undoing.removed
    added = undoing.added
    stays = pc.invert(pc.is_in(snapshot.files["path"], value_set=added["path"].combine_chunks()))
    rest = snapshot.files.filter(stays)
    partitions = removed["partition"].unique().to_pylist()
    if not any(_meets(removed, rest, partition) for partition in partitions):
        return []
    live = opened.store.inventory(snapshot).files
    live = live.filter(pc.is_in(live["path"], value_set=rest["path"].combine_chunks()))
    together = inventory.in_order(pa.concat_tables([live, removed.cast(live.schema)]))
    overlaps = inventory.refuse_overlaps(opened.name, together)
    layout = Layout(opened.root, opened.name)
    try:
        duplicates.refuse_duplicates(layout, overlaps, opened.store.data_files)
    except ForeignRowsError as error:
        # The table itself was held against the rules by its inventory: what stands twice is what would come back.
        raise back_under_other_names(undoing) from error
    return [RowsCompared(live["path"].combine_chunks())]


def _meets(removed: pa.Table, rest: pa.Table, partition: int) -> bool:
    back, there = (
        table.filter(pc.equal(table["partition"], partition)) for table in (removed, rest)
    )
    return any(True for _ in swaps.overlapping(back, there, back.slice(0, 0)))


def _segments(files_of_run: pa.Table) -> set[tuple[int, int]]:
    partitions, segments = (files_of_run[name].to_pylist() for name in ("partition", "segment"))
    return set(zip(partitions, segments, strict=True))
