"""Pictures of logs, plans and consumers, as the Python API offers them; drawn by the extra `plots`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from retention.api.repairs import Instant
from retention.context.context import OpenedStream
from retention.core.arguments import checked_class
from retention.engines.select import EngineName, Engines
from retention.errors import StalePlanError
from retention.history.runs import history_of
from retention.inspect.consumers import ConsumerInfo
from retention.inspect.simulation import simulate
from retention.plan.plan import Plan
from retention.plan.simulation import simulation_request
from retention.planners.shown import plan_stream
from retention.plots.consumers import consumers_chart
from retention.plots.draw import draw
from retention.plots.history import StoredNow, history_chart
from retention.plots.picture import Picture
from retention.plots.plan import plan_chart
from retention.plots.simulation import DUE_AT, due_chart

if TYPE_CHECKING:
    import pyarrow as pa


@checked_class
class LogPictures:
    """The part of a stream or topic that draws it."""

    opened: OpenedStream
    engine: EngineName | None
    instant: Callable[[Instant], int]

    def plot_due(self, as_of: Instant = None) -> Picture:
        """Draw what falls due in the 30 days after `as_of`, by rule, if nothing is stored meanwhile.

        Raises:
            UsageError: matplotlib is not installed here, or the stream was never written to.
            RefusedError: files of another writer have no statistics yet.
        """
        request = simulation_request(None, {}, DUE_AT, self.instant(as_of), "none", exact=False)
        with Engines(self.engine) as engines:
            return draw(due_chart(simulate(self.opened, engines, request)))

    def plot_history(self) -> Picture:
        """Draw the messages kept after each run, and those that runs removed, by rule; undone runs are marked.

        Raises:
            UsageError: matplotlib is not installed here.
        """
        records = list(history_of(self.opened.warehouse, self.opened.name).outcomes())
        return draw(history_chart(self.opened.name, records, stored_now(self.opened), "message"))


def plot_plan(opened: OpenedStream, plan: Plan) -> Picture:
    """Draw a plan.

    Raises:
        UsageError: matplotlib is not installed here.
        StalePlanError: it was made from the oldest segments alone, and the others have changed since.
    """
    return draw(plan_chart(plan, _files_of(opened, plan)))


def plot_consumers(
    opened: OpenedStream, infos: Sequence[ConsumerInfo], engine: EngineName | None
) -> Picture:
    """Draw the consumers of a stream, with what a pass now would hold back for them.

    Raises:
        UsageError: matplotlib is not installed here.
        RefusedError: the state of a consumer contradicts itself.
    """
    held = None
    if opened.config.policy().hold is not None:
        with Engines(engine) as engines:
            held = plan_stream(opened, opened.clock(), engines).held
    return draw(consumers_chart(opened.name, infos, held))


def _files_of(opened: OpenedStream, plan: Plan) -> pa.Table:
    """Every file that a plan is about, also those that it was made without: the oldest decided, or a cache did."""
    cause, header = plan.cause, plan.header
    counted = header.segments
    if not cause.tail.segments and (cause.files.num_rows or not counted.kept):
        return cause.files
    snapshot = opened.store.snapshot()
    if (snapshot.table_id, snapshot.version) != (header.table_id, header.version):
        raise StalePlanError(
            f"{opened.name}: the plan was made without reading all segments, and the stream has changed since; plan "
            "again to draw it"
        )
    return opened.store.inventory(snapshot).files


def stored_now(opened: OpenedStream) -> StoredNow | None:
    """The contents of a stream; None: it has no table."""
    if not opened.table.exists():
        return None
    inventory = opened.store.inventory(opened.store.snapshot())
    messages, size = (
        pc.sum(inventory.files[name], min_count=0).as_py() for name in ("messages", "bytes")
    )
    counters = inventory.counters
    return StoredNow(messages, size, counters.next_seq, opened.clock(), counters.epoch)
