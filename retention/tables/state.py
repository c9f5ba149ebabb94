"""The state of a table in place, and bounds of what a pass would remove, from its log alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow.compute as pc

from retention.core.bounds import Bounds
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.delta.features import refusal
from retention.delta.snapshot import DeltaSnapshot
from retention.erasure.record import ErasureRecord
from retention.stores.holds import Hold
from retention.stores.pauses import Pause, pause_of
from retention.tables.access import access_of
from retention.tables.bounded_files import (
    BoundedFiles,
    TableEstimate,
    TableForecast,
    empty_estimate,
)
from retention.tables.erasures import erasures_of
from retention.tables.holds import TableHoldRecords
from retention.tables.opened import OpenedTable


@dataclass(frozen=True, repr=False)
class TableState(Displayed):
    """The contents of a table, and its lag behind its limits."""

    table: str
    location: str
    rows: int
    bytes: int
    files: int
    version: int
    due: Bounds | None
    """The rows that a pass would remove now; None: nothing may be removed from the table."""
    since_ns: int | None
    """The instant since which a pass would surely have removed some of them, to the second; None: of none is it sure.

    It is no earlier than the last applied pass, nor than the table's oldest file.
    """
    refused: str | None
    """The sentence that refuses removals from it; None: they are not refused."""
    format: str
    first_ts_ns: int | None
    """The bound of the oldest time by the log's statistics; None: it is unknown, or the table has no times."""
    last_ts_ns: int | None
    ahead: TableForecast
    """The amounts due and their times."""
    paused: Pause | None = None
    """The pause that a person has placed on removals; None: there is none."""
    holds: tuple[Hold, ...] = ()
    """The legal holds in effect."""
    erasures: tuple[ErasureRecord, ...] = ()
    """The erasures with something left to do."""

    def behind_ns(self, as_of_ns: int) -> int:
        """The time by which the table is behind its limits at an instant, nanoseconds; 0: it is not."""
        return 0 if self.since_ns is None else max(as_of_ns - self.since_ns, 0)

    def as_json(self) -> JsonObject:
        """The state as JSON values."""
        numbers = {**vars(self), "due": self.due and self.due.as_json()}
        ahead = numbers.pop("ahead")
        if (paused := numbers.pop("paused")) is not None:
            numbers["paused"] = paused.as_json()
        if holds := numbers.pop("holds"):
            numbers["holds"] = [hold.as_json() for hold in holds]
        if erasures := numbers.pop("erasures"):
            numbers["unfinished_erasures"] = [record.as_json() for record in erasures]
        return numbers | asdict(ahead) | {"forecast": [asdict(due) for due in ahead.forecast]}


def estimate_table(table: OpenedTable, as_of_ns: int) -> TableEstimate:
    """Bound what a pass would remove, by the log of the table.

    Raises:
        RetentionError: as `planning.plan_table`, except that a refused table is estimated.
    """
    snapshot = access_of(table).read(table)
    return _estimated(table, snapshot, BoundedFiles.of(table, snapshot), as_of_ns)


def state_of_table(table: OpenedTable, as_of_ns: int) -> TableState:
    """The state of a table at an instant.

    Raises:
        RetentionError: as `estimate_table`.
    """
    snapshot = access_of(table).read(table)
    bounded, refused = BoundedFiles.of(table, snapshot), refusal(snapshot)
    estimate = _estimated(table, snapshot, bounded, as_of_ns)
    return TableState(
        table.name,
        table.location,
        estimate.rows,
        int(pc.sum(snapshot.files["size"], min_count=0).as_py()),
        estimate.files,
        snapshot.version,
        None if refused is not None else estimate.removed_rows,
        bounded.due_since(as_of_ns) if bounded and estimate.removed_rows.lower else None,
        refused,
        table.format,
        *((None, None) if bounded is None else bounded.first_and_last()),
        TableForecast() if bounded is None else bounded.forecast(as_of_ns),
        pause_of(table.warehouse, table.home, table.name),
        TableHoldRecords(table).in_effect(),
        tuple(erasures_of(table).unfinished()),
    )


def _estimated(
    table: OpenedTable, snapshot: DeltaSnapshot, bounded: BoundedFiles | None, as_of_ns: int
) -> TableEstimate:
    if bounded is None:
        return empty_estimate(table.name, as_of_ns, snapshot.version)
    return bounded.estimate(as_of_ns)
