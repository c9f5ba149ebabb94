"""Growth of a stream: an assumption about the messages that will be stored, and a stream as if they were."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import Inventory
from retention.core.json_object import JsonObject
from retention.core.spans import Array
from retention.core.units import DAY
from retention.errors import UsageError
from retention.schemas.files import FILE_STATS, SUBJECT_COUNTS_OF_FILES

OBSERVED_NS = 30 * DAY
"""The time before a stream's newest message in which its growth is observed, nanoseconds."""
PIECES = 64
"""The maximum number of files that stand for the growth of a partition, or of a table."""
_DIRECTORY = "_growth/"
_GOLDEN = 0.6180339887498949
_RATE = re.compile(r"(?P<number>\d+(?:\.\d+)?)/day")


@dataclass(frozen=True)
class Growth:
    """Messages or rows that are assumed to be stored evenly over time; messages without a TTL, on subjects as today."""

    per_day: float
    bytes_each: float

    def as_json(self) -> JsonObject:
        """The assumption as JSON values."""
        return vars(self)

    def amount(self, ahead_ns: int) -> int:
        """The messages or rows of a time ahead, in nanoseconds."""
        return int(self.per_day * max(ahead_ns, 0) / DAY)


NO_GROWTH = Growth(0.0, 0.0)
"""The assumption that nothing is stored."""


def growth_of(assumption: str, observed: Callable[[], Growth], mean_bytes: float) -> Growth:
    """Read an assumption: `none`, `history` (as observed) or a number a day, such as `5000/day`.

    Args:
        assumption: the text.
        observed: measures the growth so far.
        mean_bytes: the size of a message or row.

    Raises:
        UsageError: it is none of them.
    """
    if assumption == "none":
        return NO_GROWTH
    if assumption == "history":
        return observed()
    rate = _RATE.fullmatch(assumption)
    if rate is None:
        raise UsageError(
            f"growth {assumption!r} is not an assumption: give none, history, or a number a day, such as 5000/day"
        )
    return Growth(float(rate["number"]), mean_bytes)


def observed_growth(files: pa.Table) -> Growth:
    """The growth in the `OBSERVED_NS` before the newest message, by sequences, so that removed messages count.

    Args:
        files: an inventory's, `FILE_STATS`.
    """
    if not files.num_rows:
        return NO_GROWTH
    recent = files.filter(pc.greater(files["max_ts_ns"], _newest(files) - OBSERVED_NS))
    span_ns = max(_newest(recent) - pc.min(recent["min_ts_ns"]).as_py(), 1)
    ranges = recent.group_by("partition").aggregate([("min_seq", "min"), ("max_seq", "max")])
    between = pc.sum(pc.subtract(ranges["max_seq_max"], ranges["min_seq_min"])).as_py()
    return Growth(between * DAY / span_ns, mean_bytes(files))


def mean_bytes(files: pa.Table) -> float:
    """The mean size of the messages of an inventory's files; 0 without any."""
    messages = pc.sum(files["messages"], min_count=0).as_py()
    return pc.sum(files["bytes"], min_count=0).as_py() / messages if messages else 0.0


def grown(inventory: Inventory, growth: Growth, from_ns: int, until_ns: int) -> Inventory:
    """A stream as if messages had been stored from one instant until another.

    The messages are spread over partitions as those of today, and each of up to 64 files per partition is a segment.

    Args:
        inventory: the stream.
        growth: the assumption.
        from_ns: the instant of the inventory, nanoseconds since the epoch.
        until_ns: the instant of the result.
    """
    total = growth.amount(until_ns - from_ns)
    added = [
        file
        for partition, share in _shares(inventory).items()
        for file in _files(inventory, partition, round(total * share), growth, (from_ns, until_ns))
    ]
    if not added:
        return inventory
    later = pa.Table.from_pylist(added, FILE_STATS)
    files = pa.concat_tables([inventory.files, later]).sort_by(
        [(name, "ascending") for name in ("partition", "segment", "min_seq", "path")]
    )
    ends = later.group_by("partition").aggregate([("max_seq", "max"), ("segment", "max")])
    next_seq, open_base = (
        dict(zip(ends["partition"].to_pylist(), values.to_pylist(), strict=True))
        for values in (pc.add(ends["max_seq_max"], 1), ends["segment_max"])
    )
    counters = replace(
        inventory.counters,
        next_seq={**inventory.counters.next_seq, **next_seq},
        open_base={**inventory.counters.open_base, **open_base},
    )
    return replace(inventory, files=files, counters=counters)


