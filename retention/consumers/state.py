"""A consumer's progress: the messages delivered, settled, and pending."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.errors import DamagedError

PENDING = pa.schema([("seq", pa.int64()), ("consumer_seq", pa.int64()), ("ts_ns", pa.int64())])
"""Messages delivered and not settled, one row each: stream sequence, consumer sequence of the first delivery, time of
the last in nanoseconds since the epoch; 0: no delivery was observed, but there may have been one (`UNSEEN`)."""
REDELIVERED = pa.schema([("seq", pa.int64()), ("count", pa.int64())])
"""Messages delivered more than once and not settled: stream sequence, number of deliveries after the first."""
UNSEEN = pa.schema(
    [("first", pa.int64()), ("last", pa.int64()), ("after", pa.int64()), ("before", pa.int64())]
)
"""Unobserved deliveries, one row per run of consumer sequences `first` to `last`. The messages first delivered in a run
are above the stream sequence `after` and below `before` (`OPEN`: unknown)."""
OPEN = 2**63 - 1
LASTS = pa.schema([("seq", pa.int64())])
"""The last messages of their subjects when a consumer with `last_per_subject` was created."""

_DELIVERY = pa.struct([("Sequence", pa.int64()), ("Timestamp", pa.int64())])


@dataclass(frozen=True, order=True)
class DeliveryPosition:
    """A position in a consumer's count of deliveries, and the corresponding stream sequence."""

    consumer_seq: int = 0
    stream_seq: int = 0


@dataclass(frozen=True)
class ConsumerState:
    """One consumer's progress, as the server keeps it (`ConsumerState` of nats-server)."""

    delivered: DeliveryPosition = DeliveryPosition()
    """The last delivery."""
    ack_floor: DeliveryPosition = DeliveryPosition()
    """Everything at or below is settled."""
    pending: pa.Table = field(default_factory=PENDING.empty_table)
    """Shape `PENDING`, ascending by `seq`."""
    redelivered: pa.Table = field(default_factory=REDELIVERED.empty_table)
    """Shape `REDELIVERED`, ascending by `seq`."""
    unseen: pa.Table = field(default_factory=UNSEEN.empty_table)
    """Shape `UNSEEN`, ascending by `first`; not part of the server's stored form, and empty in a state read from it."""
    lasts: pa.Table = field(default_factory=LASTS.empty_table)
    """Shape `LASTS`, ascending: the undelivered messages up to `until`; not part of the server's stored form."""
    until: int = 0
    """New messages are delivered in order above this stream sequence; up to it only `lasts` are."""
    last_active_ns: int | None = None
    """Time of the consumer's last use, nanoseconds since the epoch; None: unknown."""

    @property
    def num_ack_pending(self) -> int:
        """Number of deliveries with pending acks, as the server's `info` shows it."""
        return int(self.pending.num_rows)

    def num_redelivered(self, max_deliver: int = -1) -> int:
        """Number of redelivered messages, as the server's `info` shows it: 0 if `max_deliver` is 1."""
        return 0 if max_deliver == 1 else int(self.redelivered.num_rows)

    @property
    def lasts_to_come(self) -> int:
        """Number of `lasts` not yet delivered."""
        return int((self.lasts["seq"].to_numpy() > self.delivered.stream_seq).sum())

    def as_json(self) -> JsonObject:
        """The state as the server stores it in a backup, without empty tables."""
        pending = self.pending.rename_columns(["seq", "Sequence", "Timestamp"])
        deliveries = dict(
            zip(_names(self.pending), pending.drop_columns("seq").to_pylist(), strict=True)
        )
        counts = dict(
            zip(_names(self.redelivered), self.redelivered["count"].to_pylist(), strict=True)
        )
        tables = {"pending": deliveries, "redelivered": counts}
        return {
            "delivered": vars(self.delivered).copy(),
            "ack_floor": vars(self.ack_floor).copy(),
            **{name: table for name, table in tables.items() if table},
        }


def new_state(start_seq: int) -> ConsumerState:
    """The state of a consumer that begins at `start_seq`: it needs no earlier message (jetstream consumer start)."""
    start = DeliveryPosition(0, start_seq - 1)
    return ConsumerState(delivered=start, ack_floor=start)


def with_lasts(state: ConsumerState, lasts: Sequence[int], until: int) -> ConsumerState:
    """A new consumer's state that delivers only `lasts` of all messages up to `until` (server: lastSeqSkipList)."""
    return replace(state, lasts=pa.table([sorted(lasts)], schema=LASTS), until=until)


def truncate_state(state: ConsumerState, last_seq: int) -> ConsumerState:
    """Truncate a state at the stream sequence `last_seq`, above which none was ever assigned."""

    def not_above(table: pa.Table) -> pa.Table:
        return table.filter(pc.less_equal(table["seq"], last_seq)).combine_chunks()

    if state.delivered.stream_seq <= last_seq:
        return state
    after = pc.min_element_wise(state.unseen["after"], last_seq)
    return replace(
        state,
        delivered=replace(state.delivered, stream_seq=last_seq),
        ack_floor=replace(state.ack_floor, stream_seq=min(state.ack_floor.stream_seq, last_seq)),
        pending=not_above(state.pending),
        redelivered=not_above(state.redelivered),
        unseen=state.unseen.set_column(2, UNSEEN.field("after"), after).combine_chunks(),
        lasts=not_above(state.lasts),
        until=min(state.until, last_seq),
    )


