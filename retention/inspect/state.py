"""A stream's current contents, in the broker's terms, and its lag behind its policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.replay import missing_erasures
from retention.config.topic import TopicConfig
from retention.context.context import OpenedStream
from retention.context.dropped import dropped_of
from retention.context.holds import holds_in_effect, holds_of
from retention.context.ownership import is_unlisted, other_owner
from retention.context.position import locate, next_seq_without_table
from retention.core import kv
from retention.core.bucket_names import bucket_of
from retention.core.dropped import StreamDrop
from retention.core.inventory import Inventory
from retention.core.json_object import JsonObject
from retention.datafile.segment_writer import PARTITION
from retention.engines.select import Engines
from retention.erasure.record import ErasureRecord, Erasures
from retention.errors import StorageError
from retention.inspect.lag import NO_LAG, UNKNOWN_LAG, Lag, consumers_lag, stream_lag, topic_lag
from retention.inspect.latest import last_seqs, pick_latest
from retention.inspect.subject_count import count_subjects
from retention.inspect.topic_state import TopicState, topic_state_of
from retention.plan.ahead_of_clock import AheadOfClock
from retention.plan.estimate_bounds import bounds_of
from retention.plan.forecast import NOTHING_FORETOLD, Forecast, never_below
from retention.plan.forecasting import forecast
from retention.plan.overdue import Overdue
from retention.plan.overdue_count import overdue_of
from retention.plan.remaining import all_remaining
from retention.planners.probe import UnopenedRows
from retention.planners.retention import decide
from retention.planners.topic import plan_topic_table
from retention.schemas.files import FILE_STATS
from retention.stores.holds import Hold
from retention.stores.pauses import Pause, pause_of


@dataclass(frozen=True)
class BucketState:
    """Counts of the keys in a stream that is a key-value bucket."""

    name: str
    keys: int
    live_keys: int
    """Keys whose last message is a value."""
    deletions: int
    """Keys whose last message deletes or purges them."""


@dataclass(frozen=True)
class FileContents:
    """Contents of data files; without any, `first_seq` is `last_seq` + 1, as the server reports it."""

    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ts_ns: int | None
    """Time of the message with the lowest sequence; None: the stream is empty."""
    last_ts_ns: int | None


@dataclass(frozen=True)
class State:
    """A stream's numbers."""

    stream: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    first_ts_ns: int | None
    last_ts_ns: int | None
    num_subjects: int
    segments: int
    lag: Lag | None
    """Lag behind the policy; None: the state of a consumer contradicts itself, so a pass would be refused."""
    format: str
    version: int
    """Version of the table; -1: no table yet."""
    bucket: BucketState | None = None
    """The keys of a bucket; None: the stream is not a key-value bucket."""
    forecast: Forecast = NOTHING_FORETOLD
    """Forecast of the amounts due and their times."""
    topic: TopicState | None = None
    """The state as a topic; None: the stream is not a topic."""
    removed_seq: int | None = None
    """The highest removed sequence, as the log keeps it; None: none, or each partition has its own."""
    dropped: StreamDrop | None = None
    """The drop that emptied the stream; None: it is not dropped."""
    ahead: tuple[AheadOfClock, ...] = ()
    """Partitions of a topic with times ahead of the clock: age removes none of their messages until then."""
    unlisted: bool = False
    """Whether no configuration lists the stream any more, so that it has no policy."""
    owner: str | None = None
    """The other configuration that owns the stream, so that its policy is unknown here; None: no other."""
    overdue: Overdue | None = None
    """Kept messages older than `max_age`; None: no such messages, or consumers release messages first."""
    paused: Pause | None = None
    """The pause that a person has placed on removals; None: there is none."""
    holds: tuple[Hold, ...] = ()
    """The legal holds in effect."""
    erasures: tuple[ErasureRecord, ...] = ()
    """The erasures with something left to do."""
    missing_erasures: tuple[str, ...] = ()
    """The erasures that only the ledger has, which the next run that removes replays."""

    def as_json(self) -> JsonObject:
        """The state as JSON values, with the keys of the command contract."""
        numbers = asdict(self)
        del numbers["forecast"], numbers["ahead"], numbers["holds"], numbers["erasures"]
        if self.erasures:
            left = [record.as_json() for record in self.erasures]
            numbers["unfinished_erasures"] = left
        if self.holds:
            numbers["holds"] = [hold.as_json() for hold in self.holds]
        if self.ahead:
            numbers["ahead_of_clock"] = [stamped.as_json() for stamped in self.ahead]
        for name in ("missing_erasures", "overdue", "dropped", "owner", "unlisted", "paused"):
            if not numbers[name]:
                del numbers[name]
        if self.paused is not None:
            numbers["paused"] = self.paused.as_json()
        return numbers | (numbers.pop("topic") or {}) | self.forecast.as_json()


def state_of(opened: OpenedStream, as_of_ns: int) -> State:
    """Count a stream's contents, from metadata and subject digests.

    Raises:
        DamagedError: the log, or a required file, is damaged.
        ForeignRowsError: rows of other writers break the storage rules.
    """
    other = other_owner(opened)
    return replace(
        _state_of(opened, as_of_ns),
        unlisted=is_unlisted(opened),
        owner=None if other is None else str(other),
        paused=pause_of(opened.warehouse, opened.root, opened.name),
        holds=holds_of(opened),
        erasures=tuple(Erasures(opened.root, opened.name).unfinished()),
        missing_erasures=_missing_erasures(opened),
    )