def is_growth(files: pa.Table) -> pa.BooleanArray:
    """A mask of the files that stand for growth."""
    return pc.starts_with(files["path"], _DIRECTORY).combine_chunks()


def growth_digests(files: pa.Table, numbers: Array, mix: pa.Table) -> pa.Table:
    """The subject digests of files that stand for growth, shape `SUBJECT_COUNTS_OF_FILES`.

    Args:
        files: these files, in the order of the stream.
        numbers: the number of each among all files asked for.
        mix: `subject` and `messages` of the stream as stored; its proportions hold for every file.
    """
    shares = np.cumsum(mix["messages"].to_numpy()) / pc.sum(mix["messages"]).as_py()
    tables = [SUBJECT_COUNTS_OF_FILES.empty_table()]
    sequences = (files[name].to_pylist() for name in ("min_seq", "max_seq"))
    for number, first, last in zip(numbers.tolist(), *sequences, strict=True):
        counts = _dealt(shares, first, last)
        there = np.flatnonzero(counts)
        tables.append(
            pa.table(
                [
                    pa.array(np.full(len(there), number), pa.int64()),
                    mix["subject"].take(pa.array(there)).combine_chunks(),
                    pa.array(counts[there], pa.int64()),
                    pa.array(first - 1 + np.cumsum(counts[there]), pa.int64()),
                ],
                schema=SUBJECT_COUNTS_OF_FILES,
            )
        )
    return pa.concat_tables(tables)


def _dealt(shares: Array, first: int, last: int) -> Array:
    """The messages of each subject in a range of sequences, dealt by cumulative shares.

    The message with sequence n goes to the subject in whose share the fraction of n times the golden ratio lies. So
    any run of messages has nearly the shares of all, and a subject with a share of 1 in k comes about every k messages.
    """
    points = np.arange(first, last + 1) * _GOLDEN % 1.0
    subjects = np.searchsorted(shares[:-1], points, side="right")
    return np.bincount(subjects, minlength=len(shares))


def _shares(inventory: Inventory) -> Mapping[int, float]:
    """Partition → its share of the stored messages."""
    files = inventory.files
    if not files.num_rows:
        return {}
    of = files.group_by("partition").aggregate([("messages", "sum")])
    total = pc.sum(of["messages_sum"]).as_py()
    return {
        partition: messages / total
        for partition, messages in zip(
            of["partition"].to_pylist(), of["messages_sum"].to_pylist(), strict=True
        )
    }


def _files(
    inventory: Inventory, partition: int, messages: int, growth: Growth, between: tuple[int, int]
) -> list[dict[str, object]]:
    """The files that stand for the growth of one partition, `FILE_STATS` rows, oldest first."""
    stored = inventory.files.filter(pc.equal(inventory.files["partition"], partition))
    stored_next = pc.max(stored["max_seq"]).as_py() + 1
    next_seq = max(inventory.counters.next_seq.get(partition, 0), stored_next)
    pieces = min(PIECES, messages)
    ends = [messages * (number + 1) // pieces for number in range(pieces)]
    from_ns, until_ns = between
    rows = []
    for number, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        first_ns, last_ns = (
            from_ns + (until_ns - from_ns) * at // messages for at in (start + 1, end)
        )
        rows.append(
            {
                "path": f"{_DIRECTORY}partition={partition}/{number:02d}.parquet",
                "partition": partition,
                "segment": next_seq + start,
                "file_bytes": round((end - start) * growth.bytes_each),
                "modified_ms": 0,
                "messages": end - start,
                "bytes": round((end - start) * growth.bytes_each),
                "min_seq": next_seq + start,
                "max_seq": next_seq + end - 1,
                "min_ts_ns": first_ns,
                "max_ts_ns": last_ns,
                "first_ts_ns": first_ns,
                "last_ts_ns": last_ns,
                "never": 0,
                "deadlines": 0,
                "min_deadline_ns": None,
                "max_deadline_ns": None,
                "markers": 0,
                "in_time_order": True,
            }
        )
    return rows


def _newest(files: pa.Table) -> int:
    newest: int = pc.max(files["max_ts_ns"]).as_py()
    return newest
