"""A stream's lag behind its policy: the minimum that a pass would remove, and the earliest instant of such a pass."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from retention.config.topic import TopicConfig
from retention.context.context import OpenedStream
from retention.context.holds import holds_in_effect
from retention.core.inventory import Inventory
from retention.core.units import MICROSECOND
from retention.engines.select import Engines
from retention.errors import RefusedError
from retention.history.runs import history_of
from retention.plan.estimate_bounds import Estimate, bounds_of
from retention.plan.forecasting import forecast
from retention.plan.remaining import all_remaining
from retention.planners.estimate import estimate_pass
from retention.planners.probe import UnopenedRows
from retention.planners.retention import decide
from retention.planners.topic import TopicPlanning, plan_topic_table
from retention.rules.fold import Evaluation
from retention.rules.iggy.next_due import next_due as next_due_segment
from retention.rules.jetstream.next_due import next_due
from retention.schemas.files import FILE_STATS
from retention.tables.state import TableState


@dataclass(frozen=True)
class Lag:
    """Lower bounds on what a pass would remove now, from metadata alone."""

    messages: int
    bytes: int
    since_ns: int | None = None
    """The instant since which a pass could have removed some of it; None: nothing is known to be due.

    It is exact if only time makes messages due; an excess over a number or size, and messages released by consumers,
    count since the last applied pass, or, if there was none, since the stream's oldest message.
    """
    is_known: bool = True
    """Whether metadata tells anything about it; the bounds are 0 otherwise."""

    def behind_ns(self, as_of_ns: int) -> int | None:
        """The time by which the stream is behind its policy at an instant, nanoseconds.

        0: it is not behind; None: it is not known.
        """
        if not self.is_known:
            return None
        return 0 if self.since_ns is None else max(as_of_ns - self.since_ns, 0)


NO_LAG = Lag(0, 0)
UNKNOWN_LAG = Lag(0, 0, is_known=False)
"""The lag of a stream with messages whose passes replay: metadata does not tell what happened at each publish."""


@dataclass(frozen=True)
class LagReading:
    """The lag and the files of a stream, from one read of its metadata."""

    lag: Lag | None
    files: pa.Table
    """The live files, shape `FILE_STATS`."""
    due_ns: int | None = None
    """The instant until which there is no lag unless messages arrive; None: there is a lag, or metadata does not show
    it."""


def urgency(lag: Lag | None) -> tuple[int, int, int]:
    """The sort key of a stream: unknown lags first, then the longest, and of equal ones the most bytes."""
    if lag is None:
        return (0, 0, 0)
    if lag.since_ns is None:
        return (2, 0, 0)
    return (1, lag.since_ns, -lag.bytes)


def table_lag(state: TableState) -> Lag | None:
    """The lag of a table in place, its rows as messages; None: nothing may be removed from it."""
    return None if state.due is None else Lag(state.due.lower, 0, state.since_ns)


def lag_of(opened: OpenedStream, as_of_ns: int) -> Lag | None:
    """The lag of a stream or topic; None: a consumer's state contradicts itself, so a pass is refused.

    Raises:
        DamagedError: the log, or a required file, is damaged.
        ForeignRowsError: rows of other writers break the storage rules.
    """
    return look(opened, as_of_ns).lag


def look(opened: OpenedStream, as_of_ns: int) -> LagReading:
    """The lag as from `lag_of`, with its files, and the instant until which there is none."""
    if not opened.table.exists():
        return LagReading(NO_LAG, FILE_STATS.empty_table())
    topic = opened.config.topic
    if topic is not None:
        planning = plan_topic_table(opened, topic.policy(), as_of_ns)
        return LagReading(topic_lag(opened, topic, planning), planning.inventory.files)
    inventory = opened.store.inventory(opened.store.snapshot())
    policy = opened.config.policy()
    if policy.mode == "replay":
        return LagReading(_replay_lag(opened, inventory.files), inventory.files)
    if policy.rests_on_consumers:
        return LagReading(consumers_lag(opened, inventory, as_of_ns), inventory.files)
    with Engines("local") as engines:
        decided = decide(all_remaining(inventory), policy, as_of_ns, UnopenedRows(opened, engines))
    on_hold = holds_in_effect(opened, inventory.counters).some(decided.spans)
    bounds = bounds_of(inventory, policy, as_of_ns, decided, on_hold=on_hold)
    lag = stream_lag(opened, inventory, decided, bounds)
    if bounds.removed_messages.upper:
        return LagReading(lag, inventory.files)
    due_ns = next_due(decided, policy, inventory.counters.open_base)
    return LagReading(lag, inventory.files, due_ns)


def stream_lag(
    opened: OpenedStream, inventory: Inventory, decided: Evaluation, bounds: Estimate
) -> Lag:
    """The lag of a stream with rules that do not depend on consumers.

    Args:
        opened: the stream.
        inventory: its files.
        decided: a pass over them.
        bounds: the numbers of that pass.
    """
    lag, policy = _least(bounds), opened.config.policy()
    if not lag.messages:
        return lag
    applied = _last_pass(opened, inventory.files)
    due = forecast(inventory, policy, applied, decided).next_due_ns
    return _since(lag, max(due or applied, applied), bounds.as_of_ns)


def consumers_lag(opened: OpenedStream, inventory: Inventory, as_of_ns: int) -> Lag | None:
    """The lag of a stream with rules that depend on its consumers; None: the state of one contradicts itself."""
    try:
        lag = _least(estimate_pass(opened, inventory, as_of_ns))
    except RefusedError:
        return None
    return _since(lag, _last_pass(opened, inventory.files), as_of_ns) if lag.messages else lag


def _replay_lag(opened: OpenedStream, files: pa.Table) -> Lag:
    """The lag of a stream whose passes replay: not known, and of the urgency of all that came since the last pass."""
    return replace(UNKNOWN_LAG, since_ns=_last_pass(opened, files)) if files.num_rows else NO_LAG


def topic_lag(opened: OpenedStream, topic: TopicConfig, planning: TopicPlanning) -> Lag:
    """The lag of a topic that was planned."""
    plan, policy = planning.plan, topic.policy()
    lag = Lag(plan.removed_messages, plan.removed_bytes)
    if not lag.messages:
        return lag
    applied = _last_pass(opened, planning.inventory.files)
    before = plan_topic_table(opened, policy, applied, planning.snapshot)
    due_us = (
        None if before.plan.removed_messages else next_due_segment(before.stored_segments, policy)
    )
    return _since(lag, max(applied, (due_us or 0) * MICROSECOND), plan.header.as_of_ns)


def _least(bounds: Estimate) -> Lag:
    return Lag(bounds.removed_messages.lower, bounds.removed_bytes.lower)


def _since(lag: Lag, since_ns: int, as_of_ns: int) -> Lag:
    return Lag(lag.messages, lag.bytes, min(since_ns, as_of_ns))


def _last_pass(opened: OpenedStream, files: pa.Table) -> int:
    """The instant of the last applied pass, or of the oldest message if that is later."""
    applied = history_of(opened.warehouse, opened.name).last_as_of_ns()
    oldest = pc.min(files["min_ts_ns"]).as_py()
    return oldest if applied is None else max(applied, oldest)
