"""A warehouse: its streams, and operations on several of them at one instant."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from retention.api.audit import Audit
from retention.api.copying import Copying
from retention.api.holding import Holding
from retention.api.maintenance import Maintenance
from retention.api.pausing import Pausing
from retention.api.public import Public
from retention.api.reports import Reports
from retention.api.run_history import RunHistory
from retention.api.table_passes import TablePasses
from retention.api.warehouse_picture import WarehousePicture
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.config import Config, StreamConfig
from retention.config.discovery import (
    find_config,
    refuse_missing,
    table_error,
    unknown_stream_error,
)
from retention.config.shared_directories import (
    Mounts,
    links_of,
    mounts,
    refuse_mounted,
    refuse_shared,
)
from retention.context.context import OpenedStream
from retention.core.arguments import checked, checked_class
from retention.core.bucket_names import stream_of
from retention.core.outcomes import Outcome, Watch, act_concurrently, act_sequentially
from retention.core.subjects import path_name
from retention.core.units import parse_as_of
from retention.engines.select import EngineName, Engines
from retention.errors import RetentionError, UsageError
from retention.errors.printable import visible
from retention.history.report import RunReport
from retention.plan.plan import Plan
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.stores import store_settings, stream_table
from retention.stores.layout import refuse_foreign_directory, refuse_links_out
from retention.stores.topic_settings import settled
from retention.views.notebook_progress import show_in_notebook
from retention.views.outcomes import Outcomes

if TYPE_CHECKING:
    from retention.api.bucket import Bucket
    from retention.api.log import Log
    from retention.api.repairs import Instant
    from retention.api.stream import Stream
    from retention.api.table import Table
    from retention.api.topic import Topic
    from retention.delivery.consumer import BatchConsumer
    from retention.ports import UnopenedTable
    from retention.views.notebook import ShownStats


@checked_class
class Warehouse(
    Public,
    Maintenance,
    Pausing,
    Holding,
    Copying,
    RunHistory,
    TablePasses,
    Audit,
    WarehousePicture,
    Reports,
):
    """The streams under one directory or object-store prefix, and their configuration."""

    def __init__(
        self,
        config: Config,
        clock: Callable[[], int],
        engine: EngineName | None = None,
        wait_s: float = 0.0,
    ) -> None:
        """Store the configuration and the clock; nothing is opened yet.

        Args:
            config: the warehouse's configuration.
            clock: the wall clock, nanoseconds since the epoch.
            engine: overrides each stream's configured engine.
            wait_s: how long to wait for another maintainer of a stream to end, in seconds.
        """
        self.config = config
        self.clock = clock
        self.engine: EngineName | None = engine
        self._since_ns = clock()
        self._wait_s = wait_s
        self._located: dict[str, str] = {}

    @cached_property
    def _mounts(self) -> Mounts:
        """The mounts of the parts of all streams, read once for all of them."""
        return {} if files.is_remote(self.location) else mounts(self.location, self.streams())

    def log(self, name: str) -> Log:
        """A stream or topic that the configuration names, or that was written to.

        Raises:
            UsageError: there is no log of that name.
        """
        self._refuse_unknown(name)
        return self._log(name)

    def stream(self, name: str) -> Stream:
        """A stream, as `log` returns it; the name of a topic gives the topic, without the methods of streams.

        Raises:
            UsageError: there is no log of that name.
        """
        return cast("Stream", self.log(name))

    def new_stream(self, name: str) -> Stream:
        """A stream that the first write creates if it does not exist; the name of a topic gives the topic.

        Raises:
            ConfigError: the name is not valid for a stream.
            RefusedError: a symbolic link leads out of the warehouse.
        """
        return cast("Stream", self._log(name))

    def kv(self, bucket: str) -> Bucket:
        """A key-value bucket that the first put creates if it does not exist.

        Args:
            bucket: its name; the stream that keeps it is named `KV_` plus this name.

        Raises:
            UsageError: the name is not valid for a bucket, or it is a topic.
            RefusedError: a symbolic link leads out of the warehouse.
        """
        from retention.api.bucket import Bucket

        return Bucket(self.new_stream(stream_of(bucket)))

    def topic(self, name: str) -> Topic:
        """A topic that the configuration lists.

        Raises:
            UsageError: it lists none of that name.
            RefusedError: a symbolic link leads out of the warehouse.
        """
        from retention.api.topic import Topic
        from retention.context.topic import topic_of

        opened = self._open(name)
        topic_of(opened)
        return Topic(opened, self.engine)

    def table(self, name: str) -> Table:
        """A table in place that the configuration lists.

        Raises:
            UsageError: it lists none of that name, or a stream has it, too.
        """
        from retention.api.catalog_names import directory_of_table
        from retention.api.table import Table, unknown_table_error
        from retention.tables.opened import OpenedTable

        config = next((table for table in self.config.tables if table.name == name), None)
        if config is None:
            raise unknown_table_error(name, self.tables())
        if name not in self._located:
            if name in self.streams():
                raise UsageError(
                    f"{name}: the table has the name of a stream that was written to {self.location}, and commands "
                    "cannot tell them apart; nothing was changed; give the table another name in its configuration"
                )
            self._located[name] = directory_of_table(config, self.engine)
        opened = OpenedTable(
            name,
            self._located[name],
            config.policy,
            self.location,
            self.clock,
            self._wait_s,
            config,
            self._since_ns,
            config.exclusive,
            config.evidence,
            format=config.format,
            holds=config.holds,
            file=str(self.config.file or ""),
            ledger=self.config.ledger,
        )
        return Table(opened, config, self.engine)

    def topic_stats(self, names: Iterable[str] | None = None) -> ShownStats:
        """Totals of topics (all of the configuration, if `names` is None), by partition, topic and Iggy's stream.

        Raises:
            UsageError, RefusedError, DamagedError: one is not a topic, or cannot be read.
        """
        from retention.views.notebook import stats_of

        return stats_of(map(self._known, self._named(names, among=self.topics())))

    def subscribe(
        self,
        subject: str = "",
        *,
        stream: str = "",
        consumer: str = "",
        queue: str = "",
        pull: bool = True,
        config: Mapping[str, object] | None = None,
    ) -> BatchConsumer:
        """Process the messages of a subject: on the one stream that accepts it, with an existing or a new consumer.

        Args:
            subject: the wanted subject; optional with `stream`, where it defaults to everything.
            stream: its name, if the subject alone is ambiguous.
            consumer: its name; without one the consumer is private, and deleted at the end of a `with` block.
            queue: the name of the group that shares the work, and of its consumer.
            pull: False is refused with the reason why push is not available.
            config: the configuration of a new consumer, or the one that an existing consumer must have, with the
                server's names.

        Raises:
            UsageError: no stream accepts the subject, or several do; or the configuration cannot be read.
            RefusedError: a client must not request this (ADR-15), or a server would refuse the consumer.
        """
        from retention.api.stream_consumers import parsed
        from retention.consumers.subscription import Subscription
        from retention.delivery.subscribe import subscribe

        consumer_config = None if config is None else parsed(config)
        wanted = Subscription(subject, stream, consumer, queue, pull, consumer_config)
        listed = [entry.name for entry in self.config.streams if entry.topic is None]
        names = [name for name in self.streams() if name == stream] if stream else listed
        return subscribe(wanted, [self._open(name) for name in names])

    def plan(
        self, names: Iterable[str] | None = None, as_of: Instant = None, watch: Watch | None = None
    ) -> list[Outcome[Plan]]:
        """Plan one pass over streams (all, if `names` is None), all of them at one instant."""
        from retention.planners.shown import plan_stream

        instant = self.instant(as_of)
        with Engines(self.engine) as engines:

            def act(name: str) -> Plan:
                return plan_stream(self._known(name), instant, engines)

            at_a_time = files.streams_at_once(self.location)
            return Outcomes(act_concurrently(self._named(names), act, self.clock, at_a_time, watch))

    def apply(
        self,
        names: Iterable[str] | None = None,
        as_of: Instant = None,
        guards: Guards | None = None,
        watch: Watch | None = None,
    ) -> list[Outcome[RunReport]]:
        """Plan and apply one pass over streams (all, if `names` is None), all of them at one instant."""
        instant = self.instant(as_of)
        with Engines(self.engine) as engines:

            def act(name: str) -> RunReport:
                return apply_now(self._known(name), instant, engines, guards or Guards())

            return Outcomes(act_sequentially(self._named(names), act, self.clock, watch))

    def apply_plans(
        self, plans: Iterable[Plan], guards: Guards | None = None, watch: Watch | None = None
    ) -> list[Outcome[RunReport]]:
        """Apply saved plans, unchanged."""
        from retention.apply.saved_plan import apply_plan

        by_name = {plan.header.stream: plan for plan in plans}
        refuse_missing(self.config)
        with Engines(self.engine) as engines:

            def act(name: str) -> RunReport:
                opened = self._known(name)
                return apply_plan(opened, by_name[name], engines, guards or Guards())

            return Outcomes(act_sequentially(by_name, act, self.clock, watch))

    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None: the clock's."""
        return self.clock() if as_of is None else parse_as_of(as_of, self.clock())

    def _log(self, name: str) -> Log:
        # The stream API is more than a scheduled pass needs, and slow to import.
        from retention.api.stream import Stream

        opened = self._open(name)
        return Stream(opened, self.engine) if opened.config.topic is None else self.topic(name)

    def _known(self, name: str) -> OpenedStream:
        self._refuse_unknown(name)
        return self._open(name)

    def _refuse_unknown(self, name: str) -> None:
        if not self.has(name):
            refuse_missing(self.config)
            if name in self.tables():
                raise table_error(name)
            raise unknown_stream_error(name, self.streams(), self.location, self.tables())

    def _open(self, name: str) -> OpenedStream:
        if name in self.tables():
            raise table_error(name)
        root = files.join(self.location, "streams", path_name(name))
        links = links_of(root)
        refuse_links_out(root, name, links)
        refuse_shared(self.location, name, links)
        refuse_mounted(self.location, name, self._mounts)
        refuse_foreign_directory(root, name)
        listed = self.config.stream(name)
        config = listed or self._unlisted(name, root)
        table = stream_table(root, name, store_settings(config), self.clock)
        config = config if _is_dropped_topic(config, table) else settled(root, config)
        return OpenedStream(
            name,
            config,
            table,
            root,
            self.location,
            self.clock,
            self._since_ns,
            self._wait_s,
            self.config.owner,
            listed is not None,
            self.config.ledger,
        )

    def _may_hold_table(self, name: str) -> bool:
        # A table that cannot be read is not known to be empty.
        with suppress(RetentionError):
            return self._open(name).table.exists()
        return True

    def _unlisted(self, name: str, root: str) -> StreamConfig:
        """The configuration of an unlisted stream: it keeps its stored format."""
        config = self.config.default_stream(name)
        content = files.read_bytes(files.join(root, "_retention", "format.json")) or b""
        # The store refuses a format file that cannot be read.
        with suppress(ValueError, KeyError, TypeError):
            return config.model_copy(update={"format": parse_json(content)["format"]})
        return config

    def __repr__(self) -> str:
        return visible(f"Warehouse({self.location!r}: {', '.join(self.streams()) or 'no streams'})")


def _is_dropped_topic(config: StreamConfig, table: UnopenedTable) -> bool:
    """Whether it is a dropped topic: the settings that it was created with no longer bind the next one."""
    if config.topic is None:
        return False
    # A table that cannot be read is refused where it is used.
    with suppress(RetentionError):
        return table.lifetime().dropped_ns is not None
    return False


@checked
def open_warehouse(
    path: str | Path,
    *,
    engine: EngineName | None = None,
    clock: Callable[[], int] = time.time_ns,  # noqa: TID251  (an interactive caller has no job's clock)
    wait_s: float = 0.0,
) -> Warehouse:
    """Open a warehouse by its configuration file, or by its directory.

    Args:
        path: `retention.yaml`, a directory that may hold one, or an `s3://` location.
        engine: overrides each stream's configured engine.
        clock: the wall clock, nanoseconds since the epoch.
        wait_s: how long to wait, in seconds, for another run on a stream to end.

    Raises:
        ConfigError: the configuration is not valid; every error is reported with its line.
    """
    show_in_notebook()
    return Warehouse(find_config(path), clock, engine, wait_s)
