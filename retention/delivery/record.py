"""One consumer's record as its clients change it: each change exactly once, despite concurrent clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from retention.config.consumer import ConsumerConfig
from retention.config.consumer_defaults import with_server_defaults
from retention.consumers.state import ConsumerState
from retention.context.context import OpenedStream
from retention.core.subjects import path_name
from retention.errors import BusyError, RefusedError
from retention.interest.edit import edit_declared
from retention.storage import files
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable, no_consumer
from retention.stores.lease import held

Outcome = TypeVar("Outcome")
Work = Callable[[ConsumerState, ConsumerConfig], tuple[ConsumerState, Outcome]]
"""Function from a state to the next one and the caller's outcome."""

PATIENCE_S = 5.0
REMEMBERED = 64
"""Number of recent changes that a record names, so that a writer can recognize its own change among others."""


class RecordedConsumer:
    """Reader and writer of one consumer's record."""

    def __init__(self, opened: OpenedStream, name: str) -> None:
        """Find the record; if the configuration lists the consumer, it is created.

        Raises:
            UsageError: there is no such consumer.
            RefusedError: the consumer does not support fetching.
        """
        self.name = name
        self._opened = opened
        self._table = ConsumerTable(opened.root, opened.table.lifetime().generation)
        self._place = files.join(opened.root, "_retention", f"consumer-{path_name(name)}.lease")
        if not self._is_there() and name in {consumer.name for consumer in opened.config.consumers}:
            edit_declared(opened)
            self._table = ConsumerTable(opened.root, opened.table.lifetime().generation)
        if not self._is_there():
            raise no_consumer(opened.name, name)
        _refuse_others(opened.name, self.config())

    def read(self) -> ConsumerRecord:
        """Read the newest record.

        Raises:
            UsageError: the consumer no longer exists.
            DamagedError: the record differs from what was written.
        """
        return self._alive(self._table.read(self.name))

    def config(self) -> ConsumerConfig:
        """The consumer's configuration, with the server's defaults for omitted values."""
        return self._config(self.read())

    def change(self, work: Work[Outcome], now_ns: int) -> Outcome:
        """Apply work to the state, record the new state, and return the outcome of the recorded change.

        Work that changes nothing writes nothing, unless the consumer expires when unused.

        Args:
            work: the change; retried on the new record if another client came first.
            now_ns: the instant, which becomes the consumer's last use.

        Raises:
            UsageError: the consumer no longer exists.
            BusyError: other clients kept coming first.
        """
        change_id = uuid.uuid4().hex
        outcomes: list[Outcome] = []

        def apply_once(current: ConsumerRecord | None) -> ConsumerRecord:
            record = self._alive(current)
            if change_id in record.changes:
                return record
            config = self._config(record)
            state, outcome = work(record.state, config)
            outcomes.append(outcome)
            if state == record.state and not config.inactive_threshold:
                return record
            active_ns = max(now_ns, state.last_active_ns or 0)
            newest = dict([*record.changes.items(), (change_id, now_ns)][-REMEMBERED:])
            return replace(record, state=replace(state, last_active_ns=active_ns), changes=newest)

        with self._turn():
            self._table.update(self.name, apply_once)
        return outcomes[-1]

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait for other clients on this machine, to avoid wasted work; the record is what excludes them."""
        with ExitStack() as stack:
            if not files.is_remote(self._opened.root):
                with suppress(BusyError):
                    stack.enter_context(held(self._place, wait_s=PATIENCE_S))
            yield

    def _is_there(self) -> bool:
        if not self._opened.table.exists():
            return False
        counters = self._opened.store.snapshot().counters
        return self.name in {record.consumer for record in self._table.live(counters)}

    def _alive(self, record: ConsumerRecord | None) -> ConsumerRecord:
        if record is None or record.deleted:
            raise no_consumer(self._opened.name, self.name)
        return record

    def _config(self, record: ConsumerRecord) -> ConsumerConfig:
        return with_server_defaults(ConsumerConfig(**record.config), self._opened.config)


def _refuse_others(stream: str, config: ConsumerConfig) -> None:
    """Refuse consumers that do not support fetching: push, flow control, priorities."""
    why = None
    if config.is_push:
        why = f"pushes its messages to {config.deliver_subject}, and a batch was requested"
    elif config.ack_policy == "flow_control":
        why = "has ack_policy flow_control, by which another stream takes its messages"
    elif config.priority_policy != "none":
        why = f"has priority_policy {config.priority_policy}, and batches are not ranked"
    if why:
        raise RefusedError(f"{stream}: consumer {config.name} {why}; name another consumer")
