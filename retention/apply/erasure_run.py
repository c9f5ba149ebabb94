"""An erasure under way: each step may be killed and done again, and any later run of the stream goes on with it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.erasure_survey import (
    ErasureSurvey,
    refuse_held_rows,
    removed_by,
    survey_erasure,
)
from retention.apply.execute import ExecutionTerms, carry_out
from retention.apply.undo_records import kept_runs
from retention.context.context import OpenedStream, has_table
from retention.context.holds import holds_ledger
from retention.core.json_object import JsonObject
from retention.core.labels import labelled
from retention.core.progress import with_progress
from retention.core.spoken_commands import command
from retention.core.subjects import path_name
from retention.core.wording import counted
from retention.datafile.parquet import read_columns
from retention.engines.select import Engines
from retention.erasure.copies import (
    companions_of,
    dead_copies,
    orphaned_digests,
    removed_rows,
    unused_vectors,
)
from retention.erasure.keyed_hash import keyed_hash_of
from retention.erasure.ledger import ErasureLedger
from retention.erasure.needle_file import (
    NeedleFile,
    new_key,
    read_needles,
    write_needles,
)
from retention.erasure.needles import Needles, needles_of_rows
from retention.erasure.own_records import ErasedNames, conceal_holds, erase_arguments
from retention.erasure.proof import Proof, closed
from retention.erasure.record import DeletedFile, ErasureRecord, Erasures
from retention.erasure.report import ErasureReport
from retention.erasure.search import SearchResult
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
from retention.rules.erase import Erase, ErasedMessages
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.parallel import in_threads
from retention.stores.consumer_table import ConsumerTable
from retention.stores.holds import HoldRecords
from retention.stores.kept_ids import IdDigests, RemovedIds, UnstoredIds
from retention.stores.lease import lease
from retention.stores.ledger import ledger_home

ATTEMPTS = 20
APPENDS_WAIT_S = 60.0
_LIVE_REMOVED = (
    "its live messages are removed, the files that have copies are kept, and it is unfinished"
)
_TEXTS = ("subject", "headers", "payload", "msg_id")
_SURVIVING = ("seq", "ts_ns", *_TEXTS)
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
        record: its record, without a key and files.
        request: the messages that it names, as `NeedleFile.request`.
        reason: in clear.
    """
    erasures, key = erasures_of(opened), new_key()
    erasures.delete_unrecorded()
    content = NeedleFile(request, reason, needles_of_rows(survey.rows()))
    write_needles(erasures.needles(record.id), key, content)
    record = with_files(record.updated(key=key.hex()), survey)
    erasures.write(record)
    return record


def finish_erasures(opened: OpenedStream) -> None:
    """Go on with unfinished erasures, under the maintenance lease; what prevents one is logged, and it stays so."""
    for record in erasures_of(opened).unfinished():
        if record.replayed:
            continue
        try:
            with Engines() as engines:
                finish_erasure(opened, record, engines)
        except RetentionError as error:
            _log.warning("%s: erasure %s stays unfinished: %s", opened.name, record.id, error)


def finish_erasure(opened: OpenedStream, record: ErasureRecord, engines: Engines) -> ErasureReport:
    """Carry out every step that is left of an erasure, under the maintenance lease.

    Raises:
        RefusedError: a legal hold covers a message that would be lost.
        BusyError: another process appends, or keeps changing the table.
        DamagedError, VerificationError, StorageError: as the steps.
    """
    erasures = erasures_of(opened)
    if erasures.report(record.id) is not None:
        return report_of(opened, closed(erasures, record))
    with labelled(step=f"erasure {record.id}"):
        content = read_needles(erasures.needles(record.id), _key(record))
        named = content.request
        messages = ErasedMessages(
            tuple(named["subjects"]),
            tuple(named["seqs"]),
            record.below,
            tuple(named.get("times", ())),
        )
        request = Erase(record.id, messages)
        if has_table(opened):
            record = _removed(opened, request, record, engines)
            _delete_copies(opened, messages)
        return _proved(opened, record, content, messages)


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


def report_of(
    opened: OpenedStream,
    record: ErasureRecord,
    needles: Needles | None = None,
    searched: SearchResult | None = None,
) -> ErasureReport:
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
        not_searched=0 if needles is None else needles.too_short,
        shared=0 if needles is None else needles.shared,
        searched_files=0 if searched is None else searched.files,
        searched_bytes=0 if searched is None else searched.bytes_raw,
        undecodable=() if searched is None else searched.undecodable,
        vanished=() if searched is None else searched.vanished,
    )


