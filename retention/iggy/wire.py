"""Bodies of the requests to an Iggy 0.9 server, and what its answers say (iggy `binary_protocol`)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from retention.errors import DamagedError
from retention.formats.iggy import user_headers
from retention.formats.iggy.user_headers import Value
from retention.stores.offset_table import ReaderKind

POLL_MESSAGES, GET_CONSUMER_OFFSET, GET_TOPIC, GET_CONSUMER_GROUPS = 100, 120, 300, 601
"""Codes of the requests."""
_NAMES = {
    POLL_MESSAGES: "poll messages",
    GET_CONSUMER_OFFSET: "read stored offsets",
    GET_TOPIC: "read the topic",
    GET_CONSUMER_GROUPS: "list consumer groups",
}
_KINDS: Mapping[ReaderKind, int] = {"consumer": 1, "group": 2}
_NUMBER, _NAME = 1, 2
_BY_OFFSET, _IS_GIVEN, _NOTHING_STORED = 1, 1, 0
_READER = 1
"""The number of the consumer in whose name messages are polled; no offset is stored for it."""
_TOPIC = struct.Struct("<IQIQBQQQ")
_PARTITION = struct.Struct("<IQIQQQ")
_GROUP = struct.Struct("<III")
_OFFSET = struct.Struct("<IQQ")
_U32 = struct.Struct("<I")


@dataclass(frozen=True)
class PartitionInfo:
    """A partition of a server's topic."""

    number: int
    created_us: int
    """The time of its creation, microseconds since the epoch; a purge of the topic does not change it."""
    segments: int
    end: int
    """The offset after the last message; 0 for a partition that has none, after a purge too."""
    messages: int
    bytes: int


@dataclass(frozen=True)
class TopicInfo:
    """A server's topic."""

    id: int
    created_us: int
    name: str
    message_expiry: int
    """Microseconds, 2^64 - 1 for never."""
    max_topic_size: int
    """Bytes, 2^64 - 1 for unlimited."""
    options: Mapping[Value, Value]
    """The other settings by name, those that the server chose among them."""
    partitions: tuple[PartitionInfo, ...]

    @property
    def segment_size(self) -> int | None:
        """The bytes at which a segment is full; None: the server does not tell."""
        size = self.options.get("segment_size")
        return size if isinstance(size, int) else None


@dataclass(frozen=True)
class GroupInfo:
    """A consumer group of a server's topic."""

    id: int
    name: str


def name_of_request(code: int) -> str:
    """A request in words, for errors."""
    return _NAMES[code]


def topic_request(stream: str, topic: str) -> bytes:
    """The body of `GetTopic`, and of `GetConsumerGroups`."""
    return _identifier(stream) + _identifier(topic)


def poll_request(stream: str, topic: str, partition: int, offset: int, count: int) -> bytes:
    """The body of `PollMessages` from an offset on, without a stored offset."""
    where = _reader("consumer", _READER) + topic_request(stream, topic) + _at(partition)
    return where + struct.pack("<BQIB", _BY_OFFSET, offset, count, _NOTHING_STORED)


def offset_request(
    stream: str, topic: str, partition: int, kind: ReaderKind, reader: str | int
) -> bytes:
    """The body of `GetConsumerOffset`."""
    return _reader(kind, reader) + topic_request(stream, topic) + _at(partition)


def topic_answer(answer: bytes, place: str) -> TopicInfo:
    """The topic in an answer to `GetTopic`.

    Raises:
        DamagedError: it is not an answer of a 0.9 server.
    """
    try:
        id_, created, count, expiry, _, most, _, _ = _TOPIC.unpack_from(answer)
        name, at = _text(answer, _TOPIC.size)
        options: dict[Value, Value] = {}
        for _ in range(2):
            block, at = _block(answer, at)
            options |= {key.value: value.value for key, value in user_headers.parse(block)}
        partitions = tuple(
            _partition(*_PARTITION.unpack_from(answer, at + nth * _PARTITION.size))
            for nth in range(count)
        )
    except (struct.error, ValueError, IndexError) as error:
        raise DamagedError(
            f"{place}: the server's description of the topic cannot be read ({error}); nothing was taken; the server "
            "must be of version 0.9"
        ) from error
    return TopicInfo(id_, created, name, expiry, most, options, partitions)


def groups_answer(answer: bytes) -> list[GroupInfo]:
    """The groups in an answer to `GetConsumerGroups`."""
    groups, at = [], 0
    while at < len(answer):
        id_, _, _ = _GROUP.unpack_from(answer, at)
        name, at = _text(answer, at + _GROUP.size)
        groups.append(GroupInfo(id_, name))
    return groups


def offset_answer(answer: bytes) -> int | None:
    """The offset in an answer to `GetConsumerOffset`; None: none is stored."""
    return int(_OFFSET.unpack_from(answer)[2]) if answer else None


def _partition(
    number: int, created: int, segments: int, last: int, size: int, messages: int
) -> PartitionInfo:
    end = last + 1 if last or messages else 0
    return PartitionInfo(number, created, segments, end, messages, size)


def _reader(kind: ReaderKind, reader: str | int) -> bytes:
    return bytes([_KINDS[kind]]) + _identifier(reader)


def _identifier(name: str | int) -> bytes:
    if isinstance(name, int):
        return bytes([_NUMBER, _U32.size]) + _U32.pack(name)
    text = name.encode()
    return bytes([_NAME, len(text)]) + text


def _at(partition: int) -> bytes:
    return struct.pack("<BI", _IS_GIVEN, partition)


def _text(answer: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + answer[at]
    return answer[at + 1 : end].decode(), end


def _block(answer: bytes, at: int) -> tuple[bytes, int]:
    begin = at + _U32.size
    end = begin + int(_U32.unpack_from(answer, at)[0])
    return answer[begin:end], end
