"""Settling interrupted runs: the table shows whether they committed, and the run history records it."""

from __future__ import annotations

from retention.context.context import OpenedStream, has_table
from retention.core.run_names import parse_run_name
from retention.erasure.listing import listed_erasures
from retention.history.kinds import ForeignMoved
from retention.history.record import ABANDONED, DONE, UNKNOWN, RunRecord
from retention.history.runs import History
from retention.ports import Snapshot
from retention.storage import files


def settle_interrupted(opened: OpenedStream, history: History) -> None:
    """Give every interrupted run its outcome, under the maintenance lease; no live file of the table is touched.

    Raises:
        RefusedError: a newer release made a run of an unknown kind; or as `replay.replay_erasures`.
        DamagedError, StorageError: as `replay.replay_erasures`.
    """
    for intent in history.interrupted():
        begun = intent if intent.names_initiator else intent.updated(who=None)
        if isinstance(begun, ForeignMoved):
            _settle_moves(opened, history, begun)
            continue
        outcome = _outcome(opened, begun)
        history.finish(outcome)
    _settle_erasures(opened)


def _settle_erasures(opened: OpenedStream) -> None:
    """Replay the erasures that only the ledger has, and go on with unfinished ones."""
    listed = listed_erasures(opened.root)
    if opened.ledger is not None:
        from retention.apply.replay import replay_erasures

        replay_erasures(opened, listed)
    if listed.unfinished:
        from retention.apply.erasure_run import finish_erasures

        finish_erasures(opened, listed)


def _settle_moves(opened: OpenedStream, history: History, begun: ForeignMoved) -> None:
    """Record the files that an interrupted run moved aside, even if only some; the others were not moved."""
    from retention.stores.parquet.adopt import aside

    there = set(files.walk(aside(opened.layout, begun.run)))
    moved = [file for file in begun.files if file.path in there]
    status = DONE if moved else ABANDONED
    history.finish(begun.updated(status=status, settled=True, files=moved))


def _outcome(opened: OpenedStream, begun: RunRecord) -> RunRecord:
    """The outcome of an interrupted run: `done`, `abandoned`, or `unknown`."""
    if not has_table(opened):
        return begun.updated(status=UNKNOWN)
    version = opened.store.find_commit(begun.run, _basis_version(begun))
    committed = True if version is not None else _committed(opened, begun)
    if committed is None:
        return begun.updated(status=UNKNOWN)
    if not committed:
        return begun.updated(status=ABANDONED)
    return begun.updated(status=DONE, settled=True, version_after=version)


def _committed(opened: OpenedStream, begun: RunRecord) -> bool | None:
    """Whether a run committed that no log entry names; None: unknown.

    Where entries were cleaned up, the instant of the last committed run, which the log keeps for good, decides; in a
    log from before it was kept, the files that the run removed and added decide.
    """
    from retention.apply.undo_records import is_in_force

    # Also for a table that is refused until it is repaired.
    snapshot, _ = opened.store.resurrected_files()
    if _was_replaced(begun, snapshot):
        return None
    if opened.store.has_entries(_basis_version(begun), snapshot.version):
        return False
    name, last_ns = parse_run_name(begun.run), snapshot.counters.last_run_ns or 0
    if name is not None and begun.basis is not None and last_ns <= name.started_ns:
        return last_ns == name.started_ns
    return is_in_force(opened, begun.run, snapshot)


def _basis_version(begun: RunRecord) -> int:
    """The version of the table that a run was based on; -1 for a record from before it was kept."""
    return -1 if begun.basis is None else begun.basis.version


def _was_replaced(begun: RunRecord, snapshot: Snapshot) -> bool:
    """Whether the table is not the one that the run was based on, or is an earlier state of it."""
    if begun.basis is None:
        return False
    is_another = begun.basis.table_id != snapshot.table_id
    return is_another or snapshot.version < begun.basis.version
