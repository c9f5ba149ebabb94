"""The consumers of one stream in the Python API: show, add, update, remove, fold ack logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from retention.api.pictures import plot_consumers
from retention.api.public import Public
from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.config.stream import StreamConfig
from retention.context.context import OpenedStream
from retention.context.topic import refuse_consumers_of_topic
from retention.core.accepted_times import accepted_times
from retention.core.arguments import checked_class
from retention.core.display import DisplayedList
from retention.engines.select import EngineName, Engines
from retention.errors import RefusedError, UsageError
from retention.formats.ack.sources import open_log
from retention.inspect.consumers import ConsumerInfo, consumer_infos, stored_consumers
from retention.interest.ack_fold import FoldedLog, fold_logs
from retention.interest.edit import delete_consumer, put_consumers
from retention.plots.picture import Picture
from retention.stores.consumer_table import ConsumerRecord, no_consumer


@checked_class
@dataclass(frozen=True, repr=False)
class StreamConsumers(Public):
    """The consumers of a stream; their configurations use the server's names and values."""

    opened: OpenedStream
    engine: EngineName | None = None
    """The engine, which overrides the configuration's; None: the configuration's."""

    def __post_init__(self) -> None:
        """Refuse topics: their readers store offsets.

        Raises:
            UsageError: it is a topic.
        """
        refuse_consumers_of_topic(self.opened.config)

    def list(self) -> list[ConsumerInfo]:
        """All consumers, by name."""
        return DisplayedList(consumer_infos(self.opened, stored_consumers(self.opened)))

    def info(self, name: str) -> ConsumerInfo:
        """One consumer.

        Raises:
            UsageError: there is no consumer of that name.
        """
        [info] = consumer_infos(self.opened, [self._record(name)])
        return info

    def plot(self) -> Picture:
        """Draw the messages that each consumer still needs, and those that a pass now would hold back for it.

        Raises:
            UsageError: matplotlib is not installed here.
            RefusedError: the state of a consumer contradicts itself.
        """
        return plot_consumers(self.opened, self.list(), self.engine)

    def require(self, name: str) -> None:
        """Verify that a consumer exists, without counting its pending messages.

        Raises:
            UsageError: there is no consumer of that name.
        """
        self._record(name)

    def add(self, config: Mapping[str, object]) -> ConsumerInfo:
        """Create a consumer; an identical existing one is kept (CONSUMER.CREATE, action create).

        Raises:
            UsageError: the configuration cannot be read.
            RefusedError: a server would refuse it, or another consumer has that name.
        """
        wanted = parsed(config)
        known = self._records().get(wanted.name)
        if known is not None and not _is_same(known, wanted, self.opened.config):
            raise RefusedError(
                f"{self.opened.name}: consumer {wanted.name} exists already, with another configuration (error code "
                "10148); nothing was changed; update it, or name another consumer"
            )
        return self._put(wanted)

    def update(self, config: Mapping[str, object]) -> ConsumerInfo:
        """Edit a consumer (CONSUMER.CREATE, action update).

        Raises:
            UsageError: there is no consumer of that name, or the configuration cannot be read.
            RefusedError: a server would refuse it.
        """
        wanted = parsed(config)
        self.require(wanted.name)
        return self._put(wanted)

    def remove(self, name: str) -> None:
        """Delete a consumer; the next pass may remove messages that only this consumer needed.

        Raises:
            UsageError: there is no consumer of that name.
        """
        delete_consumer(self.opened, name)

    def fold(
        self, *logs: str, name: str | None = None, any_time: bool = False
    ) -> Sequence[FoldedLog]:
        """Fold ack logs into the consumers' states, each line once.

        Args:
            logs: JSON lines, Parquet files, directories of them, or Delta tables; local or `s3://`.
            name: the name of a single log, which identifies it at any location; by default its location.
            any_time: accept acks of messages from before 1990, whose times are probably in a wrong unit.

        Raises:
            UsageError: a log cannot be read, or a time in it is refused.
            RefusedError: a log does not begin as it did before, or is ahead of the stream.
            BusyError: a consumer was changed concurrently.
        """
        if name is not None and len(logs) != 1:
            raise UsageError(
                f"{self.opened.name}: {name} names one log, and {len(logs)} are given; fold them one by one"
            )
        times = accepted_times(any_time=any_time)
        with Engines(self.engine) as engines:
            opened = [open_log(log, name, times) for log in logs]
            return DisplayedList(fold_logs(self.opened, opened, engines))

    def __repr__(self) -> str:
        return f"consumers of {self.opened.name}"

    def _repr_html_(self) -> str:
        return DisplayedList(self.list())._repr_html_()

    def _put(self, wanted: ConsumerConfig) -> ConsumerInfo:
        put_consumers(self.opened, [wanted])
        return self.info(wanted.name)

    def _records(self) -> dict[str, ConsumerRecord]:
        return {record.consumer: record for record in stored_consumers(self.opened)}

    def _record(self, name: str) -> ConsumerRecord:
        record = self._records().get(name)
        if record is None:
            raise no_consumer(self.opened.name, name)
        return record


def parsed(config: Mapping[str, Any]) -> ConsumerConfig:
    """Parse a consumer's configuration, which uses the server's names.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return ConsumerConfig(**config)
    except (ValidationError, TypeError) as error:
        wrong = error.errors()[0] if isinstance(error, ValidationError) else {"msg": str(error)}
        where = ".".join(map(str, wrong.get("loc", ())))
        raise UsageError(
            f"{where or 'the consumer'}: {wrong['msg']}; nothing was changed; give the `config` that `nats "
            "consumer info --json` prints, or its fields"
        ) from error


def _is_same(known: ConsumerRecord, wanted: ConsumerConfig, stream: StreamConfig) -> bool:
    return with_server_defaults(ConsumerConfig(**known.config), stream) == with_server_defaults(
        wanted, stream
    )
