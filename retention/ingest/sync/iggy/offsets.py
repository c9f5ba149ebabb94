"""Offsets of a server's consumers and groups in the lake, so that segments that they have not read stay here too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from retention.context.context import OpenedStream
from retention.iggy.topic import RemoteTopic
from retention.iggy.wire import TopicInfo
from retention.interest.commit_offsets import bring_offsets, offsets_of
from retention.stores.offset_table import Reader, reader_of


def bring_readers(
    opened: OpenedStream, remote: RemoteTopic, info: TopicInfo, consumers: Sequence[str]
) -> int:
    """Store the offsets of all groups, and of the named consumers, as the server has them; returns their number.

    A server lists its groups, and answers for a consumer only by its name or number. An offset above the messages that
    were copied is stored as the last of these. A reader without an offset there keeps the one that it has here.

    Raises:
        RefusedError, StorageError: as `RemoteTopic.stored_offset`.
        UsageError: a consumer's name is none.
        BusyError, DamagedError: as `bring_offsets`.
    """
    if not opened.table.exists():
        return 0
    offsets = dict(_offsets(opened, remote, info, consumers))
    bring_offsets(opened, offsets)
    return len(offsets)


def _offsets(
    opened: OpenedStream, remote: RemoteTopic, info: TopicInfo, consumers: Sequence[str]
) -> Iterator[tuple[Reader, int]]:
    _, counters = offsets_of(opened)
    groups = remote.groups()
    for partition in info.partitions:
        number = partition.number
        last = counters.next_seq.get(number, 0) - 1
        readers: list[tuple[Reader, str | int]] = [
            (Reader(number, "group", str(group.id)), group.id) for group in groups
        ]
        readers += [(reader_of(number, "consumer", name), _identifier(name)) for name in consumers]
        for reader, identifier in readers if last >= 0 else ():
            stored = remote.stored_offset(number, reader.kind, identifier)
            if stored is not None:
                yield reader, min(stored, last)


def _identifier(name: str) -> str | int:
    return int(name) if name.isascii() and name.isdigit() else name
