"""Publishing JSON lines to a topic as Iggy's server takes messages: all of them, or none with the first reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.context.topic_tail import TopicPosition, locate_topic
from retention.core.spans import Array
from retention.core.topic_policy import TopicPolicy
from retention.core.units import MICROSECOND
from retention.datafile.segment_writer import Staging
from retention.errors import RefusedError
from retention.formats.iggy.lines import parse_sent
from retention.ingest.append import Draft, append_drafts
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.publish import Ack, Published
from retention.ingest.publish_checks import Answers
from retention.ingest.topics.batches import TopicAttempt, draft_of, stage_send
from retention.ingest.topics.validate import TopicRefusal, first_refusal, sizes_of
from retention.layout.partition_tails import TopicEnds
from retention.layout.partitioner import addresses
from retention.layout.topic_segment_roll import with_headers


@dataclass(frozen=True)
class TopicAck(Ack):
    """Where one message of a topic lies: `seq` is its offset."""

    partition: int


@dataclass(frozen=True)
class TopicPublished(Published):
    """The answer to a batch for a topic."""

    partitions: Array = field(kw_only=True)
    """int64: the partition of each message."""

    def acks(self) -> Iterator[TopicAck]:
        """An ack for each message, in the order of the lines; none is a duplicate."""
        for seq, partition in zip(
            self.answers.seqs.tolist(), self.partitions.tolist(), strict=True
        ):
            yield TopicAck(self.stream, seq, duplicate=False, partition=partition)

    def summary(self) -> str:
        """What became of the batch, in a few words."""
        if not len(self.partitions):
            return "nothing was new; nothing was written"
        places = "; ".join(
            f"partition {partition}: {first:,} to {last:,}"
            for partition, (first, last) in self.appended.partitions.items()
        )
        return f"{len(self.partitions):,} messages stored; {places}"


def publish_to_topic(
    opened: OpenedStream,
    lines: Iterable[bytes | str],
    identity: BatchIdentity | None = None,
) -> TopicPublished:
    """Publish JSON lines as one commit, refusing what Iggy refuses (docs/semantics/topics.md).

    Args:
        opened: the topic; it is created if it does not exist.
        lines: see `formats.iggy.lines`; read to their end before the topic is touched.
        identity: makes the batch exactly once.

    Raises:
        UsageError: a line is no message, and is named by its number; or this is no topic.
        RefusedError: a server would refuse a message; it is named by its number and the server's error.
        BusyError: the append lease is held, or rivals kept committing first.
    """
    policy = topic_of(opened).policy()
    sent = parse_sent(lines, opened.name, opened.clock())
    refusal = first_refusal(sent, policy)
    if refusal is not None:
        raise _error(opened.name, sent, refusal)
    sending = _Sending(opened, sent, policy)
    appended = append_drafts(
        opened, lambda: TopicAttempt(locate_topic(opened), sending.stage), identity
    )
    answers, partitions = sending.answers, sending.partitions
    if appended.duplicate:
        answers, partitions = Answers.plain(0, 0), partitions[:0]
    return TopicPublished(opened.name, answers, appended, partitions=partitions)


class _Sending:
    """Messages that are appended, and where the last attempt put them."""

    def __init__(self, opened: OpenedStream, sent: pa.Table, policy: TopicPolicy) -> None:
        self._opened = opened
        self._sent = sent
        self._policy = policy
        self._addresses = addresses(sent["partition"], sent["key"], policy.partitions)
        self._sizes = sizes_of(sent, policy)
        self.answers = Answers.plain(0, sent.num_rows)
        self.partitions = np.zeros(sent.num_rows, dtype=np.int64)

    def stage(self, position: TopicPosition, staging: Staging) -> Draft:
        """Write the messages behind a position, those of one address together, in the order of the lines."""
        now_us = self._opened.clock() // MICROSECOND
        ends = TopicEnds(position.tail, position.turn, self._policy, now_us)
        stats = []
        for address in np.unique(self._addresses).tolist():
            rows = np.flatnonzero(self._addresses == address)
            sizes = self._sizes[rows]
            partition, batches = ends.append(address, sizes)
            self.partitions[rows] = partition
            self.answers.seqs[rows] = np.arange(len(rows)) + batches[0].first_seq
            counted = with_headers(sizes, batches, self._policy)
            place = self._opened.name, partition
            stats += stage_send(staging, self._sent.take(pa.array(rows)), place, batches, counted)
        return draft_of(position, ends, stats)


def _error(topic: str, sent: pa.Table, refusal: TopicRefusal) -> RefusedError:
    line = sent["line"][refusal.row].as_py()
    return RefusedError(
        f"line {line}: topic {topic} refuses the message (server error {refusal.code}, {refusal.error}): "
        f"{refusal.reason}; nothing of the batch was written; correct or remove that line, and publish again"
    )
