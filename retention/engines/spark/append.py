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
from retention.dialects.dialect import Block, Dialect, Layer, Share
from retention.dialects.numbering import BlockRows, lay
from retention.engines.spark.attempts import attempts_of
from retention.engines.spark.blocks import (
    BLOCK,
    TOTALS,
    blocks_of,
    narrow_of,
    packer,
    place_of,
    unpacked,
)
from retention.engines.spark.columns import arriving
from retention.engines.spark.source import Source
from retention.engines.spark.tasks import KeptFrame, Task, changed, outcomes, written_shares
from retention.layout.partition_tails import Ends


@dataclass(frozen=True)
class Placed:
    """A share, and the files that take it."""

    share: Share
    files: tuple[DataFile, ...]


class SortedFrame(KeptFrame):
    """The rows of a DataFrame in the order of their sequences, kept in blocks between attempts to commit them.

    That order is by the columns that the dialect names; however the frame is partitioned, the same rows get the same
    sequences. Tasks count and pack them; this process numbers blocks by their totals, and asks for the rows of those
    alone in which a segment or batch ends.
    """

    def __init__(self, frame: DataFrame, dialect: Dialect, now_ns: int) -> None:
        self._dialect = dialect
        ordered = arriving(frame, dialect, now_ns).sort(*dialect.order)
        super().__init__(ordered.mapInArrow(packer(dialect), BLOCK))

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

        Batches and segments begin exactly where they would one message after another.
        """
        laid = lay(layer, blocks_of(self._kept.select(*TOTALS).toArrow()), self._rows_of)
        return laid.shares(), laid.ends

    def _rows_of(self, blocks: Sequence[Block]) -> Mapping[Block, BlockRows]:
        """The times or addresses, and the sizes, of the rows of some blocks."""
        of_place = {place_of(block.part, block.number): block for block in blocks}
        wanted = self._kept.where(F.col("place").isin([*of_place])).select("place", "narrow")
        received = wanted.toArrow()
        columns = (received[name].to_pylist() for name in ("place", "narrow"))
        rows = {of_place[place]: narrow_of(packed) for place, packed in zip(*columns, strict=True)}
        if len(rows) != len(of_place):
            raise changed(f"{len(rows)} of {len(of_place)} blocks came again")
        return rows

    def _write(self, placed: Mapping[int, Sequence[Placed]]) -> list[dict[str, Any]]:
        """Write the rows; rows of `FILE_STATS`, in order."""
        if not placed:
            return []
        attempts = attempts_of(self._kept.sparkSession)
        rows = self._kept.select("place", "rest")
        written = outcomes(rows, _writer(placed, self._dialect, attempts))
        shares = sum(map(len, placed.values()))
        if len(written) != shares:
            raise changed(f"{len(written)} of {shares} parts were written")
        return sorted(
            chain.from_iterable(written), key=lambda row: (row["partition"], row["min_seq"])
        )


def _writer(placed: Mapping[int, Sequence[Placed]], dialect: Dialect, attempts: int) -> Task:
    """The task that writes one partition's files, and answers with rows of `FILE_STATS` for each share."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = Source(unpacked(batches))
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
