"""A topic's directory as an Iggy server leaves it: its partitions, their logs, and what is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from retention.errors import DamagedError, RefusedError, UsageError
from retention.formats.iggy.encryption import is_encrypted
from retention.formats.iggy.era import Era, EraName
from retention.formats.iggy.era_08 import Era08
from retention.formats.iggy.era_09 import Era09
from retention.formats.iggy.findings import Damage, Finding, Hole, Skipped
from retention.formats.iggy.log import Log, Part, read_log
from retention.formats.iggy.repair import first_sound
from retention.formats.iggy.rows import END_OF_OFFSETS
from retention.formats.iggy.source import opened, size_of
from retention.formats.iggy.stored_offsets import StoredOffset, read_stored_offsets
from retention.storage import files

ERAS: dict[EraName, Era] = {"0.8": Era08(), "0.9": Era09()}

_LOG = re.compile(r"([0-9]{20})\.log")
_PARTITION = re.compile(r"[0-9]+")
_MOST_PARTITION = 2**31 - 1
_MOST_TOLD = 20


@dataclass(frozen=True)
class Partition:
    """A partition's directory."""

    number: int
    directory: str
    logs: tuple[Log, ...]
    """In their order; the last one is active, also when it has no bytes."""
    stored_offsets: tuple[StoredOffset, ...]

    @property
    def first_offset(self) -> int:
        """Where its first log begins; 0 of a partition without any."""
        return self.logs[0].segment if self.logs else 0

    def missing(self, next_offset: int, log: Log) -> tuple[Finding, ...]:
        """The hole before a log, where what comes before it ends below; there may be none."""
        if next_offset >= log.segment:
            return ()
        return (Hole(self.directory, next_offset, log.segment - 1),)

    def parts(self, era: Era) -> Iterator[Part]:
        """What the logs hold, one log behind the other; a hole is told before what follows it.

        The `next_offset` of the last part is the partition's.
        """
        next_offset = self.first_offset
        for log in self.logs:
            missing = self.missing(next_offset, log)
            for part in read_log(log, era):
                yield Part(part.rows, missing + part.findings, part.next_offset)
                missing, next_offset = (), part.next_offset


@dataclass(frozen=True)
class Topic:
    """A topic's directory, listed."""

    directory: str
    partitions: tuple[Partition, ...]
    """In order of their numbers."""
    skipped: tuple[Skipped, ...]

    @property
    def logs(self) -> list[Log]:
        """Those of all partitions, in order."""
        return [log for partition in self.partitions for log in partition.logs]

    def parts(self, era: Era) -> Iterator[Part]:
        """Every message of the topic in order of partition and offset, in bounded memory, and what was found.

        Raises:
            BusyError: a log is gone, or became shorter while it was read.
            RefusedError: the messages are encrypted.
            StorageError: the storage failed.
        """
        for partition in self.partitions:
            for part in partition.parts(era):
                refuse_encrypted(part.rows, partition.directory)
                yield part


def read_topic(directory: str) -> Topic:
    """List the directory of one topic (`streams/<id>/topics/<id>`) of a server's data directory.

    Raises:
        UsageError: it is no such directory.
        DamagedError: a stored offset is not what the server wrote.
        BusyError: a log is gone since the directory was listed.
        StorageError: the storage failed.
    """
    above = files.join(directory, "partitions")
    names = files.directories(above)
    if not names:
        raise UsageError(
            f"{directory}: no partitions/ with partitions in it; name the directory of one topic,"
            " streams/<id>/topics/<id> of a server's data directory"
        )
    numbers = sorted((int(name), name) for name in names if _PARTITION.fullmatch(name))
    for (number, name), (other, its_name) in pairwise(numbers):
        if number == other:
            raise UsageError(
                f"{above}: {name} and {its_name} are the same partition; move one away"
            )
    skipped = [name for name in names if not _PARTITION.fullmatch(name)]
    return Topic(
        directory,
        tuple(_partition(number, files.join(above, name)) for number, name in numbers),
        tuple(Skipped(files.join(above, name)) for name in skipped),
    )


def era_of(topic: Topic) -> EraName | None:
    """The era of the servers that wrote the logs; None if nothing in them is sound in either.

    A checksum of 64 bits decides: of the first record of each log, and if all of those are damaged, of any record.
    """
    logs = [log for log in topic.logs if log.size]
    for log in logs:
        for name, era in ERAS.items():
            if _begins_soundly(log, era):
                return name
    for log in logs:
        for name, era in ERAS.items():
            with opened(log.location, log.size) as source:
                if first_sound(source, era, 0, 0, END_OF_OFFSETS):
                    return name
    return None


def refuse_other_era(topic: Topic, era: EraName) -> None:
    """Refuse a topic that servers of another era wrote.

    Raises:
        UsageError: they did.
    """
    found = era_of(topic)
    if found not in (era, None):
        raise UsageError(
            f"{topic.directory}: its logs are of Iggy {found}, not {era}; nothing was imported; say --era {found}"
        )


def refuse_encrypted(rows: pa.RecordBatch, place: str) -> None:
    """Refuse messages (shape `ROWS`) that the server encrypted.

    Raises:
        RefusedError: naming the place.
    """
    if is_encrypted(rows):
        raise RefusedError(
            f"{place}: its messages are encrypted, so that neither payloads nor user headers can be read; nothing was"
            " imported; poll them from the server, which decrypts them"
        )


def refuse_damage(findings: Sequence[Finding]) -> None:
    """Refuse what is damaged.

    Raises:
        DamagedError: there is damage; the message names up to 20, by log and offset.
    """
    damages = [one.sentence for one in findings if isinstance(one, Damage)]
    if not damages:
        return
    more = len(damages) - _MOST_TOLD
    others = f"; and {more} more" if more > 0 else ""
    raise DamagedError(
        f"{'; '.join(damages[:_MOST_TOLD])}{others}; nothing was imported;"
        " copy the log again, or leave out what is damaged with --allow-damaged"
    )


def refusing_damage(parts: Iterator[Part]) -> Iterator[Part]:
    """The same parts, up to the first with damage.

    Raises:
        DamagedError: there is damage.
    """
    for part in parts:
        refuse_damage(part.findings)
        yield part


def _begins_soundly(log: Log, era: Era) -> bool:
    with opened(log.location, log.size) as source:
        told = era.length_and_offset(source.read(0, era.header_bytes))
        if told is None or told[0] > log.size:
            return False
        return era.is_sound(source.read(0, told[0]))


def _partition(number: int, directory: str) -> Partition:
    if number > _MOST_PARTITION:
        raise UsageError(
            f"{directory}: a partition's number is at most {_MOST_PARTITION}; name the directory of one topic"
        )
    found = [
        (int(match[1]), match[0]) for match in map(_LOG.fullmatch, files.names(directory)) if match
    ]
    if found and found[-1][0] >= END_OF_OFFSETS:
        raise DamagedError(
            f"{files.join(directory, found[-1][1])}: no offset can be as large as the name of this log says, for they "
            "end at 2^62; nothing was imported; copy the log again, or move it away if it is none"
        )
    logs = []
    for nth, (segment, name) in enumerate(found):
        location = files.join(directory, name)
        end = found[nth + 1][0] if nth + 1 < len(found) else None
        logs.append(Log(location, number, segment, size_of(location), end))
    return Partition(number, directory, tuple(logs), read_stored_offsets(directory))
