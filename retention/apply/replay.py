"""The replay of erasures: those that the ledger has, and that a warehouse lacks after it was put back from a backup."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from retention.apply.erasure_run import begin_erasure, erasures_of, finish_erasure, ledger_of
from retention.apply.erasure_survey import survey_erasure
from retention.context.context import OpenedStream, has_table
from retention.context.holds import holds_ledger, restore_holds
from retention.core.json_object import JsonObject
from retention.engines.select import Engines
from retention.erasure.ledger import ErasureEntry, ErasureLedger
from retention.erasure.listing import ListedErasures
from retention.erasure.needle_file import new_key
from retention.erasure.record import ErasureRecord
from retention.history.initiator import initiator
from retention.rules.erase import Erase
from retention.stores.ledger import check_ledger

_REASON = "replayed from the ledger"
_log = logging.getLogger(__name__)


def missing_records(opened: OpenedStream) -> list[str]:
    """The records of legal holds and erasures that only the ledger has, as paths in the stream's directory there.

    Raises:
        StorageError: the ledger cannot be reached.
    """
    ledger = holds_ledger(opened)
    if ledger is None or not has_table(opened):
        return []
    holds = [f"holds/{name}" for name in ledger.missing()]
    return [*holds, *(f"erasures/{erasure}.json" for erasure in missing_erasures(opened))]


def missing_erasures(opened: OpenedStream) -> list[str]:
    """The ids of the erasures that only the ledger has, oldest first.

    Raises:
        StorageError: the ledger cannot be reached.
    """
    ledger = ledger_of(opened)
    if ledger is None or not has_table(opened):
        return []
    return sorted(ledger.ids().difference(erasures_of(opened).ids()))


def replay_erasures(opened: OpenedStream, listed: ListedErasures) -> None:
    """Erase again what the ledger says was erased, under the maintenance lease, before anything else is removed.

    Erasures that the ledger lacks are written there.

    Args:
        opened: the stream.
        listed: its erasures.

    Raises:
        RefusedError: a legal hold covers a message of one, or the place is not the warehouse's ledger.
        DamagedError: an entry of the ledger cannot be read; or as `finish_erasure`.
        StorageError: the ledger cannot be reached.
    """
    ledger = ledger_of(opened)
    if ledger is None or opened.ledger is None or not has_table(opened):
        return
    check_ledger(opened.ledger, opened.warehouse)
    erasures = erasures_of(opened)
    here, there = set(listed.ids), ledger.ids()
    _note_earlier(opened, ledger, sorted(here - there))
    missing, begun = sorted(there - here), list[str]()
    if missing:
        restore_holds(opened)
    with Engines() as engines:
        for erasure in missing:
            entry = ledger.read(erasure)
            if entry.messages_sha256 is None:
                _log.warning(
                    "%s: erasure %s was done before the ledger began, so its messages are not known; erase them "
                    "again if the warehouse was put back from a backup",
                    opened.name,
                    erasure,
                )
            else:
                _begin(opened, ledger, entry, engines)
                begun.append(erasure)
        for record in map(erasures.read, sorted([*listed.unfinished, *begun])):
            if record.replayed:
                _finish(opened, record, engines)


def _note_earlier(opened: OpenedStream, ledger: ErasureLedger, lacking: Sequence[str]) -> None:
    """Write the erasures that the ledger lacks, if they were done before it began."""
    erasures = erasures_of(opened)
    for erasure in lacking:
        record = erasures.read(erasure)
        if record.is_done:
            ledger.write_earlier(record)
            _log.warning(
                "%s: erasure %s was done before the ledger began: after a restore from a backup its messages have "
                "to be erased by hand",
                opened.name,
                erasure,
            )


def _begin(
    opened: OpenedStream, ledger: ErasureLedger, entry: ErasureEntry, engines: Engines
) -> None:
    """Record an erasure of the ledger, with its messages by identity as the request."""
    messages = ledger.messages(entry)
    survey = survey_erasure(opened, Erase(entry.id, messages), engines)
    record = ErasureRecord(
        **entry.requested(), initiator=initiator(), replayed=True, key=new_key().hex()
    )
    named: JsonObject = {
        "subjects": [],
        "seqs": list(messages.seqs),
        "times": list(messages.times),
    }
    begin_erasure(opened, survey, record, named, _REASON)


def _finish(opened: OpenedStream, record: ErasureRecord, engines: Engines) -> None:
    report = finish_erasure(opened, record, engines)
    _log.warning(
        "%s: erasure %s was missing, as after a restore from a backup, and was replayed from the ledger%s",
        opened.name,
        record.id,
        "" if report.is_done else "; it stays unfinished, because strings of its messages are left",
    )
