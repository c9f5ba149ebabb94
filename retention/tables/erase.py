"""Erasures of rows of tables in place: planned, recorded with an encrypted request, carried out, and listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention.config.table_types import format_column, parse_column
from retention.core.json_object import JsonObject
from retention.erasure.keyed_hash import keyed_hash_of
from retention.erasure.needle_file import NeedleFile, new_key
from retention.erasure.record import ErasureRecord, check_reason, new_id
from retention.erasure.report import ErasureReport
from retention.errors import UsageError
from retention.history.initiator import initiator
from retention.tables.access import access_of
from retention.tables.erased_rows import ChooseEngine, Key
from retention.tables.erasure_run import (
    finish_table_erasure,
    removal_of,
    table_report_of,
    with_files,
)
from retention.tables.erasure_survey import TableErasureSurvey, survey_table_erasure
from retention.tables.erasures import erasures_of
from retention.tables.holds import expire_holds, texts_of_keys
from retention.tables.opened import OpenedTable
from retention.tables.recorded import removing, settle_interrupted

_HASHED_KEYS = 1_000
"""The maximum number of keys that a record has keyed hashes of."""


@dataclass(frozen=True)
class TableErasureRequest:
    """A request to erase rows."""

    keys: tuple[Key, ...]
    reason: str
    by_ns: int | None = None
    """The instant by which it has to be done; None: as soon as possible."""

    def __post_init__(self) -> None:
        """Refuse a request without a reason or without a key."""
        check_reason(self.reason)
        if not self.keys:
            raise UsageError(
                "erase: name at least one key of the rows, such as user_id=7; nothing was changed"
            )

    def as_json(self) -> JsonObject:
        """The keys, in an order that depends on nothing else."""
        keys = [sorted([list(column), value] for column, value in key.items()) for key in self.keys]
        return {"keys": sorted(keys)}


@dataclass(frozen=True)
class TableErasurePlan:
    """Everything that an erasure of rows would change now."""

    table: str
    rows: int
    """The live rows to remove."""
    rewritten_files: int
    """The live files of which copies without the rows are written."""
    dropped_files: int
    """The live files without any other row."""
    own_files: int
    """The files that our runs wrote, that are no longer live, and that are deleted."""
    owners_files: int
    """The files of older versions and of others with such rows, which their owner has to delete."""
    lost_undos: tuple[str, ...] = ()
    """The runs that can no longer be undone afterwards."""

    def as_json(self) -> JsonObject:
        """The plan as JSON values."""
        return {**vars(self), "lost_undos": list(self.lost_undos)}


def erased_keys(table: OpenedTable, keys: Iterable[Mapping[str, Any]]) -> tuple[Key, ...]:
    """Keys of rows as texts by column, each once.

    Raises:
        RefusedError: the table is a directory without a log.
        UsageError: the table has no such column, or a value is none of its type.
    """
    access_of(table).refuse_erasure(table)
    snapshot = access_of(table).read(table)
    texts = texts_of_keys(table, snapshot, keys)
    distinct = dict.fromkeys(tuple(sorted(key.items())) for key in texts)
    columns = {name: parse_column(name) for name in {name for key in distinct for name, _ in key}}
    return tuple({columns[name]: value for name, value in key} for key in distinct)


def plan_table_erasure(
    table: OpenedTable, wanted: TableErasureRequest, choose: ChooseEngine
) -> TableErasurePlan:
    """Plan an erasure of rows; nothing is changed.

    Raises:
        RefusedError, UsageError, DamagedError, StorageError: as `survey_table_erasure`.
    """
    survey = survey_table_erasure(table, wanted.keys, choose)
    dropped = sum(file.dead is None for file in survey.live)
    return TableErasurePlan(
        table.name,
        survey.removed_rows,
        len(survey.live) - dropped,
        dropped,
        len(survey.written_by_us),
        len(survey.live) + len(survey.former) - len(survey.written_by_us),
        tuple(survey.lost_undos()),
    )


def erase_rows(
    table: OpenedTable, wanted: TableErasureRequest, choose: ChooseEngine
) -> ErasureReport:
    """Erase rows, under the table's maintenance lease, as far as is ours to do.

    Raises:
        RefusedError, UsageError: as `plan_table_erasure`; or a person has paused removals.
        BusyError: another run holds the lease, or others keep changing the table.
        VerificationError, DamagedError: as `finish_table_erasure`.
    """
    access_of(table).refuse_erasure(table)
    settle_interrupted(table)
    expire_holds(table)
    with removing(table):
        same = [
            each for each in erasures_of(table).all() if each.request == _hash_of(table, wanted)
        ]
        record, survey = _unfinished(table, wanted, choose, same), None
        if record is None:
            record, survey = _begun(table, wanted, choose, same)
        if record.is_done:
            return table_report_of(table, record)
        return finish_table_erasure(table, record, choose, survey)


def resume_table_erasures(table: OpenedTable, choose: ChooseEngine) -> list[ErasureReport]:
    """Go on with all unfinished erasures of a table, under its maintenance lease; their reports.

    Raises:
        RefusedError, BusyError, VerificationError, DamagedError: as `erase_rows`.
    """
    with removing(table):
        begun = list(erasures_of(table).unfinished())
        return [finish_table_erasure(table, record, choose) for record in begun]


def table_erasure_reports(table: OpenedTable) -> list[ErasureReport]:
    """The reports of all erasures of a table, oldest first, finished or not."""
    return [table_report_of(table, record) for record in erasures_of(table).all()]


def _unfinished(
    table: OpenedTable,
    wanted: TableErasureRequest,
    choose: ChooseEngine,
    same: Sequence[ErasureRecord],
) -> ErasureRecord | None:
    """The erasure of the same keys to go on with; None: there is none, or such rows are in the table since it."""
    unfinished = next((each for each in same if not each.is_done), None)
    if unfinished is None or removal_of(table, unfinished) is None:
        return unfinished
    survey = survey_table_erasure(table, wanted.keys, choose)
    return None if survey.live else unfinished


def _begun(
    table: OpenedTable,
    wanted: TableErasureRequest,
    choose: ChooseEngine,
    same: Sequence[ErasureRecord],
) -> tuple[ErasureRecord, TableErasureSurvey]:
    """The record of a new erasure, with its request and needles, or that of one that left nothing to do; the survey."""
    erasures, now_ns = erasures_of(table), table.clock()
    keyed = keyed_hash_of(table.warehouse)
    survey = survey_table_erasure(table, wanted.keys, choose)
    if same and not (survey.live or survey.former):
        return same[-1], survey
    erasures.delete_unrecorded()
    record = ErasureRecord(
        id=new_id(now_ns),
        at_ns=now_ns,
        by_ns=wanted.by_ns,
        initiator=initiator(),
        below=survey.snapshot.version,
        subjects=[],
        request=_hash_of(table, wanted),
        reason=keyed.of(wanted.reason),
        named_subjects=0,
        named_seqs=0,
        keys=[keyed.of(_named(each)) for each in wanted.keys[:_HASHED_KEYS]],
        named_keys=len(wanted.keys),
        key=new_key().hex(),
    )
    content = NeedleFile(wanted.as_json(), wanted.reason, survey.needles)
    erasures.write_needles(record, content)
    record = with_files(record, survey)
    erasures.write(record)
    return record, survey


def _hash_of(table: OpenedTable, wanted: TableErasureRequest) -> str:
    return keyed_hash_of(table.warehouse).of(wanted.as_json())


def _named(key: Key) -> dict[str, str]:
    return {format_column(column): value for column, value in key.items()}