def from_json(stored: Mapping[str, Any]) -> ConsumerState:
    """Read the `state` object of a consumer in the server's stored form (as in backups).

    Raises:
        DamagedError: a value is missing, or is not a number where one is required.
    """
    try:
        return ConsumerState(
            delivered=_position(stored["delivered"]),
            ack_floor=_position(stored["ack_floor"]),
            pending=_pending(stored.get("pending") or {}),
            redelivered=_redelivered(stored.get("redelivered") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DamagedError(
            f"the consumer's state cannot be read ({type(error).__name__}: {error}): it needs"
            " delivered and ack_floor with consumer_seq and stream_seq, pending as sequence →"
            " {Sequence, Timestamp}, redelivered as sequence → count; take it from a backup again"
        ) from error


def contradictions(state: ConsumerState, last_seq: int | None = None) -> list[str]:
    """Describe the contradictions in a state, one sentence each; the state of a server's consumer has none.

    Args:
        state: the state to check.
        last_seq: the last sequence that the stream assigned, if known.
    """
    seqs, consumer_seqs = state.pending["seq"], state.pending["consumer_seq"]
    repeated, counts = state.redelivered["seq"], state.redelivered["count"]
    low, high = state.ack_floor, state.delivered
    faults = [
        _too_high("ack floor", low, "last delivery", high),
        _negative("ack floor", low),
        _beyond_stream(high, last_seq),
        _odd(
            "pending sequences are at or below the ack floor", seqs, pc.less_equal, low.stream_seq
        ),
        _odd("pending sequences are above the last delivery", seqs, pc.greater, high.stream_seq),
        _odd(
            "pending consumer sequences are above the last delivery's",
            consumer_seqs,
            pc.greater,
            high.consumer_seq,
        ),
        _odd(
            "redelivered sequences are above the last delivery",
            repeated,
            pc.greater,
            high.stream_seq,
        ),
        _odd("counts of redeliveries are below the possible minimum", counts, pc.less, 0),
        _unordered("pending", seqs),
        _unordered("redelivered", repeated),
    ]
    return [fault for fault in faults if fault]


def _too_high(
    lower_name: str, lower: DeliveryPosition, upper_name: str, upper: DeliveryPosition
) -> str:
    if lower.stream_seq <= upper.stream_seq and lower.consumer_seq <= upper.consumer_seq:
        return ""
    return f"the {lower_name} ({_spell(lower)}) is above the {upper_name} ({_spell(upper)})"


def _negative(name: str, position: DeliveryPosition) -> str:
    is_negative = min(position.stream_seq, position.consumer_seq) < 0
    return f"the {name} ({_spell(position)}) is negative" if is_negative else ""


def _beyond_stream(delivered: DeliveryPosition, last_seq: int | None) -> str:
    if last_seq is None or delivered.stream_seq <= last_seq:
        return ""
    return f"the last delivery ({_spell(delivered)}) is above the last sequence of the stream, {last_seq}"


def _odd(what: str, values: pa.ChunkedArray, compare: Callable[..., object], bound: int) -> str:
    """Name the values for which `compare` with the bound is true: their number and the first; empty if none."""
    odd = values.filter(compare(values, bound))
    return f"{len(odd)} {what} ({bound}), such as {odd[0]}" if len(odd) else ""


def _unordered(name: str, seqs: pa.ChunkedArray) -> str:
    steps = np.diff(seqs.to_numpy())
    return "" if (steps > 0).all() else f"the sequences of {name} do not ascend"


def _spell(position: DeliveryPosition) -> str:
    return f"stream sequence {position.stream_seq}, consumer sequence {position.consumer_seq}"


def _position(stored: Mapping[str, object]) -> DeliveryPosition:
    return DeliveryPosition(_whole(stored["consumer_seq"]), _whole(stored["stream_seq"]))


def _whole(value: object) -> int:
    return int(pa.scalar(value, pa.int64()).as_py())


def _pending(stored: Mapping[str, object]) -> pa.Table:
    deliveries = pa.array(list(stored.values()), _DELIVERY)
    columns = [_seqs(stored), *deliveries.flatten()]
    return _ascending(pa.table(columns, schema=PENDING))


def _redelivered(stored: Mapping[str, object]) -> pa.Table:
    counts = pa.array(list(stored.values()), pa.int64())
    return _ascending(pa.table([_seqs(stored), counts], schema=REDELIVERED))


def _seqs(stored: Mapping[str, object]) -> pa.Array:
    return pa.array(list(stored), pa.string()).cast(pa.int64())


def _ascending(table: pa.Table) -> pa.Table:
    holes = sum(column.null_count for column in table.columns)
    if holes:
        raise ValueError(f"{holes} numbers are missing")
    return table.take(pc.sort_indices(table["seq"])).combine_chunks()


def _names(table: pa.Table) -> list[str]:
    names: list[str] = table["seq"].cast(pa.string()).to_pylist()
    return names
