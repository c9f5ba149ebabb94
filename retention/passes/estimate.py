"""Estimates: what a pass would do, in bounds that always hold, without opening a data file."""

from __future__ import annotations

from retention.engines.choice import Engines
from retention.errors import RefusedError
from retention.opened import OpenedStream
from retention.passes.bounds import Estimate, bounds_of
from retention.passes.guards import refuse_unbuilt
from retention.passes.planning import decide
from retention.passes.ranges import Bounds


def estimate(opened: OpenedStream, as_of_ns: int) -> Estimate:
    """Bound every number of the plan at `as_of_ns` from statistics alone.

    Raises:
        RefusedError: files that another writer appended have no statistics yet.
    """
    policy = opened.config.policy()
    refuse_unbuilt(opened.name, policy)
    if not opened.store.exists():
        return _nothing(opened.name, as_of_ns)
    snapshot = opened.store.snapshot()
    unread = opened.store.unread(snapshot)
    if unread:
        raise RefusedError(
            f"{opened.name}: {unread} files have no statistics yet, so nothing can be said about them unopened; run "
            "`retention plan` without --estimate once, which reads their narrow columns"
        )
    inventory = opened.store.inventory(snapshot)
    with Engines("local") as engines:
        decided = decide(opened, inventory, policy, as_of_ns, engines)
    return bounds_of(inventory, policy, as_of_ns, decided)


def _nothing(stream: str, as_of_ns: int) -> Estimate:
    none = Bounds(0, 0)
    segments = dict.fromkeys(("dropped", "rewritten", "kept"), none)
    return Estimate(stream, as_of_ns, none, none, {}, segments, none, none)
