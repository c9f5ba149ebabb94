"""A topic of a live Iggy server: its description, messages from an offset on, and the offsets of its readers."""

from __future__ import annotations

from dataclasses import dataclass

from retention.errors import UsageError
from retention.formats.iggy.polled import Polled, polled
from retention.iggy import wire
from retention.iggy.connection import Requests
from retention.iggy.wire import GroupInfo, TopicInfo
from retention.stores.offset_table import ReaderKind


@dataclass(frozen=True)
class RemoteTopic:
    """A topic of a server, by the names of its stream and itself."""

    requests: Requests
    stream: str
    topic: str

    @property
    def place(self) -> str:
        """Server, stream and topic, for errors."""
        return f"Iggy server {self.requests.server}, topic {self.topic} of stream {self.stream}"

    def info(self) -> TopicInfo:
        """The topic as it is now.

        Raises:
            UsageError: the server has no such topic.
            RefusedError, StorageError: as `Connection.request`.
        """
        answer = self.requests.request(wire.GET_TOPIC, wire.topic_request(self.stream, self.topic))
        if not answer:
            raise UsageError(
                f"{self.place}: there is no such topic; nothing was taken; name another one"
            )
        return wire.topic_answer(answer, self.place)

    def poll(self, partition: int, first: int, count: int) -> Polled:
        """The messages of a partition from an offset on, at most `count`; a poll has no bound of bytes.

        If older segments were deleted, they begin with the oldest message that there is.

        Raises:
            DamagedError: a checksum is wrong.
            RefusedError, StorageError: as `Connection.request`.
        """
        body = wire.poll_request(self.stream, self.topic, partition, first, count)
        answer = self.requests.request(wire.POLL_MESSAGES, body)
        return polled(answer, partition, first, self.place)

    def groups(self) -> list[GroupInfo]:
        """The consumer groups.

        Raises:
            RefusedError, StorageError: as `Connection.request`.
        """
        body = wire.topic_request(self.stream, self.topic)
        return wire.groups_answer(self.requests.request(wire.GET_CONSUMER_GROUPS, body))

    def stored_offset(self, partition: int, kind: ReaderKind, reader: str | int) -> int | None:
        """The offset of the last message that a reader has read; None: it has stored none.

        Raises:
            RefusedError, StorageError: as `Connection.request`.
        """
        body = wire.offset_request(self.stream, self.topic, partition, kind, reader)
        return wire.offset_answer(self.requests.request(wire.GET_CONSUMER_OFFSET, body))
