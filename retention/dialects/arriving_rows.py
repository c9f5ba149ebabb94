"""Rows of a DataFrame on arrival in tasks: checked, each with a time, in the columns of a log's dialect."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.accepted_times import AcceptedTimes
from retention.core.units import MICROSECOND
from retention.dialects.dialect import Dialect
from retention.errors import UsageError

TIME_US = "time_us"
"""The column, int64, of times given as timestamps: microseconds since the epoch, which may exceed
64 bits as nanoseconds. It replaces `Dialect.timed_by`."""
NULL_PAYLOAD = (
    ", which is not a message: tombstone=… (--tombstone) makes it a deletion of its key, where=… (--where) omits it, "
    "and coalesce(payload, '') makes it an empty message"
)
NULL_TIME = ": --time now, or --as-of, says which time such rows get, and --where leaves them out"
_SHOWN = 60


@dataclass(frozen=True)
class ArrivingRows:
    """The completion of arriving rows; a value sent with tasks."""

    dialect: Dialect
    now_ns: int
    """The time of rows without one, nanoseconds since the epoch."""
    times: AcceptedTimes
    """The accepted instants of rows."""

    def filled(self, given: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the columns `Dialect.written`, each with a time.

        Raises:
            UsageError: the time of a row is refused, or missing but required; or the payload of a
                stream's row is null.
        """
        rows = with_columns(given, self.dialect.written)
        if not self.dialect.is_topic:
            # For a topic, the server refuses every message without a payload.
            _refuse_null(rows, rows["payload"], f"payload is null{NULL_PAYLOAD}")
        at = rows.schema.get_field_index(self.dialect.timed_by)
        instants = self._instants(given, rows)
        return rows.set_column(
            at, self.dialect.written.field(at), pc.fill_null(instants, self.now_ns)
        )

    def _instants(self, given: pa.RecordBatch, rows: pa.RecordBatch) -> pa.Array:
        """The times of rows, nanoseconds since the epoch; null if a row has none."""
        if TIME_US not in given.schema.names:
            column, unit, counts = self.dialect.timed_by, 1, rows[self.dialect.timed_by]
        else:
            column, unit, counts = "time", MICROSECOND, given[TIME_US]
        if not self.times.may_be_missing:
            _refuse_null(rows, counts, f"{column} is null{NULL_TIME}")
        there = counts.drop_null()
        refused = self.times.first_refused(there.to_numpy(), unit)
        if refused >= 0:
            ns = there[refused].as_py() * unit
            row = pc.indices_nonzero(counts.is_valid())[refused].as_py()
            refusal = self.times.refusal(column, ns, as_number=unit == 1)
            raise _refused(rows, row, str(refusal))
        return counts if unit == 1 else pc.multiply(counts, unit)


def _refuse_null(rows: pa.RecordBatch, values: pa.Array, why: str) -> None:
    if values.null_count:
        raise _refused(rows, pc.indices_nonzero(values.is_null())[0].as_py(), why)


def _refused(rows: pa.RecordBatch, row: int, why: str) -> UsageError:
    return UsageError(
        f"{row_name(rows, row)}: {why}; nothing was appended; correct or leave out such rows"
    )


def row_name(rows: pa.RecordBatch, row: int) -> str:
    """The name of a row in sentences: its subject; in a topic, without subjects, the beginning of its payload."""
    name = "subject" if "subject" in rows.schema.names else "payload"
    value = rows[name][row].as_py()
    begin = value if value is None or len(value) <= _SHOWN else value[:_SHOWN]
    return f"the row with {name} {begin!r}{'' if begin is value else '…'}"


def with_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with all columns of a schema; missing columns are null."""
    arrays = [
        rows[field.name] if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, names=schema.names)
