"""An erasure of rows under way: each step may be killed and done again, and any later run of the table goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import unquote

import pyarrow as pa

from retention.core.labels import labelled
from retention.core.spoken_commands import command
from retention.core.subjects import path_name
from retention.core.table_policy import Column
from retention.core.wording import counted
from retention.delta import snapshot as delta_log
from retention.delta.snapshot import DeltaSnapshot
from retention.engines.local import LocalEngine
from retention.erasure.concealing import concealed_paths
from retention.erasure.keyed_hash import KeyedHash, keyed_hash_of
from retention.erasure.needle_file import NeedleFile
from retention.erasure.needles import Needles
from retention.erasure.own_records import ErasedNames, conceal_holds, erase_arguments
from retention.erasure.proof import Proof, directories_of_others
from retention.erasure.record import DeletedFile, ErasureRecord
from retention.erasure.report import ErasureReport
from retention.erasure.unfinished import told_unfinished
from retention.errors import (
    BusyError,
    ConflictError,
    RetentionError,
    StalePlanError,
    VerificationError,
)
from retention.history.kinds import TableApplied, TableErased
from retention.rules.erase import ErasedMessages
from retention.storage import files
from retention.storage.bucket_versions import kept_versions
from retention.storage.crash_points import Step, reached
from retention.stores.holds import HoldRecords
from retention.tables.committing import committing
from retention.tables.erased_rows import (
    ChooseEngine,
    Key,
    former_files,
    key_texts,
    live_files,
    live_texts,
    typed_keys,
)
from retention.tables.erasure_survey import (
    TableErasureSurvey,
    refuse_held_files,
    survey_table_erasure,
    written_by_runs,
)
from retention.tables.erasures import announced, erasures_of, with_digests
from retention.tables.evidence import Evidence, hash_evidence, read_evidence
from retention.tables.holds import TableHoldRecords
from retention.tables.narrow import shown_name
from retention.tables.opened import OpenedTable
from retention.tables.recorded import Announced, commit_recorded, removing
from retention.tables.records import erase_changes, erase_digests
from retention.tables.stage import discarded_on_failure, stage_copies

ATTEMPTS = 20
_REMOVED = "its live rows are removed, and files that our runs wrote are kept"
_log = logging.getLogger(__name__)


def go_on_with_erasures(table: OpenedTable) -> None:
    """Go on with unfinished erasures, as a part of another run; what prevents one is logged, and it stays so."""
    for record in erasures_of(table).unfinished():
        try:
            with removing(table):
                finish_table_erasure(table, record, lambda size: LocalEngine())
        except RetentionError as error:
            _log.warning("%s", error)


def finish_table_erasure(
    table: OpenedTable,
    record: ErasureRecord,
    choose: ChooseEngine,
    survey: TableErasureSurvey | None = None,
) -> ErasureReport:
    """Carry out every step that is left of an erasure, under the maintenance lease.

    Args:
        table: the table.
        record: the erasure.
        choose: the choice of an engine.
        survey: its survey, if it has just begun.

    Raises:
        RefusedError: a legal hold covers a row.
        BusyError: others keep changing the table.
        VerificationError: an erased row is in the table again.
        DamagedError, StorageError: as the steps. Every sentence says that the erasure is unfinished.
    """
    erasures = erasures_of(table)
    if erasures.has_report(record.id):
        return table_report_of(table, erasures.close(record))
    with labelled(step=f"erasure {record.id}"), told_unfinished(table.name, record.id):
        content = erasures.read_needles(record)
        keys = keys_of(content)
        if removal_of(table, record) is None:
            record = _removed(table, record, keys, choose, survey)
        record = _delete_own_files(table, record, keys, choose)
        return _proved(table, record, content, choose)


def keys_of(content: NeedleFile) -> list[Key]:
    """The keys of a request."""
    return [{tuple(column): value for column, value in key} for key in content.request["keys"]]


def with_files(record: ErasureRecord, survey: TableErasureSurvey) -> ErasureRecord:
    """The record with the files that leave the table or are deleted, and the runs that lose their undo."""
    keyed, ours = (
        keyed_hash_of(survey.table.warehouse),
        {file.path for file in survey.written_by_us},
    )
    shown = concealed_paths(ours, survey.needles, keyed) if ours else {}
    known = {file.path: file for file in record.deleted}
    for path in ours:
        size = files.length(files.join(survey.snapshot.root, path)) or 0
        known[shown[path]] = DeletedFile(path=shown[path], bytes=size)
    former = {file.path for file in (*survey.live, *survey.former)} - ours
    return record.updated(
        deleted=[known[path] for path in sorted(known)],
        former=sorted({*record.former, *map(keyed.of, former)}),
        lost_undos=sorted({*record.lost_undos, *survey.lost_undos()}),
    )


def table_report_of(table: OpenedTable, record: ErasureRecord) -> ErasureReport:
    """The report of an erasure so far."""
    run = removal_of(table, record)
    return ErasureReport(
        table.name,
        record,
        None if run is None else run.run,
        0 if run is None else run.removed_rows,
        0 if run is None else run.removed_bytes,
        location=table.location,
    )


def removal_of(table: OpenedTable, record: ErasureRecord) -> TableErased | None:
    """The run that removed the rows."""
    runs = (
        run
        for run in table.history.outcomes()
        if isinstance(run, TableErased) and run.erasure == record.id and run.is_done
    )
    return next(runs, None)


def _removed(
    table: OpenedTable,
    record: ErasureRecord,
    keys: list[Key],
    choose: ChooseEngine,
    first: TableErasureSurvey | None,
) -> ErasureRecord:
    """Take the rows out of the table, in one commit; planned again if others change these files meanwhile."""
    erasures = erasures_of(table)
    for _ in range(ATTEMPTS):
        TableHoldRecords(table).place_written()
        survey, first = first or survey_table_erasure(table, keys, choose, record.former), None
        known, record = record, with_files(record, survey)
        if record != known:
            erasures.write(record)
        if not survey.live:
            return record
        try:
            _commit(table, record, survey)
        except (ConflictError, StalePlanError):
            continue
        return record
    raise BusyError(
        f"{table.name}: others changed the same files {ATTEMPTS} times between the plan of erasure {record.id} and its "
        "commit; nothing was removed; run again"
    )


def _commit(table: OpenedTable, record: ErasureRecord, survey: TableErasureSurvey) -> None:
    run, now_ns = table.history.name_run(table.clock()), table.clock()
    staged = stage_copies(survey.snapshot, ((file.add, file.dead) for file in survey.live))
    dropped = sum(file.dead is None for file in survey.live)
    intent = TableErased(
        run=run,
        as_of_ns=now_ns,
        erasure=record.id,
        location=table.location,
        removed_rows=survey.removed_rows,
        removed_bytes=sum(int(file.add["size"]) for file in survey.live if file.dead is None),
        files_dropped=dropped,
        files_cut=len(survey.live) - dropped,
        bytes_written=staged.bytes_written(),
    )
    numbers = {
        "numRemovedFiles": dropped,
        "numDeletedRows": survey.removed_rows,
        "numAddedFiles": len(staged.copies),
    }
    with committing(table, run):
        # A legal hold that is placed later names the run that it came too late for.
        with discarded_on_failure(table.location, staged.written()):
            _refuse_new_holds(table, survey.holds)
        announced = Announced(table, run, staged)
        commit_recorded(table, survey.snapshot, intent, announced, "DELETE", numbers)


def _refuse_new_holds(table: OpenedTable, known: Sequence[str]) -> None:
    if [hold.id for hold in TableHoldRecords(table).in_effect()] != [*known]:
        raise StalePlanError(
            f"{table.name}: a legal hold was placed or released while the erasure was prepared; nothing was changed; "
            "run again"
        )


def _delete_own_files(
    table: OpenedTable, record: ErasureRecord, keys: list[Key], choose: ChooseEngine
) -> ErasureRecord:
    """Delete what our runs wrote and others took out of the table, and what our records say about erased rows."""
    snapshot = delta_log.read(table.location)
    # Readers of the version before the removal need its files, whoever wrote them.
    keyed, spared = keyed_hash_of(table.warehouse), {*record.former}
    written = (path for path in written_by_runs(table) if keyed.of(path) not in spared)
    ours = former_files(snapshot, typed_keys(table, snapshot, keys), choose, written)
    refuse_held_files(table, snapshot, ours, choose, _REMOVED)
    files.delete(files.join(table.location, file.path) for file in ours)
    reached(Step.ERASED_COPIES_DELETED)
    record = announced(table, record, "changes", record.lost_undos)
    for run in record.lost_undos:
        erase_changes(table, run)
    live = {unquote(path) for path in snapshot.files["path"].to_pylist()}
    gone = {file.path for file in ours}
    erase_digests(
        table, lambda path: path not in live and (path in gone or keyed.of(path) in spared)
    )
    return record


def _proved(
    table: OpenedTable, record: ErasureRecord, content: NeedleFile, choose: ChooseEngine
) -> ErasureReport:
    """Destroy what our own records say, search everything that is left, and end the erasure if nothing is found."""
    erasures, keyed, keys = erasures_of(table), keyed_hash_of(table.warehouse), keys_of(content)
    snapshot = delta_log.read(table.location)
    _refuse_restored(table, snapshot, record, keys, choose)
    runs = files.join(table.warehouse, "runs", path_name(table.name))
    proof = Proof(
        erasures,
        keyed,
        places=(table.warehouse, table.location),
        spared=(erasures.needles(record.id), *_of_others(table)),
        decodable=(table.location, table.home, runs),
        version=snapshot.version,
        survivors=partial(live_texts, snapshot),
        forget=partial(_forget_names, table, keys),
        former=list(_former(table, record, keyed)),
    )
    record = erasures.with_beyond(record, kept_versions([table.warehouse, table.location]))
    record, needles, searched = proof.attempted(record, content)
    return proof.concluded(table_report_of(table, record).with_search(needles, searched))


def _forget_names(
    table: OpenedTable, keys: list[Key], record: ErasureRecord, needles: Needles
) -> ErasureRecord:
    """Take strings of an erasure, and its keys, out of our own records."""
    long, pairs = key_texts(keys)
    strings = {string.decode(errors="replace") for string in needles.strings.to_pylist()}
    names = ErasedNames(ErasedMessages(), frozenset(strings | long | pairs))
    record = _hash_evidence(table, record, keys, needles)
    erase_arguments(table.history, names)
    keyed = keyed_hash_of(table.warehouse)
    conceal_holds(HoldRecords(table.home, table.name), names, keyed)
    return record


def _former(table: OpenedTable, record: ErasureRecord, keyed: KeyedHash) -> Iterator[str]:
    """The locations of files of older versions with rows of an erasure that their owner has not deleted yet."""
    hashes = {*record.former}
    for path in sorted(files.walk(table.location)) if hashes else ():
        if keyed.of(path) in hashes:
            yield files.join(table.location, path)


def _refuse_restored(
    table: OpenedTable,
    snapshot: DeltaSnapshot,
    record: ErasureRecord,
    keys: list[Key],
    choose: ChooseEngine,
) -> None:
    """Refuse to prove an erasure while the table has a file that the removal took out.

    Raises:
        VerificationError: it has one.
    """
    keyed, gone = keyed_hash_of(table.warehouse), {*record.former}
    paths = snapshot.files["path"].to_pylist() if gone else []
    back = pa.array([path for path in paths if keyed.of(unquote(path)) in gone], pa.string())
    left = live_files(snapshot, typed_keys(table, snapshot, keys), choose, back)
    if left:
        rows = counted(sum(file.removed for file in left), "row")
        raise VerificationError(
            f"{table.name}: the table has {rows} of erasure {record.id} in {left[0].path}, which others restored, or "
            f"which was never removed; erase these rows once more: {command('erase', table.name, options='--key …')}"
        )


def _hash_evidence(
    table: OpenedTable, record: ErasureRecord, keys: list[Key], needles: Needles
) -> ErasureRecord:
    """Replace keys by hashes, and paths that have erased strings, in the evidence that has either."""
    wanted: dict[Column, set[str]] = {}
    for key in keys:
        for column, value in key.items():
            wanted.setdefault(column, set()).add(value)
    for run in table.history.outcomes():
        evidence = read_evidence(table, run.run) if isinstance(run, TableApplied) else None
        if evidence is None:
            continue
        paths = set(evidence.rows["file"].to_pylist())
        shown = concealed_paths(paths, needles, keyed_hash_of(table.warehouse)) if paths else {}
        if _has_keys(evidence, wanted) or any(path != name for path, name in shown.items()):
            record = announced(table, record, "evidence", [run.run])
            hash_evidence(table, run.run, evidence, shown)
    return with_digests(table, record)


def _has_keys(evidence: Evidence, wanted: Mapping[Column, set[str]]) -> bool:
    """Whether evidence has the value of a key in clear."""
    if evidence.form != "keys":
        return False
    return any(
        not wanted[column].isdisjoint(
            evidence.rows[shown_name(column)].cast(pa.string()).unique().to_pylist()
        )
        for column in evidence.key
        if column in wanted
    )


def _of_others(table: OpenedTable) -> Iterator[str]:
    """The directories of streams, of other tables, and of their histories."""
    yield files.join(table.warehouse, "streams")
    yield from directories_of_others(table.warehouse, "tables", table.name)
