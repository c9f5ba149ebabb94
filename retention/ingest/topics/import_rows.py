"""One log of an Iggy topic becomes one data file: the task that an import gives to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core import message_rows
from retention.core.inventory import DataFile
from retention.datafile import parquet
from retention.datafile.segment_writer import described
from retention.formats.iggy.era import EraName
from retention.formats.iggy.findings import Finding
from retention.formats.iggy.log import Log, read_log
from retention.formats.iggy.topic import ERAS, refuse_encrypted
from schemas.messages import FILE_COLUMNS


@dataclass(frozen=True)
class Taking:
    """A log, and where its messages go."""

    log: Log
    era: EraName
    file: DataFile
    """It is written only if the log holds a message."""
    subject: str
    """The topic's name."""

    def attempt(self) -> Taking:
        """The task with a file that no other attempt writes."""
        return replace(self, file=self.file.of_attempt())


@dataclass(frozen=True)
class Taken:
    """What became of a log."""

    stats: tuple[dict[str, Any], ...]
    """The data file as read back, a row of `FILE_STATS`; none of a log without messages."""
    findings: tuple[Finding, ...]
    next_offset: int
    """The first offset after those of the log, damaged ones included."""

    def total(self, name: str) -> int:
        """A sum over the data files: `messages` or `bytes`."""
        return sum(int(row[name]) for row in self.stats)


def taken(task: Taking) -> Taken:
    """Write the messages of a log, in bounded memory, and read the file back.

    Raises:
        DamagedError: the log became shorter while it was read.
        RefusedError: the messages are encrypted.
        VerificationError: the file does not hold what was written to it.
    """
    reading = _Reading(task)
    batches = reading.batches()
    first = next(batches, None)
    if first is None:
        return Taken((), tuple(reading.findings), reading.next_offset)
    with parquet.messages_to(task.file.location) as write:
        write(first)
        for batch in batches:
            write(batch)
    stats = described([task.file], reading.wrote)
    return Taken(tuple(stats), tuple(reading.findings), reading.next_offset)


class _Reading:
    """The parts of a log, counted while they pass."""

    def __init__(self, task: Taking) -> None:
        self._task = task
        self.findings: list[Finding] = []
        self.next_offset = task.log.segment
        self.wrote: dict[str, int] = {}

    def batches(self) -> Iterator[pa.Table]:
        """Tables of shape `FILE_COLUMNS`, none of them empty."""
        for part in read_log(self._task.log, ERAS[self._task.era]):
            self.findings += part.findings
            self.next_offset = part.next_offset
            if part.rows.num_rows:
                refuse_encrypted(part.rows, self._task.log.location)
                yield self._counted(completed(part.rows, self._task.subject))

    def _counted(self, batch: pa.Table) -> pa.Table:
        before = self.wrote or {"messages": 0, "bytes": 0, "min_seq": batch["seq"][0].as_py()}
        self.wrote = {
            "messages": before["messages"] + batch.num_rows,
            "bytes": before["bytes"] + pc.sum(batch["size"]).as_py(),
            "min_seq": before["min_seq"],
            "max_seq": batch["seq"][-1].as_py(),
        }
        return batch


def completed(batch: pa.RecordBatch | pa.Table, subject: str) -> pa.Table:
    """Rows of shape `FILE_COLUMNS`: Iggy knows no subjects, no lifetimes and no markers."""
    count = batch.num_rows
    said = {name: batch[name] for name in batch.schema.names if name in FILE_COLUMNS.names}
    columns = said | {
        "subject": pa.array([subject] * count, pa.string()),
        "time": message_rows.time_of(batch["ts_ns"]),
        "deadline_ns": pa.nulls(count, pa.int64()),
        "marker": pa.repeat(pa.scalar(value=False), count),
    }
    return pa.table({name: columns[name] for name in FILE_COLUMNS.names}).cast(FILE_COLUMNS)
