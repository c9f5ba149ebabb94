"""Staging a Spark DataFrame behind a stream's last message: tasks write the files, only their statistics come back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention.core import message_rows
from retention.core.inventory import DataFile
from retention.datafile.deadline_writer import write_apart
from retention.datafile.segment_writer import Staged, Staging, described, numbered
from retention.engines.spark.attempts import attempts_of
from retention.engines.spark.columns import ARRIVING, arriving
from retention.engines.spark.source import Source, checked
from retention.engines.spark.tasks import (
    PART_BITS,
    KeptFrame,
    Task,
    changed,
    outcomes,
    written_shares,
)
from retention.layout.segment_roll import Active, RollRule, roll

_SHARE = "part long, base long, messages long, bytes long"


@dataclass(frozen=True)
class Share:
    """The rows of one partition that go into one segment: a task's files."""

    files: tuple[DataFile, ...]
    first_seq: int
    messages: int
    bytes: int


class SortedFrame(KeptFrame):
    """The rows of a DataFrame in the order of their sequences, kept between attempts to commit them.

    That order is by `ts_ns`, then subject, headers and payload; however the frame is partitioned, the same rows get
    the same sequences.
    """

    def __init__(self, frame: DataFrame, storage: message_rows.Storage, now_ns: int) -> None:
        self._storage: message_rows.Storage = storage
        super().__init__(arriving(frame, now_ns).sort(*ARRIVING))

    def stage(
        self, staging: Staging, active: Active | None, rule: RollRule, next_seq: int
    ) -> Staged:
        """Write the rows from `next_seq` on, for each segment and partition one file or some apart by deadline.

        Raises:
            UsageError: a row cannot be a message.
            VerificationError: a file does not hold what was to be written to it.
        """
        shares = self._roll(active, rule, next_seq)
        placed: dict[int, list[Share]] = {}
        for part, base, messages, size in shares:
            share = Share(staging.new(base), next_seq, messages, size)
            placed.setdefault(part, []).append(share)
            next_seq += messages
        last = Active(shares[-1][1]) if shares else active
        return Staged(self._write(placed), last, next_seq)

    def _roll(
        self, active: Active | None, rule: RollRule, next_seq: int
    ) -> list[tuple[int, int, int, int]]:
        """Which rows go where, in order: (partition of the frame, base, messages, bytes).

        One task sees every row's time and lengths, sorted by the place of the row, so that segments begin exactly
        where they would one message after another.
        """
        lengths = [
            F.coalesce(F.octet_length(name), F.lit(0)).alias(name)
            for name in ("subject", "headers", "payload")
        ]
        narrow = self._sorted.select(
            F.monotonically_increasing_id().alias("place"), "ts_ns", *lengths
        )
        ordered = narrow.coalesce(1).sortWithinPartitions("place")
        task = _roller(active, rule, next_seq, self._storage)
        found = ordered.mapInArrow(task, _SHARE).toArrow()
        return list(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))

    def _write(self, placed: dict[int, list[Share]]) -> list[dict[str, Any]]:
        if not placed:
            return []
        numbered_parts = self._sorted.select(F.spark_partition_id().alias("part"), *ARRIVING)
        attempts = attempts_of(self._sorted.sparkSession)
        written = outcomes(numbered_parts, _writer(placed, self._storage, attempts))
        shares = sum(len(shares) for shares in placed.values())
        if len(written) != shares:
            raise changed(f"{len(written)} of {shares} parts were written")
        stats = [one for share in written for one in share]
        return sorted(stats, key=lambda one: one["min_seq"])


def _roller(
    active: Active | None, rule: RollRule, next_seq: int, storage: message_rows.Storage
) -> Task:
    """The task that sees every row's time and lengths, in order."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shares = list(_shares(batches, active, rule, (next_seq, storage)))
        columns = [pa.array(column, pa.int64()) for column in zip(*shares, strict=True)]
        if columns:
            yield pa.RecordBatch.from_arrays(columns, names=["part", "base", "messages", "bytes"])

    return run


def _shares(
    batches: Iterable[pa.RecordBatch],
    active: Active | None,
    rule: RollRule,
    start: tuple[int, message_rows.Storage],
) -> Iterator[tuple[int, int, int, int]]:
    next_seq, storage = start
    open_share: tuple[int, int] | None = None
    messages = size = 0
    for batch in batches:
        parts = batch["place"].to_numpy() >> PART_BITS
        subject, blocks, payload = (batch[name] for name in ("subject", "headers", "payload"))
        sizes = np.asarray(message_rows.accounted(subject, blocks, payload, storage))
        seqs = np.arange(next_seq, next_seq + len(sizes))
        next_seq += len(sizes)
        for piece in roll(active, seqs, sizes, batch["ts_ns"].to_numpy(), rule):
            active = piece.active
            for begin, end in _runs(parts, piece.start, piece.end):
                share = (int(parts[begin]), active.base)
                if open_share is not None and share != open_share:
                    yield (*open_share, messages, size)
                    messages = size = 0
                open_share = share
                messages, size = messages + end - begin, size + int(sizes[begin:end].sum())
    if open_share is not None:
        yield (*open_share, messages, size)


def _runs(parts: np.ndarray, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Neighbours of one partition between `start` and `end`: where each run begins and ends."""
    changes = np.flatnonzero(np.diff(parts[start:end])) + start + 1
    edges = [start, *changes.tolist(), end]
    yield from pairwise(edges)


def _writer(placed: dict[int, list[Share]], storage: message_rows.Storage, attempts: int) -> Task:
    """The task that writes one partition's files, and answers with rows of `FILE_STATS` for each share."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = Source(batches)
        shares = placed.get(source.part, [])
        yield from written_shares(source, shares, partial(_write_share, source, storage), attempts)

    return run


def _write_share(
    source: Source, storage: message_rows.Storage, share: Share
) -> list[dict[str, Any]]:
    completed = (
        message_rows.complete(checked(table), storage) for table in source.take(share.messages)
    )
    own = [file.of_attempt() for file in share.files]
    written = write_apart(own, numbered(completed, share.first_seq))
    wrote = {
        "messages": share.messages,
        "bytes": share.bytes,
        "min_seq": share.first_seq,
        "max_seq": share.first_seq + share.messages - 1,
    }
    return described(written, wrote)
