"""The conversion of one log of an Iggy topic to one data file: the task that an import gives to an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from retention.core.inventory import DataFile
from retention.datafile import parquet
from retention.datafile.segment_writer import RowTally, verified_stats
from retention.dialects.iggy import with_topic
from retention.formats.iggy.encryption import refuse_encrypted
from retention.formats.iggy.era import EraName
from retention.formats.iggy.findings import Finding
from retention.formats.iggy.log import SegmentLog, read_log
from retention.formats.iggy.topic import ERAS
from retention.schemas.files import FileStats


@dataclass(frozen=True)
class ImportTask:
    """A log, and the destination of its messages."""

    log: SegmentLog
    era: EraName
    file: DataFile
    """The data file, written only if the log contains a message."""
    subject: str
    """The topic's name."""

    def attempt(self) -> ImportTask:
        """The task, with a file that no other attempt writes."""
        return replace(self, file=self.file.of_attempt())


@dataclass(frozen=True)
class ImportedLog:
    """The outcome of the import of a log."""

    stats: tuple[FileStats, ...]
    """The data file as read back, a row of `FILE_STATS`; empty for a log without messages."""
    findings: tuple[Finding, ...]
    next_offset: int
    """The first offset after those of the log, including damaged ones."""


def import_partition(task: ImportTask) -> ImportedLog:
    """Write the messages of a log, in bounded memory, and read the file back.

    Raises:
        DamagedError: the log was truncated while it was read.
        RefusedError: the messages are encrypted.
        VerificationError: the file differs from what was written to it.
    """
    reading = _Reading(task)
    tally = RowTally()
    batches = tally.counting(reading.batches())
    first = next(batches, None)
    if first is None:
        return ImportedLog((), tuple(reading.findings), reading.next_offset)
    sha256 = parquet.write_messages(task.file.location, chain([first], batches))
    stats = verified_stats([replace(task.file, sha256=sha256)], tally.wrote)
    return ImportedLog(tuple(stats), tuple(reading.findings), reading.next_offset)


class _Reading:
    """The parts of a log, and the findings about those read so far."""

    def __init__(self, task: ImportTask) -> None:
        self._task = task
        self.findings: list[Finding] = []
        self.next_offset = task.log.segment

    def batches(self) -> Iterator[pa.Table]:
        """Tables of shape `FILE_COLUMNS`, none of them empty."""
        for part in read_log(self._task.log, ERAS[self._task.era]):
            self.findings += part.findings
            self.next_offset = part.next_offset
            if part.rows.num_rows:
                refuse_encrypted(part.rows, self._task.log.location)
                yield with_topic(part.rows, self._task.subject)
