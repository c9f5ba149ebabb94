"""Tasks of a shared fold: some read parts of a log, others fold the lines of one consumer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.consumers.ack_fold import FoldInput, FoldReport, counts_of, fold_log
from retention.consumers.ack_subject import ACKS, Malformed
from retention.consumers.state import ConsumerState
from retention.engine_port import GroupedRows
from retention.formats.ack.log import LogSlice, parse_slice

NUMBERS = ("verb", "deliveries", "seq", "consumer_seq", "ts_ns")
KEYED = pa.schema(
    [("key", pa.string()), ("place", pa.int64()), *(ACKS.field(name) for name in NUMBERS)]
)
"""Lines of a log for the shuffle: `key` is the consumer, `place` the line's row in the log."""


@dataclass(frozen=True)
class ReadAcks:
    """A task: read lines of a log, and keep the ones about a stream's consumers."""

    lines: LogSlice
    stream: str
    begins: Mapping[str, int]
    """Consumer → its first unfolded line."""
    last_seq: int
    """The last sequence that the stream assigned."""


@dataclass(frozen=True)
class OtherLines:
    """Counts of the lines of a log that are not folded."""

    malformed: tuple[Malformed, ...]
    unknown: Mapping[str, int]
    """Name of an unknown consumer → lines."""
    others: Mapping[str, int]
    """Name of another stream → lines."""
    beyond: Mapping[str, object] | None
    """The first line of a consumer about a message that does not exist yet (a row of `ACKS`)."""


def read_acks(task: ReadAcks) -> GroupedRows:
    """Parse lines of a log, and key those of the stream's consumers.

    Raises:
        UsageError: the lines cannot be read, or one of them is neither an ack nor a delivery.
    """
    parsed = parse_slice(task.lines)
    is_ours = pc.equal(parsed.acks["stream"], task.stream)
    ours, names = parsed.acks.filter(is_ours), pa.array(task.begins, pa.string())
    at = pc.fill_null(pc.index_in(ours["consumer"], value_set=names), -1).to_numpy()
    is_known = at >= 0
    begins = np.array([*task.begins.values(), 0], np.int64)[at]
    seqs, rows = (ours[name].to_numpy() for name in ("seq", "row"))
    beyond = np.flatnonzero(is_known & (seqs > task.last_seq))[:1]
    aside = OtherLines(
        parsed.malformed,
        counts_of(ours.filter(pa.array(~is_known))["consumer"]),
        counts_of(parsed.acks.filter(pc.invert(is_ours))["stream"]),
        next(iter(ours.take(pa.array(beyond)).to_pylist()), None),
    )
    new = ours.filter(pa.array(is_known & (rows >= begins)))
    columns = [new["consumer"], new["row"], *(new[name] for name in NUMBERS)]
    return GroupedRows(pa.table(columns, schema=KEYED), aside)


@dataclass(frozen=True)
class ConsumerFold:
    """The fold of one consumer's lines, piece by piece; a value passed to tasks."""

    stream: str
    consumers: Mapping[str, FoldInput]
    ends: Sequence[int]
    """Rows of the log at which pieces end, ascending; every engine cuts a log in the same places."""
    last_seq: int

    def __call__(
        self, consumer: str, tables: Iterator[pa.Table]
    ) -> tuple[ConsumerState, FoldReport]:
        """Fold the lines of a consumer (tables of shape `KEYED`, in order); one piece is in memory at a time.

        Raises:
            RefusedError: so much of the log is missing that too many messages would have to be kept.
        """
        before, report = self.consumers[consumer], None
        for piece in self._pieces(tables):
            acks = _acks_of(piece, self.stream)
            folded = fold_log({consumer: before}, acks, stream=self.stream, last_seq=self.last_seq)
            later = folded.reports[consumer]
            report = later if report is None else report.then(before.state, later)
            before = replace(before, state=folded.states[consumer])
        return before.state, report or FoldReport()

    def _pieces(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Lines grouped by the piece of the log to which they belong."""
        held: list[pa.Table] = []
        number = -1
        for table in tables:
            numbers = np.searchsorted(self.ends, table["place"].to_numpy(), side="right")
            cuts = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
            for begin, end in pairwise([0, *cuts, len(numbers)]):
                if held and numbers[begin] != number:
                    yield pa.concat_tables(held)
                    held = []
                number = numbers[begin]
                held.append(table.slice(begin, end - begin))
        if held:
            yield pa.concat_tables(held)


def _acks_of(lines: pa.Table, stream: str) -> pa.Table:
    columns = {name: lines[name] for name in NUMBERS} | {
        "row": lines["place"],
        "stream": pa.repeat(stream, lines.num_rows),
        "consumer": lines["key"],
    }
    return pa.table([columns[name] for name in ACKS.names], schema=ACKS)
