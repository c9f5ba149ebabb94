"""Staging a Spark DataFrame behind a log's last messages: tasks write the files, only their statistics come back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention.core.inventory import DataFile
from retention.datafile.deadline_writer import write_by_deadline
from retention.datafile.segment_writer import Staged, Staging, verified_stats
from retention.dialects.dialect import Dialect, Layer, Share
from retention.engines.spark.attempts import attempts_of
from retention.engines.spark.columns import arriving
from retention.engines.spark.source import Source
from retention.engines.spark.tasks import (
    PART_BITS,
    KeptFrame,
    Task,
    answer,
    changed,
    outcomes,
    written_shares,
)
from retention.layout.partition_tails import Ends


@dataclass(frozen=True)
class Placed:
    """A share, and the files that take it."""

    share: Share
    files: tuple[DataFile, ...]


class SortedFrame(KeptFrame):
    """The rows of a DataFrame in the order of their sequences, kept between attempts to commit them.

    That order is by the columns that the dialect names; however the frame is partitioned, the same rows get the same
    sequences.
    """

    def __init__(self, frame: DataFrame, dialect: Dialect, now_ns: int) -> None:
        self._dialect = dialect
        super().__init__(arriving(frame, dialect, now_ns).sort(*dialect.order))

    def stage(self, staging: Staging, layer: Layer) -> Staged:
        """Write the rows behind a log's ends, for each segment and part of the frame one file or some by deadline.

        Args:
            staging: where files come from.
            layer: the dialect's, at those ends.

        Raises:
            UsageError, RefusedError: a row cannot be a message.
            VerificationError: a file does not hold what was to be written to it.
        """
        shares, ends = self._lay(layer)
        placed: dict[int, list[Placed]] = {}
        for share in shares:
            files = staging.new(share.base, share.partition)
            placed.setdefault(share.part, []).append(Placed(share, files))
        return Staged.behind(self._write(placed), ends)

    def _lay(self, layer: Layer) -> tuple[list[Share], Ends]:
        """Lay out which share has which rows, in order, and where the log ends behind them.

        One task sees the lengths of every row, sorted by the place of the row, so that batches and segments begin
        exactly where they would one message after another.
        """
        lengths = [
            F.coalesce(F.octet_length(name), F.lit(0)).cast("bigint").alias(name)
            for name in self._dialect.measured
        ]
        place = F.monotonically_increasing_id().alias("place")
        narrow = self._sorted.select(place, *self._dialect.laid_by, *lengths)
        ordered = narrow.coalesce(1).sortWithinPartitions("place")
        [laid] = outcomes(ordered, partial(_laid, layer)) or [([], layer.ends)]
        return laid

    def _write(self, placed: Mapping[int, Sequence[Placed]]) -> list[dict[str, Any]]:
        """Write the rows; rows of `FILE_STATS`, in order."""
        if not placed:
            return []
        rows = self._sorted.select(F.spark_partition_id().alias("part"), *self._dialect.written)
        attempts = attempts_of(self._sorted.sparkSession)
        written = outcomes(rows, _writer(placed, self._dialect, attempts))
        shares = sum(map(len, placed.values()))
        if len(written) != shares:
            raise changed(f"{len(written)} of {shares} parts were written")
        return sorted(
            chain.from_iterable(written), key=lambda row: (row["partition"], row["min_seq"])
        )


def _laid(layer: Layer, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task that sees the lengths of every row, in order; its answer is shares and ends."""
    for batch in batches:
        if batch.num_rows:
            layer.take(batch, batch["place"].to_numpy() >> PART_BITS)
    yield answer((layer.shares(), layer.ends))


def _writer(placed: Mapping[int, Sequence[Placed]], dialect: Dialect, attempts: int) -> Task:
    """The task that writes one partition's files, and answers with rows of `FILE_STATS` for each share."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = Source(batches)
        write = partial(_write_share, source, dialect)
        yield from written_shares(source, placed.get(source.part, []), write, attempts)

    return run


def _write_share(source: Source, dialect: Dialect, placed: Placed) -> list[dict[str, Any]]:
    files = [file.of_attempt() for file in placed.files]
    written = write_by_deadline(files, _completed(source, dialect, placed.share))
    return verified_stats(written, placed.share.wrote)


def _completed(source: Source, dialect: Dialect, share: Share) -> Iterator[pa.Table]:
    """The rows of a share as they are stored, some at a time."""
    at = 0
    for rows in source.take(share.messages):
        yield dialect.completed(rows, share, at)
        at += rows.num_rows
