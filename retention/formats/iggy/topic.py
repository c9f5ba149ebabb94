"""A topic's directory of an Iggy server: partitions, their logs with holes, and their stored offsets."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from xxhash import xxh3_64_intdigest

from retention.errors import DamagedError, UsageError
from retention.formats.iggy.encryption import refuse_encrypted
from retention.formats.iggy.era import Era, EraName
from retention.formats.iggy.era_08 import Era08
from retention.formats.iggy.era_09 import Era09
from retention.formats.iggy.findings import Damage, Finding, Hole, Skipped
from retention.formats.iggy.log import SegmentLog, SegmentSlice, read_log
from retention.formats.iggy.repair import first_sound
from retention.formats.iggy.rows import END_OF_OFFSETS
from retention.formats.iggy.source import opened, size_of
from retention.storage import files

Kind = Literal["consumer", "group"]
ERAS: dict[EraName, Era] = {"0.8": Era08(), "0.9": Era09()}

_DIRECTORIES: tuple[tuple[str, Kind], ...] = (("consumers", "consumer"), ("groups", "group"))
_PLAIN = struct.Struct("<Q")
_CHECKED = struct.Struct("<QQ")
_MOST_ID = 2**32 - 1
_AGAIN = "nothing was imported; copy the directory again, or delete the file if its consumer no longer exists"

_LOG = re.compile(r"([0-9]{20})\.log")
_PARTITION = re.compile(r"[0-9]+")
_MOST_PARTITION = 2**31 - 1
_MOST_NAMED = 20


@dataclass(frozen=True)
class Partition:
    """A partition's directory."""

    number: int
    directory: str
    logs: tuple[SegmentLog, ...]
    """Logs in their order; the last one is active, even if it is empty."""
    stored_offsets: tuple[ConsumerOffset, ...]

    @property
    def first_offset(self) -> int:
        """The first offset of the first log; 0 for a partition without logs."""
        return self.logs[0].segment if self.logs else 0

    def missing(self, next_offset: int, log: SegmentLog) -> tuple[Finding, ...]:
        """The hole between `next_offset` and a log's first offset; empty if there is none."""
        if next_offset >= log.segment:
            return ()
        return (Hole(self.directory, next_offset, log.segment - 1),)

    def parts(self, era: Era) -> Iterator[SegmentSlice]:
        """Read the logs, one after the other; a hole is reported in the part that follows it.

        The `next_offset` of the last part is the partition's next offset.
        """
        next_offset = self.first_offset
        for log in self.logs:
            missing = self.missing(next_offset, log)
            for part in read_log(log, era):
                yield SegmentSlice(part.rows, missing + part.findings, part.next_offset)
                missing, next_offset = (), part.next_offset


@dataclass(frozen=True)
class TopicDirectory:
    """The listing of a topic's directory."""

    directory: str
    partitions: tuple[Partition, ...]
    """Partitions in order of their numbers."""
    skipped: tuple[Skipped, ...]

    @property
    def logs(self) -> list[SegmentLog]:
        """The logs of all partitions, in order."""
        return [log for partition in self.partitions for log in partition.logs]

    def parts(self, era: Era) -> Iterator[SegmentSlice]:
        """Read every message of the topic in order of partition and offset, in bounded memory, with the findings.

        Raises:
            BusyError: a log disappeared, or was truncated during the read.
            RefusedError: the messages are encrypted.
            StorageError: the storage failed.
        """
        for partition in self.partitions:
            for part in partition.parts(era):
                refuse_encrypted(part.rows, partition.directory)
                yield part


def read_topic(directory: str) -> TopicDirectory:
    """List the directory of one topic (`streams/<id>/topics/<id>`) of a server's data directory.

    Raises:
        UsageError: `directory` is not a topic's directory.
        DamagedError: a stored offset is damaged.
        BusyError: a log disappeared since the directory was listed.
        StorageError: the storage failed.
    """
    above = files.join(directory, "partitions")
    names = files.directories(above)
    if not names:
        raise UsageError(
            f"{directory}: there is no partitions/ with partitions in it; name the directory of one topic,"
            " streams/<id>/topics/<id> of a server's data directory"
        )
    numbers = sorted((int(name), name) for name in names if _PARTITION.fullmatch(name))
    for (number, name), (other, its_name) in pairwise(numbers):
        if number == other:
            raise UsageError(
                f"{above}: {name} and {its_name} are the same partition; move one away"
            )
    skipped = [name for name in names if not _PARTITION.fullmatch(name)]
    return TopicDirectory(
        directory,
        tuple(_partition(number, files.join(above, name)) for number, name in numbers),
        tuple(Skipped(files.join(above, name)) for name in skipped),
    )