def _removed(
    opened: OpenedStream, request: Erase, record: ErasureRecord, engines: Engines
) -> ErasureRecord:
    """Remove the live messages: their ids first, while the rows still tell them."""
    history = history_of(opened.warehouse, opened.name)
    for _ in range(ATTEMPTS):
        survey = survey_erasure(opened, request, engines)
        known, record = record, with_files(record, survey)
        if record != known:
            erasures_of(opened).write(record)
        _note_in_ledger(opened, record, survey)
        _forget_ids(survey)
        is_recorded = report_of(opened, record).run is not None
        if survey.planned.plan.is_empty and is_recorded:
            return record
        started = opened.clock()
        run = history.name_run(started)
        try:
            carry_out(opened, survey.planned, ExecutionTerms(engines), history, run, started)
        except (ConflictError, StalePlanError):
            continue
        except DamagedError:
            # A process that took the lease over may have carried the erasure out, and deleted the file.
            if not _has_changed(opened, survey):
                raise
            continue
        return record
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
    reached(Step.ERASED_IDS_FORGOTTEN)


def _delete_copies(opened: OpenedStream, messages: ErasedMessages) -> None:
    """Delete every file with erased messages that is not live, then what describes it, then the log before."""
    with lease(opened.root, "append", opened.clock, wait_s=APPENDS_WAIT_S):
        opened.table_format.dead_files(opened.layout, opened.store).settle()
        live = opened.store.snapshot().files if opened.store.exists() else None
        kept = [] if live is None else opened.store.data_files(live)
        holds = HoldRecords(opened.root, opened.name).in_effect()
        copies = dead_copies(opened, [file.location for file in kept], messages, holds)
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


def _removed_paths(opened: OpenedStream) -> Iterator[str]:
    """The paths of the files that runs removed and an undo may restore."""
    for run, names in kept_runs(opened).items():
        if "removed" in names:
            yield from removed_by(opened, run)


def _proved(
    opened: OpenedStream, record: ErasureRecord, content: NeedleFile, messages: ErasedMessages
) -> ErasureReport:
    """Destroy what our own records say, search everything that is left, and end the erasure if nothing is found."""
    needles = content.needles.without(_survivors(opened, record, messages))
    names = ErasedNames(messages, frozenset(_texts(needles)))
    erase_arguments(history_of(opened.warehouse, opened.name), names)
    keyed = keyed_hash_of(opened.warehouse)
    conceal_holds(HoldRecords(opened.root, opened.name), names, keyed)
    if (ledger := holds_ledger(opened)) is not None:
        conceal_holds(ledger.copies, names, keyed)
    generation = opened.store.lifetime().generation
    ConsumerTable(opened.root, generation).forget(names.are_in)
    erasures = erasures_of(opened)
    runs = files.join(opened.warehouse, "runs", path_name(opened.name))
    proof = Proof(
        erasures,
        keyed,
        places=(opened.warehouse, opened.layout.messages),
        spared=(erasures.needles(record.id), *_of_others(opened)),
        decodable=(opened.root, opened.layout.messages, runs),
    )
    record, searched = proof.searched(record, needles)
    report = report_of(opened, record, needles, searched)
    if not record.is_clean:
        return report
    done = replace(report, record=record.updated(state="done", key=None))
    erasures.write_report(record.id, done.as_json())
    return replace(done, record=closed(erasures, record))


def _key(record: ErasureRecord) -> bytes:
    return bytes.fromhex(record.key or "")


def _texts(needles: Needles) -> Iterator[str]:
    for string in needles.strings.to_pylist():
        yield string.decode(errors="replace")


def _survivors(
    opened: OpenedStream, record: ErasureRecord, messages: ErasedMessages
) -> Iterator[pa.Table]:
    """The texts of all messages that stay, live ones and those that other runs removed, a file at a time.

    Raises:
        VerificationError: a message of the erasure is live.
    """
    if not opened.store.exists():
        return
    kept = opened.store.data_files(opened.store.snapshot().files)
    read = in_threads(
        lambda file: read_columns(file, _SURVIVING)[0],
        kept,
        files.read_parallelism(opened.root),
    )
    for rows in with_progress(read, len(kept), "reading messages that stay"):
        if live := int(messages.takes(rows).sum()):
            raise VerificationError(
                f"{opened.name}: the table still has {counted(live, 'message')} of erasure {record.id}, so that it is "
                f"unfinished; run {command('erase', opened.name, options='--resume')}"
            )
        yield rows.select(list(_TEXTS))
    for rows in removed_rows(opened, [file.location for file in kept], _SURVIVING):
        # What should be deleted by now is no reason to keep its strings.
        yield rows.filter(pa.array(~messages.takes(rows)))


def _of_others(opened: OpenedStream) -> Iterator[str]:
    """The directories of other streams, their histories, and tables in place."""
    yield files.join(opened.warehouse, "tables")
    for kind in ("streams", "runs"):
        directory = files.join(opened.warehouse, kind)
        for name in files.directories(directory):
            if name != path_name(opened.name):
                yield files.join(directory, name)