def _missing_erasures(opened: OpenedStream) -> tuple[str, ...]:
    """The erasures that only the ledger has; `holds_of` logs it if the ledger cannot be reached."""
    try:
        return tuple(missing_erasures(opened))
    except StorageError:
        return ()


def _state_of(opened: OpenedStream, as_of_ns: int) -> State:
    if opened.config.topic is not None:
        return _of_topic(opened, opened.config.topic, as_of_ns)
    if not opened.table.exists():
        return _empty(opened)
    position = locate(opened)
    files = position.inventory.files
    lag, ahead, overdue, subjects = _behind_and_ahead(opened, position.inventory, as_of_ns)
    bucket = _bucket(opened, files)
    if bucket is not None:
        subjects = bucket.keys
    elif subjects is None:
        subjects = count_subjects(opened, position.inventory)
    return State(
        stream=opened.name,
        **vars(contents_of(files, position.next_seq)),
        num_subjects=subjects,
        segments=files.group_by(["partition", "segment"]).aggregate([]).num_rows,
        lag=lag,
        format=opened.config.format,
        version=position.snapshot.version,
        bucket=bucket,
        forecast=ahead,
        removed_seq=position.inventory.counters.removed.get(PARTITION),
        overdue=overdue,
    )


def _of_topic(opened: OpenedStream, topic: TopicConfig, as_of_ns: int) -> State:
    if not opened.table.exists():
        return replace(_empty(opened), topic=topic_state_of(opened, topic, None))
    planning = plan_topic_table(opened, topic.policy(), as_of_ns)
    files, counters = planning.inventory.files, planning.inventory.counters
    next_seq = max(counters.next_seq.get(partition, 0) for partition in range(topic.partitions))
    return State(
        stream=opened.name,
        **vars(contents_of(files, next_seq)),
        num_subjects=min(files.num_rows, 1),
        segments=len(planning.stored_segments),
        lag=topic_lag(opened, topic, planning),
        format=opened.config.format,
        version=planning.snapshot.version,
        topic=topic_state_of(opened, topic, planning),
        ahead=planning.plan.ahead,
    )


def contents_of(files: pa.Table, next_seq: int) -> FileContents:
    """Contents of an inventory's files (`FILE_STATS`) in a stream with `next_seq` as its next sequence."""
    if not files.num_rows:
        return FileContents(0, 0, next_seq, next_seq - 1, None, None)
    lowest = pc.index(files["min_seq"], pc.min(files["min_seq"])).as_py()
    highest = pc.index(files["max_seq"], pc.max(files["max_seq"])).as_py()
    return FileContents(
        messages=pc.sum(files["messages"]).as_py(),
        bytes=pc.sum(files["bytes"]).as_py(),
        first_seq=files["min_seq"][lowest].as_py(),
        last_seq=next_seq - 1,
        first_ts_ns=files["first_ts_ns"][lowest].as_py(),
        last_ts_ns=files["last_ts_ns"][highest].as_py(),
    )


def _empty(opened: OpenedStream) -> State:
    nothing = FILE_STATS.empty_table()
    return State(
        stream=opened.name,
        **vars(contents_of(nothing, next_seq_without_table(opened))),
        num_subjects=0,
        segments=0,
        lag=NO_LAG,
        format=opened.config.format,
        version=-1,
        bucket=_bucket(opened, nothing),
        dropped=dropped_of(opened),
    )


def _bucket(opened: OpenedStream, files: pa.Table) -> BucketState | None:
    """Count the keys of a bucket by the headers of their last messages."""
    name = bucket_of(opened.name)
    if name is None:
        return None
    last = last_seqs(opened.store, files)
    tables = pick_latest(opened.store, files, last, ("seq", "headers"))
    live = sum(pc.sum(pc.equal(kv.operations(rows["headers"]), kv.PUT)).as_py() for rows in tables)
    return BucketState(name, len(last), live, len(last) - live)


def _behind_and_ahead(
    opened: OpenedStream, inventory: Inventory, as_of_ns: int
) -> tuple[Lag | None, Forecast, Overdue | None, int | None]:
    """The minimum that a pass would remove now, the forecast, the overdue messages, and subjects if counted."""
    policy = opened.config.policy()
    if policy.mode == "replay":
        lag = UNKNOWN_LAG if inventory.files.num_rows else NO_LAG
        return lag, NOTHING_FORETOLD, None, None
    if policy.rests_on_consumers:
        return consumers_lag(opened, inventory, as_of_ns), NOTHING_FORETOLD, None, None
    with Engines.of_active_session() as engines:
        rows = UnopenedRows(opened, engines)
        decided = decide(all_remaining(inventory), policy, as_of_ns, rows)
    on_hold = holds_in_effect(opened, inventory.counters).some(decided.spans)
    bounds = bounds_of(inventory, policy, as_of_ns, decided, on_hold=on_hold)
    overdue = overdue_of(inventory.files, policy, as_of_ns, decided)
    lag = stream_lag(opened, inventory, decided, bounds)
    ahead = forecast(inventory, policy, as_of_ns, decided)
    excess = decided.subjects.excess
    subjects = None if excess is None else excess.subjects
    return lag, never_below(ahead, policy, lag.messages, lag.bytes), overdue, subjects
