"""The Arrow batches in which Spark hands rows to Python: of so many rows while these are short, else of so many bytes.

Spark bounds batches by bytes, and asks after each row how many the batch has by now, which takes a third of the time
that rows need to get to Python. Sessions of our own bound them by rows, and no row is longer than makes that safe: of a
longer one its columns are taken away, and who receives such a row says so. From then on the session bounds bytes.
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
"""Bytes of a row's texts and binaries up to which rows alone bound a batch well enough."""
BY_ROWS: Mapping[str, str] = {_ROWS: str(_MOST_ROWS), _BYTES: str(2**31 - 1)}
"""Settings of a session in which rows bound a batch."""
_PAYLOAD = "payload"
_LONG = b"retention: longer than rows of such a batch may be"
"""Stands for the payload of a longer row. A message that has it is taken for one, which costs time and nothing else."""
_PLAIN = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}


class LongRowError(RetentionError):
    """A row is longer than it may be where rows bound a batch."""


def are_by_rows(session: SparkSession) -> bool:
    """Whether rows bound the batches of a session, as in those of our own."""
    return all(setting_of(session, name) == value for name, value in BY_ROWS.items())


def bound_bytes(session: SparkSession) -> None:
    """Let bytes bound the batches of a session from now on."""
    session.conf.set(_BYTES, str(_MOST_BYTES))


def shortened(frame: DataFrame) -> DataFrame:
    """A frame of messages without the columns of long rows, which `refuse_long` knows.

    Args:
        frame: `payload` (binary), and others.
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
    """Rows of a shortened frame as they come.

    Raises:
        LongRowError: one is longer than it may be.
    """
    for batch in batches:
        if pc.any(pc.equal(batch[_PAYLOAD], pa.scalar(_LONG, pa.binary())), min_count=0).as_py():
            raise LongRowError(f"a row has more than {SHORT_BYTES:,} bytes")
        yield batch


def of_plain_types(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch without large texts and binaries, as sessions with `spark.sql.execution.arrow.useLargeVarTypes` have."""
    fields = [field.with_type(_PLAIN.get(field.type, field.type)) for field in batch.schema]
    return batch.cast(pa.schema(fields))
