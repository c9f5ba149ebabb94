"""Staging a Spark DataFrame behind the last messages of a topic: tasks write the files, only statistics come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention.core.inventory import DataFile
from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.datafile import parquet
from retention.datafile.segment_writer import Staging, described
from retention.engines.spark.attempts import attempts_of
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
from retention.engines.spark.topic_columns import ADDRESSED, COLUMNS, addressed
from retention.layout.batch_split import Piece, Pieces, clipped
from retention.layout.partition_tails import TopicEnds
from retention.layout.topic_segment_roll import Batch, record_sizes, with_headers

Completing = Callable[[pa.Table, int, Sequence[Batch], Array], pa.Table]
"""Rows of `FILE_COLUMNS`: of rows `COLUMNS`, their partition, their batches, and the bytes they are counted with."""


@dataclass(frozen=True)
class Share:
    """The rows of one partition of the frame that go into one segment: a file."""

    file: DataFile
    pieces: tuple[Piece, ...]

    @property
    def wrote(self) -> dict[str, int]:
        """What the file must hold."""
        batches = [piece.batch for piece in self.pieces]
        return {
            "messages": sum(batch.end for batch in batches),
            "bytes": sum(batch.bytes for batch in batches),
            "min_seq": batches[0].first_seq,
            "max_seq": batches[-1].first_seq + batches[-1].end - 1,
        }


class TopicFrame(KeptFrame):
    """The rows of a DataFrame by the partitions that they go to, kept between attempts to commit them.

    Those of one partition are in order of the producer's time, then id, headers and payload, however the frame is
    partitioned; rows that name none come before all others.
    """

    def __init__(self, frame: DataFrame, policy: TopicPolicy, now_ns: int) -> None:
        self._policy = policy
        super().__init__(addressed(frame, policy.partitions, now_ns).sort(*ADDRESSED))

    def lay(self, ends: TopicEnds) -> tuple[list[Piece], TopicEnds]:
        """Where the rows go, in their order, and where the partitions end then.

        One task sees every row's address and lengths, sorted by the place of the row, so that batches and segments
        begin exactly where they would one message after another.
        """
        lengths = [
            F.coalesce(F.octet_length(name), F.lit(0)).cast("bigint").alias(name)
            for name in ("headers", "payload")
        ]
        place = F.monotonically_increasing_id().alias("place")
        narrow = self._sorted.select(place, "address", *lengths)
        ordered = narrow.coalesce(1).sortWithinPartitions("place")
        [laid] = outcomes(ordered, _layer(ends, self._policy)) or [([], ends)]
        return laid

    def write(
        self, pieces: Sequence[Piece], staging: Staging, completing: Completing
    ) -> list[dict[str, Any]]:
        """Write the rows; rows of `FILE_STATS`, in order.

        Raises:
            UsageError, RefusedError: as `completing`, of a row that cannot be a message.
            VerificationError: a file does not hold what was to be written to it.
        """
        placed: dict[int, list[Share]] = {}
        for (part, partition, base), inside in groupby(pieces, key=_place):
            [file] = staging.new(base, partition)
            placed.setdefault(part, []).append(Share(file, tuple(inside)))
        if not placed:
            return []
        rows = self._sorted.select(F.spark_partition_id().alias("part"), *COLUMNS)
        attempts = attempts_of(self._sorted.sparkSession)
        write = partial(_write_share, policy=self._policy, completing=completing)
        written = outcomes(rows, _writer(placed, write, attempts))
        shares = sum(map(len, placed.values()))
        if len(written) != shares:
            raise changed(f"{len(written)} of {shares} parts were written")
        return sorted(
            chain.from_iterable(written), key=lambda row: (row["partition"], row["min_seq"])
        )


def _place(piece: Piece) -> tuple[int, int, int]:
    return piece.part, piece.partition, piece.batch.base


def _layer(ends: TopicEnds, policy: TopicPolicy) -> Task:
    """The task that sees every row's address and lengths, in order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        laying = Pieces(ends, policy)
        found: list[Piece] = []
        for batch in batches:
            if batch.num_rows:
                parts = batch["place"].to_numpy() >> PART_BITS
                headers, payload = (batch[name].to_numpy() for name in ("headers", "payload"))
                sizes = record_sizes(headers, payload, policy)
                found += laying.take(batch["address"].to_numpy(), parts, sizes)
        found += laying.rest()
        yield answer((found, ends))

    return run


def _writer(
    placed: Mapping[int, list[Share]],
    write: Callable[[Source, Share], list[dict[str, Any]]],
    attempts: int,
) -> Task:
    """The task that writes one partition's files, and answers with rows of `FILE_STATS` for each share."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = Source(batches)
        shares = placed.get(source.part, [])
        yield from written_shares(source, shares, partial(write, source), attempts)

    return run


def _write_share(
    source: Source, share: Share, policy: TopicPolicy, completing: Completing
) -> list[dict[str, Any]]:
    file = share.file.of_attempt()
    completed = _completed(source, share, policy, completing)
    parquet.write_messages(file.location, completed)
    return described([file], share.wrote)


def _completed(
    source: Source, share: Share, policy: TopicPolicy, completing: Completing
) -> Iterator[pa.Table]:
    """The rows of a share as they are stored, some at a time."""
    at = 0
    for rows in source.take(share.wrote["messages"]):
        inside = clipped(share.pieces, at, at + rows.num_rows)
        headers, payload = (_lengths(rows[name]) for name in ("headers", "payload"))
        opened = [batch for batch, opens in inside if opens]
        sizes = with_headers(record_sizes(headers, payload, policy), opened, policy)
        batches = [batch for batch, _ in inside]
        yield completing(rows, share.pieces[0].partition, batches, sizes)
        at += rows.num_rows


def _lengths(column: pa.ChunkedArray) -> Array:
    lengths: Array = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    return lengths
