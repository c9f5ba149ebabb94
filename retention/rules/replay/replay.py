"""The fates of publishes under some limits, by columns where the limits allow it, else event by event."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from retention.rules.replay.broker import Broker
from retention.rules.replay.columns import is_independent, outcome_of
from retention.rules.replay.limits import ReplayLimits
from retention.rules.replay.publishes import Publishes
from retention.rules.replay.start import Start


def replay(publishes: Publishes, limits: ReplayLimits, until_ns: int) -> pa.Table:
    """The fates of all publishes until an instant, and of the markers until then; shape `FATES`.

    Args:
        publishes: in stored order; those after the instant are left out.
        limits: of the server from the first message on.
        until_ns: nanoseconds since the epoch; a message that is removed later is kept.
    """
    taken = _until(publishes, until_ns)
    if is_independent(taken, limits):
        return outcome_of(taken, limits, until_ns).table(taken)
    return Broker(taken, limits).run(until_ns).table(taken)


def replay_from(
    publishes: Publishes, limits: ReplayLimits, until_ns: int, start: Start
) -> pa.Table:
    """The fates until an instant of what a server holds and of the publishes after it; shape `FATES`.

    Args:
        publishes: what it holds, then publishes in stored order, none of them after the instant.
        limits: of the server, which what it holds complies with.
        until_ns: nanoseconds since the epoch.
        start: the state of the server.
    """
    return Broker(publishes, limits, start).run(until_ns).table(publishes)


def update_at(publishes: Publishes, limits: ReplayLimits, start: Start) -> pa.Table:
    """The fates of what a server holds when its configuration is updated at the instant of the start; shape `FATES`.

    Args:
        publishes: what it holds.
        limits: those of the update.
        start: the state of the server.
    """
    return Broker(publishes, limits, start).update().table(publishes)


def _until(publishes: Publishes, until_ns: int) -> Publishes:
    if not publishes.rows.num_rows:
        return publishes
    count = int(np.searchsorted(publishes.instants(), until_ns, side="right"))
    return Publishes(publishes.rows.slice(0, count), publishes.expectations)
