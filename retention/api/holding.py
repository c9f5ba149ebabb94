"""Legal holds of a warehouse: messages that nothing removes until a person releases them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.api.hold_arguments import Ranges
    from retention.api.repairs import Instant
    from retention.api.table import Table
    from retention.stores.holds import Hold, HoldRecords
    from retention.tables.holds import TableHoldRecords


@checked_class
class Holding(StreamSelection):
    """The part of a warehouse that places legal holds, lists them and releases them."""

    clock: Callable[[], int]

    @abstractmethod
    def table(self, name: str) -> Table:
        """A table in place that the configuration lists."""

    @abstractmethod
    def _known(self, name: str) -> OpenedStream:
        """A stream that the configuration names, or that was written to."""

    def hold(  # noqa: PLR0913  (each is a field of the record)
        self,
        name: str,
        *,
        reason: str,
        subject: str | None = None,
        from_seq: int | None = None,
        to_seq: int | None = None,
        ranges: Ranges | None = None,
        from_time: Instant = None,
        to_time: Instant = None,
        key: Mapping[str, object] | None = None,
        owner: str | None = None,
        until: Instant = None,
    ) -> Hold:
        """Place a legal hold: nothing removes a message or row that matches all given fields, present or future.

        No commit after the return removes such a message or row, but for runs on a table named in `after_runs`.

        Args:
            name: the stream, topic, or table in place.
            reason: kept with the legal hold.
            subject: a subject filter; a topic takes none.
            from_seq: the lowest sequence; of a topic, the lowest offset in each partition.
            to_seq: the highest sequence.
            ranges: pairs of a lowest and a highest sequence, instead of `from_seq` and `to_seq`.
            from_time: the instant at or after which messages were stored; of a table, of its `time` column.
            to_time: the instant before which they were stored.
            key: of a table, column → the value of covered rows: null never matches.
            owner: the person or case to ask about it.
            until: the instant of the wall clock at which it ends, which the first run after it records and reports;
                None: never.

        Raises:
            UsageError: a field is not valid, or there is no such stream or table.
            RefusedError: it is a dropped stream, or one that does not take such a legal hold.
            BusyError: other writers kept coming first.
        """
        from retention.api.hold_arguments import (
            checked_hold,
            checked_ranges,
            place_on_stream,
            place_on_table,
        )

        hold = checked_hold(
            name,
            self.clock(),
            reason=reason,
            subject=subject,
            ranges=checked_ranges(from_seq, to_seq, ranges),
            times=(from_time, to_time, until),
            owner=owner,
        )
        if name in self.tables():
            return place_on_table(self.table(name), hold, key)
        return place_on_stream(self._known(name), hold, key)

    def holds(self, names: Iterable[str] | None = None, *, ended: bool = False) -> list[Hold]:
        """The legal holds of streams and tables (all, if `names` is None), in the order in which they were placed.

        Args:
            names: the streams and tables in place.
            ended: whether released and expired ones are listed too.

        Raises:
            UsageError: there is no such stream.
            DamagedError: a record cannot be read.
        """
        return [hold for name in self._held_names(names) for hold in self._listed(name, ended)]

    def release_hold(self, hold_id: str, *, reason: str) -> Hold:
        """Release a legal hold: later runs remove its messages if a rule or a request does.

        Raises:
            UsageError: there is no such legal hold in effect, or no reason.
            BusyError: other writers kept coming first; the legal hold is released.
        """
        from retention.api.hold_arguments import checked_text
        from retention.context.holds import end_hold, restore_holds
        from retention.tables.holds import TableHoldRecords
        from retention.tables.holds import end_hold as end_on_table

        because = checked_text(reason, "reason")
        for name in self._held_names(None):
            records = self._records(name)
            if isinstance(records, TableHoldRecords):
                records.restore()
            else:
                restore_holds(self._known(name))
            if not records.has(hold_id):
                continue
            hold = next(hold for hold in records.all() if hold.id == hold_id)
            if hold.end is not None:
                raise UsageError(
                    f"{name}: legal hold {hold_id} is {hold.end.kind} already; nothing was changed"
                )
            if isinstance(records, TableHoldRecords):
                return replace(hold, end=end_on_table(records.table, hold, "released", because))
            return replace(hold, end=end_hold(self._known(name), hold, "released", because))
        raise UsageError(
            f"{hold_id}: no stream or table in {self.location} has such a legal hold; `retention hold ls` lists them"
        )

    def _held_names(self, names: Iterable[str] | None) -> list[str]:
        """The streams and tables that a call names."""
        given = None if names is None else list(names)
        if given == []:
            return []
        streams, tables = self.chosen_with_tables(given or (), among=self.streams())
        return [*streams, *tables]

    def _listed(self, name: str, ended: bool) -> list[Hold]:  # noqa: FBT001
        from retention.context.holds import holds_of
        from retention.tables.holds import TableHoldRecords

        records = self._records(name)
        is_table = isinstance(records, TableHoldRecords)
        in_effect = records.in_effect() if is_table else holds_of(self._known(name))
        past = [hold for hold in records.all() if hold.end is not None] if ended else []
        return sorted([*in_effect, *past], key=lambda hold: (hold.at_ns, hold.id))

    def _records(self, name: str) -> HoldRecords | TableHoldRecords:
        from retention.stores.holds import HoldRecords
        from retention.tables.holds import TableHoldRecords

        if name in self.tables():
            return TableHoldRecords(self.table(name).opened)
        return HoldRecords(self._known(name).root, name)
