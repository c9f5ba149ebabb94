"""The rows of a DataFrame with a server's sequences: sorted by tasks, laid by this process, written by tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from retention.core.seq_ranges import gaps_in
from retention.core.spans import Array
from retention.datafile.segment_writer import PARTITION, Staged, Staging
from retention.dialects.block_files import narrow_of
from retention.dialects.dialect import Share
from retention.dialects.jetstream_copy import CREATED, CopiedRows, JetStreamCopy
from retention.engine_port import Engine
from retention.engines.spark.append import write_shares
from retention.engines.spark.ddl import SPARK_NAMES
from retention.engines.spark.engine import SparkEngine
from retention.engines.spark.failures import spark_failures
from retention.engines.spark.sorted_blocks import sorted_blocks
from retention.errors import UsageError
from retention.layout.partition_tails import StreamEnds
from retention.layout.stored_blocks import StoredBlock, parts_of
from retention.storage import files
from retention.storage.parallel import in_threads

_TEXT = "string"


class CopiedFrame:
    """Rows in the order of their sequences, kept in blocks between attempts to commit them.

    This process reads 24 bytes a row of them: sequences, times and sizes.

    Args:
        engine: runs the tasks that write files.
        dialect: the copy's rules.
        parts: adjacent blocks in order, in one part for each task.
    """

    def __init__(
        self, engine: Engine, dialect: JetStreamCopy, parts: Sequence[Sequence[StoredBlock]]
    ) -> None:
        self._engine = engine
        self._dialect = dialect
        self._parts = parts

    @property
    def until(self) -> int | None:
        """The highest sequence; None: there are no rows."""
        if not self._parts:
            return None
        _, _, seqs = narrow_of(self._parts[-1][-1])
        return int(seqs[-1])

    def gaps(self, first: int) -> Array:
        """The ranges of sequences up to the highest one that no row has: int64, ascending, inclusive, shape (n, 2).

        Args:
            first: the first sequence of interest, unless a row has a lower one.

        Raises:
            UsageError: two rows have the same sequence.
        """
        before, gaps = first - 1, [np.empty((0, 2), np.int64)]
        for number, (_, (_, _, seqs)) in enumerate(self._narrow()):
            before = before if number else min(before, int(seqs[0]) - 1)
            twice = np.flatnonzero(np.diff(seqs, prepend=before) == 0)
            if len(twice):
                raise UsageError(
                    f"two rows of the frame have sequence {int(seqs[twice[0]]):,}; nothing was copied; give each row "
                    "of the format nats once"
                )
            gaps.append(gaps_in(seqs, before + 1, int(seqs[-1])))
            before = int(seqs[-1])
        return np.concatenate(gaps)

    def stage(self, staging: Staging, ends: StreamEnds) -> Staged:
        """Write the rows after a stream's end, to one file for each segment and part or several by deadline.

        Raises:
            VerificationError: a file differs from the rows written to it.
        """
        shares = _joined(self._laid(ends))
        stats = write_shares(self._engine, self._dialect, self._parts, shares, staging)
        return Staged.ending_at(stats, ends)

    def _laid(self, ends: StreamEnds) -> Iterator[Share]:
        for part, (ts_ns, sizes, seqs) in self._narrow():
            for piece in ends.roll(seqs, sizes, ts_ns):
                inside = slice(piece.start, piece.end)
                messages, first = piece.end - piece.start, int(seqs[piece.start])
                gaps = int(seqs[piece.end - 1]) - first + 1 - messages
                size = int(sizes[inside].sum())
                yield Share(part, PARTITION, piece.active.base, first, messages, size, gaps=gaps)

    def _narrow(self) -> Iterator[tuple[int, tuple[Array, ...]]]:
        """The number of its part, and times, sizes and sequences, of each block in order."""
        for number, blocks in enumerate(self._parts):
            threads = files.read_parallelism(blocks[0].location)
            for columns in in_threads(narrow_of, blocks, threads):
                yield number, columns


def copied_frame(
    engine: SparkEngine, frame: DataFrame, rows: CopiedRows, above: int, directory: str
) -> CopiedFrame:
    """The rows of a DataFrame with sequences above a given one, sorted by tasks.

    Args:
        engine: runs tasks in the frame's session.
        frame: rows of the format `nats`.
        rows: the check of the rows.
        above: the last sequence that is not wanted.
        directory: the directory for files of blocks; all tasks can reach it.

    Raises:
        UsageError: a column is missing or of another type, or a row is no message.
        RefusedError: a row is of another stream.
        RetentionError, OSError: as `sorted_blocks`.
    """
    dialect = rows.dialect
    assert isinstance(dialect, JetStreamCopy)  # noqa: S101  (made together)
    with spark_failures():
        # Rows that are no messages reach the tasks, which refuse them by name.
        is_here = F.coalesce(F.col("seq").between(1, above), F.expr("false"))
        given = _columns(frame, dialect).where(~is_here)
        blocks = sorted_blocks(engine, given, rows, directory)
        return CopiedFrame(engine, dialect, parts_of(blocks, engine.parallelism()))


def _columns(frame: DataFrame, dialect: JetStreamCopy) -> DataFrame:
    wanted = {field.name: SPARK_NAMES[field.type] for field in dialect.written} | {CREATED: _TEXT}
    given = {field.name: field.dataType.simpleString() for field in frame.schema}
    for name, kind in wanted.items():
        if given.get(name) != kind:
            raise UsageError(
                f"the column {name} of the frame is {given.get(name, 'missing')}, not {kind}; nothing was copied; give "
                'the rows of format("nats") with all their columns'
            )
    return frame.select(*wanted)


def _joined(shares: Iterator[Share]) -> Iterator[Share]:
    """Shares, with adjacent ones of one part and segment in one."""
    last = next(shares, None)
    for share in shares:
        assert last is not None  # noqa: S101
        if (share.part, share.base) != (last.part, last.base):
            yield last
            last = share
            continue
        messages = last.messages + share.messages
        span = share.first_seq + share.messages + share.gaps - last.first_seq
        size = last.bytes + share.bytes
        last = Share(
            last.part, PARTITION, last.base, last.first_seq, messages, size, gaps=span - messages
        )
    if last is not None:
        yield last
