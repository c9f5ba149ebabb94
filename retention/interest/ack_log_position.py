"""Position up to which an ack log is folded into a consumer, and the check that it is still the same log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from retention.errors import RefusedError
from retention.formats.ack.log import AckLog, tail_digest
from retention.stores.consumer_table import ConsumerRecord

ROWS, TAIL = "rows", "tail"
"""Keys of a position in a log: the number of lines before it, and a digest of the last of them."""


def end_position(log: AckLog) -> dict[str, Any]:
    """The position behind the last line of a log, as a consumer's record keeps it."""
    return {ROWS: log.rows, TAIL: tail_digest(log, log.rows)}


def rows_folded(record: ConsumerRecord, log: AckLog) -> int:
    """Number of lines of a log that are folded into a consumer."""
    place = _place(record, log)
    return 0 if place is None else int(place[ROWS])


def refuse_another_log(stream: str, log: AckLog, records: Sequence[ConsumerRecord]) -> None:
    """Refuse a log that does not begin as it did when it was folded into one of the consumers.

    Raises:
        RefusedError: the log is shorter, or the last lines that were folded are others now.
    """
    tails: dict[int, str] = {}
    for record in records:
        place = _place(record, log)
        if place is None:
            continue
        rows = int(place[ROWS])
        if rows > log.rows:
            wrong = f"it has {log.rows} lines, and {rows} of it are"
        elif place[TAIL] != _tail_at(log, rows, tails):
            wrong = f"its first {rows} lines are not those that are"
        else:
            continue
        raise RefusedError(
            f"{stream}: {log.name} is not the log that it was: {wrong} folded into consumer {record.consumer} already, "
            "and a log only grows; nothing was changed; restore it, or give another log a name of its own"
        )


def _place(record: ConsumerRecord, log: AckLog) -> Mapping[str, Any] | None:
    place: Mapping[str, Any] | None = record.folded.get(log.name)
    return place


def _tail_at(log: AckLog, rows: int, known: dict[int, str]) -> str:
    if rows not in known:
        known[rows] = tail_digest(log, rows)
    return known[rows]
