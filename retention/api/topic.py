"""One topic of the Python API: publishing to its partitions, segments, stored offsets and logs of a server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from retention.api.log import BoundPlan, Log
from retention.api.stream import Stream
from retention.context.topic import refuse_partition
from retention.core.accepted_times import accepted_times
from retention.core.arguments import checked_class
from retention.core.display import DisplayedList
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

if TYPE_CHECKING:
    from retention.ingest.sync.iggy.result import TopicSynced
    from retention.ingest.sync.iggy.session import TopicSyncOptions


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
                `payload`, and optionally the others; dicts with the keys of either.
            writer: with `batch`, makes the batch exactly once.
            batch: a number that rises with every batch of the writer; a number not above the last writes nothing.
            leave_out: called with the refused lines (`line`, `reason`, `code`) before the others are committed; without
                it the first one refuses the batch.
            any_time: accept times before 1990, which are otherwise refused as being in a wrong unit, such as
                milliseconds in `ts_ns`.

        Raises:
            UsageError: a line, or row, is not a message, or its time is refused; the error gives its number.
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
        """Import the directory of one topic of an Iggy server into this topic, which must never have been written to.

        Args:
            directory: `streams/<id>/topics/<id>` of the server's data directory; it is only read.
            era: of the server that wrote it, `0.8` or `0.9`; None: detected by its checksums.
            allow_damaged: skip damaged parts instead of refusing the whole directory.

        Raises:
            UsageError: it is not such a directory, or its logs are of another era.
            DamagedError: a part of it is damaged.
            RefusedError: the topic contains, or contained, other messages.
        """
        with Engines(self.engine) as engines:
            return import_iggy_log(
                self.opened, str(directory), engines, era, allow_damaged=allow_damaged
            )

    def sync(self, options: TopicSyncOptions | None = None) -> TopicSynced:
        """Bring the topic up to the last offsets that its server has now; it has `sync` in its configuration.

        Args:
            options: the connection and the bounds, `retention.ingest.sync.iggy.session.TopicSyncOptions`; None: those
                of the configuration.

        Raises:
            UsageError: it has no `sync`, an option is wrong, or Iggy's client is not installed.
            RefusedError: the server's topic is another one than before, refuses the user, or removed more messages
                before they were copied than may be missed. Earlier batches are kept.
            DamagedError: the server's answer has a wrong checksum.
            StorageError: the server cannot be reached.
            BusyError: another sync of the topic runs.
        """
        from retention.ingest.sync.iggy.session import OPTIONS, sync_topic

        return sync_topic(self.opened, options or OPTIONS)

    def delete_segments(self, partition: int, count: int) -> BoundPlan:
        """Plan the removal of a partition's oldest sealed segments; `apply` of the plan carries it out.

        Segments that a consumer or a group has not read are kept; with `profile: modern` a later pass removes them once
        they are read.

        Args:
            partition: the partition.
            count: the number of segments.

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
        """The stored offsets of all readers."""
        return DisplayedList(offset_infos(self.opened))

    def store_offset(
        self, partition: int, kind: ReaderKind, name: str | int, offset: int
    ) -> OffsetInfo:
        """Store a reader's offset; messages that all readers have read are no longer protected.

        Args:
            partition: the partition read.
            kind: `consumer` or `group`.
            name: a consumer's name, or the number by which the server identifies the reader.
            offset: of the last message read; it may be lower than before.

        Raises:
            UsageError: there is no such message yet, or no such partition, or the name is not valid.
            BusyError: other readers kept storing offsets first.
        """
        reader = reader_of(partition, kind, name)
        store_offset(self.opened, reader, offset)
        return offset_info(self.opened, reader)

    def get_offset(self, partition: int, kind: ReaderKind, name: str | int) -> OffsetInfo:
        """A reader's stored offset.

        Raises:
            UsageError: no reader of that name has stored one.
        """
        return offset_info(self.opened, reader_of(partition, kind, name))

    def delete_offset(self, partition: int, kind: ReaderKind, name: str | int) -> None:
        """Delete a reader's stored offset: no message is protected for it any more.

        Raises:
            UsageError: no reader of that name has stored one.
        """
        delete_offset(self.opened, reader_of(partition, kind, name))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise an error for methods that only streams have; it states why topics lack them."""
            if not hasattr(Stream, name):
                raise AttributeError(f"a topic has no attribute {name!r}")
            return getattr(Stream(self.opened, self.engine), name)
