"""An erasure under way: each step may be killed and done again, and any later run of the stream goes on with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pyarrow.compute as pc

from retention.apply.archive_erasure import beyond_reach, erase_in_archives
from retention.apply.archive_survey import ArchiveSurvey
from retention.apply.carry_out import carry_out
from retention.apply.dropped_tables import erased_by_file
from retention.apply.erasure_survey import (
    ErasureSurvey,
    refuse_held_in,
    refuse_held_rows,
    removed_by,
    survey_erasure,
)
from retention.apply.erasure_survivors import of_other_streams, survivors
from retention.apply.execution import ExecutionTerms
from retention.apply.kept_request import KeptRequest, instants_to_keep, kept_request
from retention.apply.undo_records import kept_runs
from retention.context.context import OpenedStream, has_table
from retention.context.holds import holds_ledger
from retention.core.json_object import JsonObject
from retention.core.labels import labelled
from retention.core.subjects import path_name
from retention.engines.select import Engines
from retention.erasure.copies import (
    companions_of,
    dead_copies,
    orphaned_digests,
    unused_vectors,
)
from retention.erasure.keyed_hash import KeyedHash, keyed_hash_of
from retention.erasure.ledger import ErasureLedger
from retention.erasure.listing import ListedErasures
from retention.erasure.needle_file import NeedleFile
from retention.erasure.needles import Needles, needles_of_rows
from retention.erasure.own_records import ErasedNames, conceal_holds, erase_arguments
from retention.erasure.proof import Proof
from retention.erasure.record import DeletedFile, ErasureRecord, Erasures
from retention.erasure.report import ErasureReport
from retention.erasure.unfinished import told_unfinished
from retention.errors import (
    BusyError,
    ConflictError,
    DamagedError,
    RetentionError,
    StalePlanError,
    VerificationError,
)
from retention.history.kinds import Erased
from retention.history.runs import history_of
from retention.rules.erase import ErasedMessages
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.archive_erasures import read_replacements
from retention.stores.consumer_table import ConsumerTable
from retention.stores.holds import HoldRecords
from retention.stores.kept_ids import IdDigests, RemovedIds, UnstoredIds
from retention.stores.lease import lease
from retention.stores.ledger import ledger_home
from retention.stores.replay_states import ReplayStates

ATTEMPTS = 20
APPENDS_WAIT_S = 60.0
_LIVE_REMOVED = "its live messages are removed, and the files that have copies are kept"
_log = logging.getLogger(__name__)


def erasures_of(opened: OpenedStream) -> Erasures:
    """The erasures of a stream."""
    return Erasures(opened.root, opened.name)


def ledger_of(opened: OpenedStream) -> ErasureLedger | None:
    """The erasures of a stream in the ledger; None: there is no ledger."""
    if opened.ledger is None:
        return None
    return ErasureLedger(ledger_home(opened.ledger, "streams", opened.name), opened.name)


def begin_erasure(
    opened: OpenedStream,
    survey: ErasureSurvey,
    record: ErasureRecord,
    request: JsonObject,
    reason: str,
) -> ErasureRecord:
    """Write the encrypted needles of an erasure, then its record, and return it.

    Args:
        opened: the stream.
        survey: the survey of the erasure.
        record: its record, without files.
        request: the messages that it names, as `NeedleFile.request`.
        reason: in clear.
    """
    erasures = erasures_of(opened)
    erasures.delete_unrecorded()
    kept = {**request, "instants": instants_to_keep(survey)}
    content = NeedleFile(kept, reason, needles_of_rows(survey.rows()))
    erasures.write_needles(record, content)
    record = with_files(record, survey)
    erasures.write(record)
    return record


def finish_erasures(opened: OpenedStream, listed: ListedErasures) -> None:
    """Go on with unfinished erasures, under the maintenance lease; what prevents one is logged, and it stays so."""
    for record in map(erasures_of(opened).read, listed.unfinished):
        if record.replayed:
            continue
        try:
            with Engines() as engines:
                finish_erasure(opened, record, engines)
        except RetentionError as error:
            _log.warning("%s", error)


def finish_erasure(
    opened: OpenedStream,
    record: ErasureRecord,
    engines: Engines,
    survey: ErasureSurvey | None = None,
) -> ErasureReport:
    """Carry out every step that is left of an erasure, under the maintenance lease.

    Args:
        opened: the stream.
        record: the erasure.
        engines: the engines that read rows.
        survey: its survey, if it has just begun.

    Raises:
        RefusedError: a legal hold covers a message that would be lost.
        BusyError: another process appends, or keeps changing the table.
        DamagedError, VerificationError, StorageError: as the steps. Every sentence says that the erasure is unfinished.
    """
    erasures = erasures_of(opened)
    if erasures.has_report(record.id):
        return report_of(opened, erasures.close(record))
    with labelled(step=f"erasure {record.id}"), told_unfinished(opened.name, record.id):
        content = erasures.read_needles(record)
        wanted = kept_request(record, content)
        messages = wanted.request.messages
        if has_table(opened):
            record, survey = _removed(opened, wanted, record, engines, survey)
            _delete_copies(opened, messages)
            record, content = _erased_in_archives(opened, survey, record, content, engines)
        archives = ArchiveSurvey() if survey is None else survey.archives
        return _proved(opened, record, content, messages, archives)


def with_files(record: ErasureRecord, survey: ErasureSurvey) -> ErasureRecord:
    """The record with the files that a survey is about to delete, and the runs that lose their undo."""
    known = {file.path: file for file in record.deleted}
    known |= {copy.path: DeletedFile(path=copy.path, bytes=copy.bytes) for copy in survey.copies}
    rows = survey.planned.plan.actions.files.select(["path", "file_bytes"]).to_pylist()
    known |= {row["path"]: DeletedFile(path=row["path"], bytes=row["file_bytes"]) for row in rows}
    return record.updated(
        deleted=[known[path] for path in sorted(known)],
        lost_undos=sorted({*record.lost_undos, *survey.lost_undos}),
    )


def report_of(opened: OpenedStream, record: ErasureRecord) -> ErasureReport:
    """The report of an erasure so far."""
    runs = [
        run
        for run in history_of(opened.warehouse, opened.name).outcomes()
        if isinstance(run, Erased) and run.erasure == record.id
    ]
    return ErasureReport(
        opened.name,
        record,
        max((run.run for run in runs), default=None),
        sum(run.removed_messages for run in runs if run.is_done),
        sum(run.removed_bytes for run in runs if run.is_done),
    )


def _removed(
    opened: OpenedStream,
    wanted: KeptRequest,
    record: ErasureRecord,
    engines: Engines,
    first: ErasureSurvey | None,
) -> tuple[ErasureRecord, ErasureSurvey]:
    """Remove the live messages: their ids first, while the rows still tell them."""
    history = history_of(opened.warehouse, opened.name)
    for _ in range(ATTEMPTS):
        survey, first = (
            first
            or survey_erasure(opened, wanted.request, engines, wanted.instants, record.without),
            None,
        )
        known, record = record, with_files(record, survey)
        if record != known:
            erasures_of(opened).write(record)
        _note_in_ledger(opened, record, survey)
        _forget_ids(survey)
        is_recorded = report_of(opened, record).run is not None
        if survey.planned.plan.is_empty and is_recorded:
            return record, survey
        started = opened.clock()
        run = history.name_run(started)
        try:
            carry_out(opened, survey.planned, ExecutionTerms(engines), history, run, started)
        except (ConflictError, StalePlanError):
            continue
        except (DamagedError, VerificationError):
            # A process that took the lease over may have carried the erasure out, and deleted files.
            if not _has_changed(opened, survey):
                raise
            continue
        return record, survey
    raise BusyError(
        f"{opened.name}: the table changed {ATTEMPTS} times between the plan of erasure {record.id} and its commit; "
        "nothing was removed; run again"
    )


def _note_in_ledger(opened: OpenedStream, record: ErasureRecord, survey: ErasureSurvey) -> None:
    ledger = ledger_of(opened)
    if ledger is not None and not ledger.has(record.id):
        ledger.write(record, survey.narrow_rows())


def _has_changed(opened: OpenedStream, survey: ErasureSurvey) -> bool:
    """Whether the table has another version than the one of a survey."""
    snapshot = survey.planned.snapshot
    return snapshot is not None and opened.store.snapshot().version != snapshot.version


def _forget_ids(survey: ErasureSurvey) -> None:
    """Take the ids of the erased messages out of the records of message ids."""
    snapshot, ids = survey.planned.snapshot, survey.ids
    if not ids.num_rows:
        return
    layout, seqs = survey.opened.layout, pc.unique(ids["seq"])
    if snapshot is None:
        RemovedIds(layout).forget(IdDigests("").of_all(()), seqs)
    else:
        digests = IdDigests(snapshot.table_id).of_all(ids["msg_id"].drop_null().to_pylist())
        RemovedIds(layout).forget(digests, seqs)
        UnstoredIds(layout, snapshot.counters).forget(digests)
        ReplayStates(layout, snapshot.counters).forget(digests)
    reached(Step.ERASED_IDS_FORGOTTEN)


def _delete_copies(opened: OpenedStream, messages: ErasedMessages) -> None:
    """Delete every file with erased messages that is not live, then what describes it, then the log before."""
    with lease(opened.root, "append", opened.clock, wait_s=APPENDS_WAIT_S):
        opened.table_format.dead_files(opened.layout, opened.store).settle()
        live = opened.store.snapshot().files if opened.table.exists() else None
        kept = [] if live is None else opened.store.data_files(live)
        holds = HoldRecords(opened.root, opened.name).in_effect()
        copies = dead_copies(
            opened, [file.location for file in kept], erased_by_file(opened, messages), holds
        )
        held = (row for copy in copies for row in copy.held)
        refuse_held_rows(opened, holds, held, _LIVE_REMOVED)
        files.delete(copy.location for copy in copies)
        files.delete(place for copy in copies for place in companions_of(opened, copy))
        reached(Step.ERASED_COPIES_DELETED)
        opened.table_format.forget_log(opened.layout)
        files.delete(orphaned_digests(opened))
        if live is not None:
            named = [*live["path"].to_pylist(), *_removed_paths(opened)]
            files.delete(unused_vectors(opened, named))
        reached(Step.ERASED_DIGESTS_DELETED)


def _erased_in_archives(
    opened: OpenedStream,
    survey: ErasureSurvey,
    record: ErasureRecord,
    content: NeedleFile,
    engines: Engines,
) -> tuple[ErasureRecord, NeedleFile]:
    """Erase in the archives that can be reached, and record which could not."""
    erasures, archives = erasures_of(opened), survey.archives
    refuse_held_in(
        opened, HoldRecords(opened.root, opened.name).in_effect(), archives, _LIVE_REMOVED
    )
    rows = (rows for copy in archives.copies if copy.rows for rows in copy.rows_of_erasure())
    # An archive that was out of reach has strings of its own.
    needles = content.needles.joined(needles_of_rows(rows))
    if len(needles) > len(content.needles):
        content = replace(content, needles=needles, left=None, left_at=-1)
        erasures.write_needles(record, content)
    known = {file.path: file for file in record.archived}
    known |= {
        copy.location: DeletedFile(path=copy.location, bytes=copy.bytes) for copy in archives.copies
    }
    deleted = [known[location] for location in sorted(known)]
    if deleted != record.archived:
        record = record.updated(archived=deleted)
        erasures.write(record)
    failed = erase_in_archives(opened, archives, record.id, engines)
    left = record.updated(
        unreached=[*archives.unreached, *failed],
        archive_records=_archive_records(record, archives),
    )
    if left != record:
        erasures.write(left)
    return left, content


def _archive_records(record: ErasureRecord, archives: ArchiveSurvey) -> list[str]:
    """The locations of the records of an erasure in archives, those of archives out of reach as they were."""
    written = (
        stored.location
        for directory in archives.directories
        for stored in read_replacements(directory).of(record.id)
    )
    return sorted({*record.archive_records, *written})


def _removed_paths(opened: OpenedStream) -> Iterator[str]:
    """The paths of the files that runs removed and an undo may restore."""
    for run, names in kept_runs(opened).items():
        if "removed" in names:
            yield from removed_by(opened, run)


def _proved(
    opened: OpenedStream,
    record: ErasureRecord,
    content: NeedleFile,
    messages: ErasedMessages,
    archives: ArchiveSurvey,
) -> ErasureReport:
    """Destroy what our own records say, search everything that is left, and end the erasure if nothing is found."""
    erasures, keyed = erasures_of(opened), keyed_hash_of(opened.warehouse)
    runs = files.join(opened.warehouse, "runs", path_name(opened.name))
    proof = Proof(
        erasures,
        keyed,
        places=(opened.warehouse, opened.layout.messages, *archives.directories),
        spared=(erasures.needles(record.id), *of_other_streams(opened), *archives.of_others),
        decodable=(opened.root, opened.layout.messages, runs, *archives.directories),
        version=opened.store.snapshot().version if opened.table.exists() else -1,
        survivors=partial(survivors, opened, record, messages, archives),
        forget=partial(_forget_names, opened, messages, keyed),
    )
    record = erasures.with_beyond(record, beyond_reach(opened, archives))
    record, needles, searched = proof.attempted(record, content)
    return proof.concluded(report_of(opened, record).with_search(needles, searched))


def _forget_names(
    opened: OpenedStream,
    messages: ErasedMessages,
    keyed: KeyedHash,
    record: ErasureRecord,
    needles: Needles,
) -> ErasureRecord:
    """Take strings of an erasure out of our own records."""
    names = ErasedNames(messages, frozenset(_texts(needles)))
    erase_arguments(history_of(opened.warehouse, opened.name), names)
    conceal_holds(HoldRecords(opened.root, opened.name), names, keyed)
    if (ledger := holds_ledger(opened)) is not None:
        conceal_holds(ledger.copies, names, keyed)
    generation = opened.table.lifetime().generation
    ConsumerTable(opened.root, generation).forget(names.are_in)
    return record


def _texts(needles: Needles) -> Iterator[str]:
    for string in needles.strings.to_pylist():
        yield string.decode(errors="replace")
