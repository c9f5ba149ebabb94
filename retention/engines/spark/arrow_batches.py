"""The Arrow batches in which Spark passes rows to Python: limited by rows while these are short, or else by bytes.

Spark limits batches by bytes and measures the batch after each row, which takes a third of the time of passing rows
to Python. Our own sessions limit them by rows, and keep rows short enough for that to be safe: a longer row loses its
columns, and its receiver reports it. The session limits bytes from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import add

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from retention.engines.spark.connect import setting_of
from retention.errors import RetentionError

_ROWS, _BYTES = (
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.maxBytesPerBatch",
)
_MOST_ROWS = 4_096
_MOST_BYTES = 64 << 20
SHORT_BYTES = _MOST_BYTES // _MOST_ROWS
"""The maximum bytes of a row's texts and binaries for a limit by rows."""
BY_ROWS: Mapping[str, str] = {_ROWS: str(_MOST_ROWS), _BYTES: str(2**31 - 1)}
"""Settings of a session with batches limited by rows."""
_PAYLOAD = "payload"
_LONG = b"retention: longer than rows of such a batch may be"
"""The substitute for a longer row's payload; a message with this payload is taken for one, which only costs time."""
_PLAIN = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


class LongRowError(RetentionError):
    """A row is too long for a batch limited by rows."""


def are_by_rows(session: SparkSession) -> bool:
    """Whether rows limit the batches of a session, as in our own sessions."""
    return all(setting_of(session, name) == value for name, value in BY_ROWS.items())


def bound_bytes(session: SparkSession) -> None:
    """Limit the batches of a session by bytes from now on."""
    session.conf.set(_BYTES, str(_MOST_BYTES))


def shortened(frame: DataFrame) -> DataFrame:
    """A frame of messages without the columns of long rows; `refuse_long` recognizes those rows.

    Args:
        frame: `payload` (binary) and other columns.
    """
    kinds = {field.name: field.dataType for field in frame.schema}
    vary = [name for name, kind in kinds.items() if isinstance(kind, (T.BinaryType, T.StringType))]
    lengths = [F.coalesce(F.octet_length(name).cast("bigint"), F.lit(0)) for name in vary]
    is_short = reduce(add, lengths) <= SHORT_BYTES
    return frame.select(
        *[
            (
                F.when(is_short, F.col(name)).otherwise(F.lit(_LONG if name == _PAYLOAD else None))
                if name in vary
                else F.col(name)
            ).alias(name)
            for name in kinds
        ]
    )


def refuse_long(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pass through the rows of a shortened frame.

    Raises:
        LongRowError: a row is too long.
    """
    for batch in batches:
        if pc.any(pc.equal(batch[_PAYLOAD], pa.scalar(_LONG, pa.binary())), min_count=0).as_py():
            raise LongRowError(f"a row has more than {SHORT_BYTES:,} bytes")
        yield batch


def of_plain_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without the large types of sessions with `spark.sql.execution.arrow.useLargeVarTypes`."""
    fields = [field.with_type(_PLAIN.get(field.type, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields))