def era_of(topic: TopicDirectory) -> EraName | None:
    """The era of the servers that wrote the logs; None if no record is sound in either era.

    A 64-bit checksum decides: of the first record of each log or, if all of those are damaged, of any record.
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


def refuse_other_era(topic: TopicDirectory, era: EraName) -> None:
    """Refuse a topic written by servers of another era.

    Raises:
        UsageError: the logs have another era.
    """
    actual = era_of(topic)
    if actual not in (era, None):
        raise UsageError(
            f"{topic.directory}: its logs are of Iggy {actual}, not {era}; nothing was imported; say --era {actual}"
        )


def refuse_damage(findings: Sequence[Finding]) -> None:
    """Refuse findings of damage.

    Raises:
        DamagedError: there is damage; the message names up to 20, by log and offset.
    """
    damages = [finding.sentence for finding in findings if isinstance(finding, Damage)]
    if not damages:
        return
    more = len(damages) - _MOST_NAMED
    others = f"; and {more} more" if more > 0 else ""
    raise DamagedError(
        f"{'; '.join(damages[:_MOST_NAMED])}{others}; nothing was imported;"
        " copy the log again, or leave out what is damaged with --allow-damaged"
    )


def refusing_damage(parts: Iterator[SegmentSlice]) -> Iterator[SegmentSlice]:
    """Yield the same parts, up to the first with damage.

    Raises:
        DamagedError: there is damage.
    """
    for part in parts:
        refuse_damage(part.findings)
        yield part


def _begins_soundly(log: SegmentLog, era: Era) -> bool:
    with opened(log.location, log.size) as source:
        extent = era.length_and_offset(source.read(0, era.header_bytes))
        if extent is None or extent[0] > log.size:
            return False
        return era.is_sound(source.read(0, extent[0]))


def _partition(number: int, directory: str) -> Partition:
    if number > _MOST_PARTITION:
        raise UsageError(
            f"{directory}: a partition's number is at most {_MOST_PARTITION}; name the directory of one topic"
        )
    names = [
        (int(match[1]), match[0]) for match in map(_LOG.fullmatch, files.names(directory)) if match
    ]
    if names and names[-1][0] >= END_OF_OFFSETS:
        raise DamagedError(
            f"{files.join(directory, names[-1][1])}: the name of this log is too large for an offset, because they "
            "end at 2^62; nothing was imported; copy the log again, or move it away if it is not a log"
        )
    logs = []
    for nth, (segment, name) in enumerate(names):
        location = files.join(directory, name)
        end = names[nth + 1][0] if nth + 1 < len(names) else None
        logs.append(SegmentLog(location, number, segment, size_of(location), end))
    return Partition(number, directory, tuple(logs), _stored_offsets(directory))


@dataclass(frozen=True)
class ConsumerOffset:
    """The offset of the last message that a consumer or a group has read."""

    kind: Kind
    id: int
    """The number of the consumer or group; for a named consumer, the XXH32 of its name."""
    offset: int


def _stored_offsets(partition: str) -> tuple[ConsumerOffset, ...]:
    """Read the stored offsets below a partition's directory, consumers first, in order of id.

    A file has a little-endian u64, alone or followed by its XXH3-64 (0.9). A file with a name that is not a 32-bit
    number is not a stored offset.

    Raises:
        DamagedError: a file has a wrong length or checksum, or an impossible offset.
    """
    offsets = []
    for directory, kind in _DIRECTORIES:
        where = files.join(partition, "offsets", directory)
        ids = sorted(int(name) for name in files.names(where) if _is_id(name))
        offsets += [
            ConsumerOffset(kind, number, _offset(files.join(where, str(number)))) for number in ids
        ]
    return tuple(offsets)


def _is_id(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name)) == name and int(name) <= _MOST_ID


def _offset(location: str) -> int:
    content = files.read_bytes(location) or b""
    if len(content) not in (_PLAIN.size, _CHECKED.size):
        raise DamagedError(
            f"{location}: a stored offset has 8 or 16 bytes, this one has {len(content)}; {_AGAIN}"
        )
    offset: int = _PLAIN.unpack_from(content)[0]
    checksum = content[_PLAIN.size :]
    if checksum and xxh3_64_intdigest(content[: _PLAIN.size]) != int.from_bytes(checksum, "little"):
        raise DamagedError(f"{location}: the checksum of the stored offset is wrong; {_AGAIN}")
    if offset >= END_OF_OFFSETS:
        raise DamagedError(f"{location}: no message can have the stored offset {offset}; {_AGAIN}")
    return offset
