"""One topic as a person holds it: publishing to its partitions, segments, stored offsets and logs of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from retention.api.log import BoundPlan, Log
from retention.api.stream import Stream
from retention.context.topic import refuse_partition
from retention.core.accepted_times import accepted_times
from retention.core.arguments import checked_class
from retention.engines.select import Engines
from retention.formats.iggy.era import EraName
from retention.formats.jsonl import Given, LeaveOut, open_lines
from retention.ingest.idempotency import batch_identity
from retention.ingest.topics.import_log import TopicImported, import_iggy_log
from retention.ingest.topics.publish import TopicPublished, publish_to_topic
from retention.inspect.messages import Selection
from retention.inspect.offsets import OffsetInfo, offset_info, offset_infos
from retention.inspect.topic_messages import newest_messages
from retention.interest.commit_offsets import delete_offset, store_offset
from retention.rules.iggy.delete_segments import delete_segments_request
from retention.stores.offset_table import ReaderKind, reader_of
from retention.views.notebook import ShownMessages


@checked_class
class Topic(Log):
    """A topic of a warehouse."""

    def publish(
        self,
        lines: Given,
        writer: str | None = None,
        batch: int | None = None,
        leave_out: LeaveOut | None = None,
        *,
        any_time: bool = False,
    ) -> TopicPublished:
        """Publish messages as one commit: all of them, or none with the reason.

        Args:
            lines: JSON lines or the `Path` of a file of them, objects with `data` or `data_b64`, `partition` or `key`,
                `headers`, `id`, `origin_ts_ns`; a frame of pandas, Polars or DuckDB, or an Arrow table, with columns
                `payload`, and if there are the others; dicts with the keys of either.
            writer: with `batch`, makes the batch exactly once.
            batch: a number that rises with every batch of the writer; one not above the last writes nothing.
            leave_out: called with the lines that are refused (`line`, `reason`, `code`) before the others are
                committed; without it the first one refuses the batch.
            any_time: take times before 1990, too, which are refused because they are plainly in another unit, such as
                milliseconds in `ts_ns`.

        Raises:
            UsageError: a line, or row, is no message, or its time is refused; it is named by its number.
            RefusedError: a server would refuse a message.
        """
        identity = batch_identity(writer, batch)
        with open_lines(lines) as source:
            return publish_to_topic(
                self.opened, source, identity, leave_out, accepted_times(any_time=any_time)
            )

    def import_iggy_log(
        self, directory: str | Path, era: EraName | None = None, *, allow_damaged: bool = False
    ) -> TopicImported:
        """Import the directory of one topic of an Iggy server into this topic, which must never have held anything.

        Args:
            directory: `streams/<id>/topics/<id>` of the server's data directory; it is only read.
            era: of the server that wrote it, `0.8` or `0.9`; None: found out by its checksums.
            allow_damaged: leave out what is damaged instead of refusing all of it.

        Raises:
            UsageError: it is no such directory, or its logs are of another era.
            DamagedError: something in it is damaged.
            RefusedError: the topic holds, or held, something else.
        """
        with Engines(self.engine) as engines:
            return import_iggy_log(
                self.opened, str(directory), engines, era, allow_damaged=allow_damaged
            )

    def delete_segments(self, partition: int, count: int) -> BoundPlan:
        """Plan the removal of a partition's oldest sealed segments; `apply` of the plan carries it out.

        What a consumer or a group has not read stays; with `profile: modern` a later pass takes it as soon as it is.

        Args:
            partition: the partition.
            count: how many of its segments.

        Raises:
            UsageError: there is no such partition, or the count is out of range.
        """
        return self._removal(delete_segments_request(partition, count))

    def newest(self, count: int = 20, partition: int = 0) -> ShownMessages:
        """The newest messages of a partition, shown with typed user headers; `to_pandas()` makes a data frame of them.

        Raises:
            UsageError: there is no such partition.
            DamagedError: a file cannot be read.
        """
        refuse_partition(self.opened, partition)
        newest = newest_messages(self.opened, Selection(partition=partition, last=count))
        return ShownMessages(**vars(newest))

    def offsets(self) -> list[OffsetInfo]:
        """The stored offsets: how far every reader has read that has said so."""
        return offset_infos(self.opened)

    def store_offset(
        self, partition: int, kind: ReaderKind, name: str | int, offset: int
    ) -> OffsetInfo:
        """Store how far a reader has read; what everybody has read is held back no longer.

        Args:
            partition: what is read.
            kind: `consumer` or `group`.
            name: a consumer's name, or the number by which the server knows who reads.
            offset: of the last message that was read; a lower one than before is taken, too.

        Raises:
            UsageError: there is no such message yet, or no such partition, or the name is none.
            BusyError: others kept storing offsets first.
        """
        reader = reader_of(partition, kind, name)
        store_offset(self.opened, reader, offset)
        return offset_info(self.opened, reader)

    def get_offset(self, partition: int, kind: ReaderKind, name: str | int) -> OffsetInfo:
        """A reader's stored offset: how far it has read.

        Raises:
            UsageError: nobody of that name has said so.
        """
        return offset_info(self.opened, reader_of(partition, kind, name))

    def delete_offset(self, partition: int, kind: ReaderKind, name: str | int) -> None:
        """Forget how far a reader has read: nothing is held back for it any more.

        Raises:
            UsageError: nobody of that name has said so.
        """
        delete_offset(self.opened, reader_of(partition, kind, name))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Let what only streams have say itself why topics have it not."""
            if not hasattr(Stream, name):
                raise AttributeError(f"a topic has no attribute {name!r}")
            return getattr(Stream(self.opened, self.engine), name)
