"""Publishing JSON lines to a topic as Iggy's server accepts messages: all of them, or none with the first reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.context.topic import topic_of
from retention.core.accepted_times import ALL_TIMES, AcceptedTimes
from retention.core.spans import Array
from retention.core.wording import counted
from retention.datafile.segment_writer import Staged, write_segments
from retention.dialects.iggy import Iggy
from retention.dialects.iggy_checks import TopicRefusal, refusals_of, sizes_of
from retention.errors import RefusedError
from retention.formats.iggy.lines import parse_sent
from retention.formats.jsonl import LeaveOut, Line, SkippedLine, Unread
from retention.ingest.append import appending, refuse_synced
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.publish_checks import Answers
from retention.ingest.published import Ack, Published
from retention.layout.partition_tails import PartitionTails
from retention.layout.partitioner import partition_addresses
from retention.layout.topic_segment_roll import AppendedBatch, accounted_sizes


@dataclass(frozen=True)
class TopicAck(Ack):
    """The acknowledgement of one message of a topic: `seq` is its offset."""

    partition: int


@dataclass(frozen=True, repr=False)
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
        """The outcome of the batch in a few words."""
        if not len(self.partitions):
            return "nothing was new; nothing was written"
        places = "; ".join(
            f"partition {partition}: {first:,} to {last:,}"
            for partition, (first, last) in self.appended.partitions.items()
        )
        return f"{counted(len(self.partitions), 'message')} stored; {places}"


def publish_to_topic(
    opened: OpenedStream,
    lines: Iterable[Line],
    identity: BatchIdentity | None = None,
    leave_out: LeaveOut | None = None,
    times: AcceptedTimes = ALL_TIMES,
) -> TopicPublished:
    """Publish JSON lines as one commit, refusing what Iggy refuses (docs/semantics/topics.md).

    Args:
        opened: the topic; it is created if it does not exist.
        lines: see `formats.iggy.lines`; read to their end before the topic is touched.
        identity: makes the batch exactly once.
        leave_out: receives the refused messages before the others are committed; without it the first one refuses the
            batch.
        times: the producer's times that a line may give.

    Raises:
        UsageError: a line is not a message; the error gives its number. Or this is not a topic.
        RefusedError: a server would refuse a message; the error gives its number and the server's error.
        BusyError: the append lease is held, or other writers kept committing first.
    """
    name, now_ns = topic_of(opened).name, opened.clock()
    if leave_out is None:
        return publish_sent(opened, parse_sent(lines, name, now_ns, times=times), identity)
    unread = Unread()
    sent = parse_sent(lines, name, now_ns, unread, times)
    refusals = list(refusals_of(sent, topic_of(opened).policy()))
    stays = np.ones(sent.num_rows, dtype=bool)
    stays[[refusal.row for refusal in refusals]] = False
    leave_out([*unread.lines, *(_left_out(sent, refusal) for refusal in refusals)])
    return publish_sent(opened, sent.filter(pa.array(stays)), identity)


def _left_out(sent: pa.Table, refusal: TopicRefusal) -> SkippedLine:
    line = sent["line"][refusal.row].as_py()
    return SkippedLine(line, f"{refusal.error}: {refusal.reason}", refusal.code)


def publish_sent(
    opened: OpenedStream, sent: pa.Table, identity: BatchIdentity | None = None
) -> TopicPublished:
    """Publish messages of shape `formats.iggy.lines.SENT`, as `publish_to_topic`."""
    refuse_synced(opened.config)
    dialect = Iggy(opened.name, topic_of(opened).policy())
    refusal = next(refusals_of(sent, dialect.policy), None)
    if refusal is not None:
        raise _error(opened.name, sent, refusal)
    answers, partitions = Answers.plain(0, 0), np.zeros(0, dtype=np.int64)
    with appending(opened, identity) as append:
        for attempt in append.attempts_at_end():
            end = attempt.end
            ends = dialect.ends(end.tail, end.turn, opened.clock())
            assigned = _assign(sent, dialect, ends)
            if any(messages.is_apart for messages in assigned):
                # With rows in several chunks, each `take` would first concatenate all of them.
                sent = sent.combine_chunks()
            stats = [
                row
                for messages in assigned
                for row in write_segments(attempt.staging, messages.pieces(sent, dialect))
            ]
            answers, partitions = _answered(sent, assigned)
            append.commit(Staged.ending_at(stats, ends))
    return TopicPublished(opened.name, answers, append.done, partitions=partitions)


def _answered(sent: pa.Table, assigned: Iterable[_Assigned]) -> tuple[Answers, Array]:
    """The offset and the partition of each message."""
    answers = Answers.plain(0, sent.num_rows)
    partitions = np.zeros(sent.num_rows, dtype=np.int64)
    for messages in assigned:
        partitions[messages.rows] = messages.partition
        answers.seqs[messages.rows] = np.arange(len(messages.rows)) + messages.batches[0].first_seq
    return answers, partitions


def _error(topic: str, sent: pa.Table, refusal: TopicRefusal) -> RefusedError:
    line = sent["line"][refusal.row].as_py()
    return RefusedError(
        f"line {line}: topic {topic} refuses the message (server error {refusal.code}, {refusal.error}): "
        f"{refusal.reason}; nothing of the batch was written; correct or remove that line, and publish again"
    )


@dataclass(frozen=True)
class _Assigned:
    """Messages of one address, in the order of the lines, and their destination."""

    rows: Array
    """The indexes of these messages in the whole batch."""
    partition: int
    batches: Sequence[AppendedBatch]
    """The batches into which the messages are divided, counted from the first of them."""
    sizes: Array
    """int64: the accounted bytes of each message."""

    def pieces(self, sent: pa.Table, dialect: Iggy) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        """Partition and segment, and the rows to store there, shape `FILE_COLUMNS`.

        Args:
            sent: all messages, shape `formats.iggy.lines.SENT`.
            dialect: the topic's.
        """
        for batch in self.batches:
            rows = _rows_at(sent, self.rows[batch.start : batch.end])
            sizes = self.sizes[batch.start : batch.end]
            yield (
                (self.partition, batch.base),
                dialect.stored(rows, self.partition, [batch], sizes),
            )

    @property
    def is_apart(self) -> bool:
        """Whether messages of other addresses are interleaved with these."""
        return bool(len(self.rows)) and int(self.rows[-1] - self.rows[0]) >= len(self.rows)


def _rows_at(sent: pa.Table, places: Array) -> pa.Table:
    """The rows at some ascending indexes; without a copy if they are adjacent."""
    if len(places) and places[-1] - places[0] < len(places):
        return sent.slice(int(places[0]), len(places))
    return sent.take(pa.array(places))


def _assign(sent: pa.Table, dialect: Iggy, ends: PartitionTails) -> list[_Assigned]:
    """Assign offsets to messages, grouped by address.

    Args:
        sent: shape `formats.iggy.lines.SENT`; a server would accept all of them.
        dialect: the topic's.
        ends: the ends of its partitions; they are advanced.
    """
    address = partition_addresses(sent["partition"], sent["key"], dialect.policy.partitions)
    sizes = sizes_of(sent, dialect.policy)
    assigned = []
    for number in np.unique(address).tolist():
        rows = np.flatnonzero(address == number)
        partition, batches = ends.append(number, sizes[rows])
        counted = accounted_sizes(sizes[rows], batches, dialect.policy)
        assigned.append(_Assigned(rows, partition, batches, counted))
    return assigned
