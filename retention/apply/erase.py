"""Erasures of messages: planned, recorded with an encrypted request, and carried out until no copy is left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retention.apply.archive_survey import archives_of, canonical_place
from retention.apply.erasure_run import begin_erasure, erasures_of, finish_erasure, report_of
from retention.apply.erasure_survey import ErasureSurvey, survey_erasure
from retention.apply.recover import settle_interrupted
from retention.apply.replay import missing_erasures
from retention.context.context import OpenedStream, has_table
from retention.context.maintenance import removing
from retention.context.position import locate
from retention.core.json_object import JsonObject
from retention.core.labels import on_stream
from retention.engines.select import Engines
from retention.erasure.keyed_hash import keyed_hash_of
from retention.erasure.needle_file import new_key
from retention.erasure.record import ErasureRecord, check_reason, new_id
from retention.erasure.report import ErasureReport
from retention.errors import UsageError
from retention.history.initiator import initiator
from retention.history.runs import history_of
from retention.planners.request_guards import check_allowed
from retention.rules.erase import Erase, ErasedMessages
from retention.schemas.deadlines import NEVER

_HASHED_SUBJECTS = 1_000
"""The maximum number of subjects that a record has keyed hashes of."""


@dataclass(frozen=True)
class ErasureRequest:
    """A request to erase messages."""

    messages: ErasedMessages
    reason: str
    by_ns: int | None = None
    """The instant by which it has to be done; None: as soon as possible."""

    def __post_init__(self) -> None:
        """Refuse a request without a reason."""
        check_reason(self.reason)


@dataclass(frozen=True)
class ErasurePlan:
    """Everything that an erasure would change now."""

    stream: str
    messages: int
    """The live messages to remove."""
    bytes: int
    rewritten_files: int
    """The live files of which copies without the erased messages are written."""
    dropped_files: int
    """The live files without any other message."""
    dead_files: int
    """The removed, staged or abandoned files with erased messages."""
    dead_bytes: int
    lost_undos: tuple[str, ...] = ()
    """The runs that can no longer be undone afterwards."""
    archived_files: int = 0
    """The files of archives that are replaced by copies without the erased messages, or deleted."""
    archived_bytes: int = 0
    unreached: tuple[str, ...] = ()
    """Sentences about archives that cannot be examined: until they can, the erasure is unfinished."""

    @property
    def is_empty(self) -> bool:
        """Whether no file has a message of the erasure."""
        files = self.rewritten_files, self.dropped_files, self.dead_files, self.archived_files
        return not any(files)

    def as_json(self) -> JsonObject:
        """The plan as JSON values."""
        lists = {"lost_undos": list(self.lost_undos), "unreached": list(self.unreached)}
        return {**vars(self), **lists}


@on_stream
def plan_erasure(opened: OpenedStream, messages: ErasedMessages, engines: Engines) -> ErasurePlan:
    """Plan an erasure; only caches are written.

    Raises:
        UsageError: the stream was never written to, or no file has a message with a given sequence.
        RefusedError: it is a topic, is sealed or denies deletes, or a legal hold covers a message.
    """
    check_allowed(opened, Erase("", messages))
    _check_table(opened)
    survey = survey_erasure(opened, Erase("", messages), engines)
    if not _repeated(opened, messages):
        survey.refuse_missing()
    return _plan_of(survey)


@on_stream
def erase_now(opened: OpenedStream, wanted: ErasureRequest, engines: Engines) -> ErasureReport:
    """Erase messages, under the stream's maintenance lease, as far as possible now.

    Raises:
        UsageError, RefusedError: as `plan_erasure`; or a person has paused removals.
        BusyError: another run holds the lease, or the table keeps changing.
        VerificationError, DamagedError: as `finish_erasure`.
    """
    check_allowed(opened, Erase("", wanted.messages))
    _check_table(opened)
    with removing(opened):
        settle_interrupted(opened, history_of(opened.warehouse, opened.name))
        same = [each for each in _repeated(opened, wanted.messages) if not each.is_done]
        reports = {each.id: finish_erasure(opened, each, engines) for each in same}
        record, survey = _begun(opened, wanted, engines)
        if record.is_done:
            return report_of(opened, record)
        return reports.get(record.id) or finish_erasure(opened, record, engines, survey)


@on_stream
def resume_erasures(
    opened: OpenedStream, engines: Engines, archives_gone: Sequence[str] = ()
) -> list[ErasureReport]:
    """Go on with all unfinished erasures of a stream, under its maintenance lease; their reports.

    Args:
        opened: the stream.
        engines: where rows are read and copied.
        archives_gone: locations of archives that no longer exist, as a person says; each erasure records that.

    Raises:
        RefusedError, BusyError, VerificationError, DamagedError: as `erase_now`.
    """
    with removing(opened):
        begun = [
            *erasures_of(opened).unfinished_ids(),
            *missing_erasures(opened),
        ]
        _note_gone(opened, archives_gone)
        settle_interrupted(opened, history_of(opened.warehouse, opened.name))
        now = (erasures_of(opened).read(erasure) for erasure in begun)
        return [finish_erasure(opened, each, engines) for each in now]


def _note_gone(opened: OpenedStream, archives: Sequence[str]) -> None:
    """Record in all unfinished erasures that archives no longer exist."""
    if not archives:
        return
    known = archives_of(opened)
    for place in archives:
        if canonical_place(place) not in known:
            raise UsageError(
                f"{opened.name}: {place} is no archive of it; nothing was changed; its archives are "
                f"{', '.join(known) or 'none'}"
            )
    for record in erasures_of(opened).unfinished():
        without = sorted({*record.without, *map(canonical_place, archives)})
        erasures_of(opened).write(record.updated(without=without))


def erasure_reports(opened: OpenedStream) -> list[ErasureReport]:
    """The reports of all erasures of a stream, oldest first, finished or not."""
    return [report_of(opened, record) for record in erasures_of(opened).all()]


def _repeated(opened: OpenedStream, messages: ErasedMessages) -> list[ErasureRecord]:
    """The erasures of the same messages, oldest first."""
    records = erasures_of(opened).all()
    digest = _hash_of(opened, messages) if records else ""
    return [record for record in records if record.request == digest]


def _begun(
    opened: OpenedStream, wanted: ErasureRequest, engines: Engines
) -> tuple[ErasureRecord, ErasureSurvey]:
    """The record of a new erasure, or the last of the same request if it took all; and the survey."""
    now_ns = opened.clock()
    erasure, keyed = new_id(now_ns), keyed_hash_of(opened.warehouse)
    below = locate(opened).next_seq if opened.table.exists() else NEVER
    messages = ErasedMessages(wanted.messages.subjects, wanted.messages.seqs, below)
    survey = survey_erasure(opened, Erase(erasure, messages), engines)
    repeated = _repeated(opened, messages)
    if repeated and _plan_of(survey).is_empty:
        return repeated[-1], survey
    survey.refuse_missing()
    record = ErasureRecord(
        id=erasure,
        at_ns=now_ns,
        by_ns=wanted.by_ns,
        initiator=initiator(),
        below=below,
        subjects=[keyed.of(subject) for subject in messages.subjects[:_HASHED_SUBJECTS]],
        request=_hash_of(opened, messages),
        reason=keyed.of(wanted.reason),
        named_subjects=len(messages.subjects),
        named_seqs=len(messages.seqs),
        key=new_key().hex(),
    )
    named: JsonObject = {"subjects": list(messages.subjects), "seqs": list(messages.seqs)}
    return begin_erasure(opened, survey, record, named, wanted.reason), survey


def _hash_of(opened: OpenedStream, messages: ErasedMessages) -> str:
    named = {"subjects": list(messages.subjects), "seqs": list(messages.seqs)}
    return keyed_hash_of(opened.warehouse).of(named)


def _check_table(opened: OpenedStream) -> None:
    if not has_table(opened):
        raise UsageError(
            f"{opened.name}: nothing was ever written to it, so there is nothing to erase; nothing was changed"
        )


def _plan_of(survey: ErasureSurvey) -> ErasurePlan:
    plan = survey.planned.plan
    rewritten = plan.actions.rewrite.files.num_rows
    return ErasurePlan(
        survey.opened.name,
        plan.removed_messages,
        plan.removed_bytes,
        rewritten,
        plan.actions.files.num_rows - rewritten,
        len(survey.copies),
        sum(copy.bytes for copy in survey.copies),
        tuple(survey.lost_undos),
        len(survey.archives.copies),
        sum(copy.bytes for copy in survey.archives.copies),
        survey.archives.unreached,
    )
