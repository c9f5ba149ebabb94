"""Legal holds of a warehouse: messages that nothing removes until a person releases them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from retention.api.selection import StreamSelection
from retention.context.context import OpenedStream
from retention.context.holds import end_hold, holds_of, place_hold, restore_holds
from retention.core.arguments import checked_class
from retention.core.seq_ranges import merged_ranges
from retention.core.subjects import is_valid_filter
from retention.core.units import parse_as_of
from retention.errors import RefusedError, UsageError
from retention.history.initiator import initiator
from retention.schemas.bounds import MAX_SEQ
from retention.stores.holds import Hold, HoldRecords, new_id

if TYPE_CHECKING:
    from retention.api.repairs import Instant
    from retention.api.table import Table
    from retention.tables.holds import TableHoldRecords

Ranges = Sequence[tuple[int, int]] | np.ndarray
"""Pairs of a lowest and a highest sequence, both inclusive."""


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
        now_ns = self.clock()
        hold = Hold(
            name,
            new_id(now_ns),
            _text(reason, "reason"),
            subject,
            _ranges(from_seq, to_seq, ranges),
            _instant(from_time, now_ns),
            _instant(to_time, now_ns),
            _instant(until, now_ns),
            None if owner is None else _text(owner, "owner"),
            now_ns,
            initiator(),
        )
        _check(hold, now_ns)
        if name in self.tables():
            return _on_table(self.table(name), hold, key)
        opened = self._known(name)
        _check_stream(opened, hold, key)
        place_hold(opened, hold)
        return hold

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
        from retention.tables.holds import TableHoldRecords
        from retention.tables.holds import end_hold as end_on_table

        because = _text(reason, "reason")
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
        from retention.tables.holds import TableHoldRecords

        records = self._records(name)
        is_table = isinstance(records, TableHoldRecords)
        in_effect = records.in_effect() if is_table else holds_of(self._known(name))
        past = [hold for hold in records.all() if hold.end is not None] if ended else []
        return sorted([*in_effect, *past], key=lambda hold: (hold.at_ns, hold.id))

    def _records(self, name: str) -> HoldRecords | TableHoldRecords:
        from retention.tables.holds import TableHoldRecords

        if name in self.tables():
            return TableHoldRecords(self.table(name).opened)
        return HoldRecords(self._known(name).root, name)


def _check_stream(opened: OpenedStream, hold: Hold, key: Mapping[str, object] | None) -> None:
    """Refuse a legal hold that a stream cannot have."""
    if key is not None:
        raise RefusedError(
            f"{opened.name}: messages have no columns, so a key cannot name them; nothing was changed; hold them by "
            "subject, sequences or times"
        )
    if hold.subject is not None and opened.config.topic is not None:
        raise RefusedError(
            f"{opened.name}: a topic takes legal holds by offsets and times only, because it has no subjects; nothing "
            "was changed"
        )


def _on_table(table: Table, hold: Hold, key: Mapping[str, object] | None) -> Hold:
    """Place a legal hold on rows of a table."""
    from retention.tables.holds import hold_of_rows, place_hold

    return place_hold(table.opened, hold_of_rows(table.opened, hold, key))


def _check(hold: Hold, now_ns: int) -> None:
    """Refuse a legal hold that covers nothing, or that is not valid."""
    if hold.subject is not None and not is_valid_filter(hold.subject):
        raise UsageError(f"{hold.subject!r} is not a subject filter; nothing was changed")
    if None not in (hold.from_ns, hold.to_ns) and hold.messages.from_ns >= hold.messages.to_ns:
        raise UsageError("a legal hold ends before it begins: no message is stored in that time")
    if hold.is_due(now_ns):
        raise UsageError(
            "until is past, so the legal hold would expire at once; nothing was changed"
        )


def _text(text: str, what: str) -> str:
    if not text.strip():
        raise UsageError(
            f"a legal hold needs text as its {what}, which is kept; nothing was changed"
        )
    return text


def _instant(instant: Instant, now_ns: int) -> int | None:
    return None if instant is None else parse_as_of(instant, now_ns)


def _ranges(from_seq: int | None, to_seq: int | None, ranges: Ranges | None) -> np.ndarray | None:
    """The ranges of a legal hold, merged; None: every sequence.

    Raises:
        UsageError: they are not ranges of sequences, or are given twice.
    """
    if ranges is None:
        if from_seq is None and to_seq is None:
            return None
        ranges = [(0 if from_seq is None else from_seq, MAX_SEQ if to_seq is None else to_seq)]
    elif from_seq is not None or to_seq is not None:
        raise UsageError("ranges and from_seq or to_seq exclude each other; nothing was changed")
    try:
        pairs = np.array(ranges)
    except ValueError:
        pairs = np.array([])
    if pairs.dtype.kind not in "iu" or pairs.shape[1:] != (len(("first", "last")),):
        raise UsageError("ranges are pairs of a lowest and a highest sequence; nothing was changed")
    if (pairs < 0).any() or (pairs > MAX_SEQ).any() or (pairs[:, 0] > pairs[:, 1]).any():
        raise UsageError(
            f"a range of sequences goes from a lowest to a highest one, from 0 to {MAX_SEQ:,}; nothing was changed"
        )
    return merged_ranges(pairs.astype(np.int64))
