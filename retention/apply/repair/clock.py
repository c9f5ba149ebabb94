"""Repair of a wrong clock's effects: the last applied instant and the names of runs return to the real time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import pyarrow.compute as pc

from retention.apply.recover import settle_interrupted
from retention.apply.seal import seal_ahead
from retention.context.context import OpenedStream
from retention.context.maintenance import maintaining
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.run_names import parse_run_name
from retention.core.units import SECOND, format_instant
from retention.errors import UsageError
from retention.history.kinds import Applied, ClockRepaired, PlannedRun, Undone
from retention.history.record import DONE, RunRecord
from retention.history.runs import History, history_of
from retention.plan.ahead_of_clock import AheadOfClock
from retention.planners.topic import plan_topic_table

_APART_NS = 60 * SECOND
"""The maximum difference between the clocks of cooperating machines that does not count as wrong."""


@dataclass(frozen=True)
class WrongRun:
    """A run that used the wrong clock, and its effects."""

    run: str
    kind: str
    as_of_ns: int
    removed_messages: int
    removed_bytes: int
    by_rule: Mapping[str, int]
    markers: int
    deleted_consumers: tuple[str, ...]
    undone_by: str | None


@dataclass(frozen=True)
class LaterTimes:
    """Files with messages of times ahead of the clock."""

    files: int
    first_seq: int
    last_seq: int
    latest_ns: int


@dataclass(frozen=True, repr=False)
class ClockRepair(Displayed):
    """The effects of a wrong clock on a stream, and their repair."""

    stream: str
    now_ns: int
    last_as_of_ns: int | None
    """The last applied instant; None: there was no pass."""
    as_of_ns: int
    """The instant that counts as the last applied one once the clock is repaired."""
    wrong: tuple[WrongRun, ...] = ()
    """Newest first; none: there is nothing to repair."""
    later: LaterTimes | None = None
    ahead: tuple[AheadOfClock, ...] = ()
    """Partitions of a topic with times ahead of the clock."""
    sealed: bool = False
    """Whether the repair sealed their active segments, so that new messages get the clock's time."""
    run: str | None = field(default=None)
    """The run that repaired it; None: nothing was changed."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.wrong) or any(stamped.is_open for stamped in self.ahead)

    def as_json(self) -> JsonObject:
        """The fields as JSON values."""
        return asdict(self)


def find_wrong_clock(opened: OpenedStream, as_of_ns: int) -> ClockRepair:
    """Find the effect of repairing a wrong clock; nothing is changed.

    Args:
        opened: the stream.
        as_of_ns: the instant to count as the last applied one.

    Raises:
        UsageError: this instant is in the future as well.
        DamagedError: the run history or the table cannot be read.
    """
    now_ns, history = opened.clock(), history_of(opened.warehouse, opened.name)
    if as_of_ns > now_ns:
        raise UsageError(
            f"{opened.name}: {format_instant(as_of_ns)} is later than the clock ({format_instant(now_ns)}), and would "
            "refuse every pass until then; give an earlier instant"
        )
    wrong = tuple(_wrong_runs(history, as_of_ns, now_ns))
    repair = ClockRepair(opened.name, now_ns, history.last_as_of_ns(), as_of_ns, wrong)
    topic = opened.config.policy().topic
    if topic is None:
        return replace(repair, later=_later_times(opened, now_ns))
    if not opened.table.exists():
        return repair
    return replace(repair, ahead=plan_topic_table(opened, topic, now_ns).plan.ahead)


def repair_wrong_clock(opened: OpenedStream, as_of_ns: int) -> ClockRepair:
    """Make an instant count as the last applied one, for good; nothing is recorded if no run is later.

    In a topic, active segments with times ahead of the clock are sealed, so that new messages get the clock's time.
    Messages that runs removed are not restored; undoing the runs does that, before or after.

    Raises:
        UsageError, DamagedError: as `find_wrong_clock`.
        BusyError: another run is in progress.
    """
    history = history_of(opened.warehouse, opened.name)
    with maintaining(opened):
        settle_interrupted(opened, history)
        repair = find_wrong_clock(opened, as_of_ns)
        if repair.ahead and seal_ahead(opened, repair.now_ns):
            repair = replace(repair, sealed=True)
        if not repair.wrong:
            return repair
        run = history.name_repair(repair.now_ns)
        history.finish(_record(repair, run))
    return replace(repair, run=run)


def _record(repair: ClockRepair, run: str) -> ClockRepaired:
    return ClockRepaired(
        run=run,
        stream=repair.stream,
        status=DONE,
        as_of_ns=repair.as_of_ns,
        latest_as_of_ns=repair.as_of_ns,
        wrong_as_of_ns=repair.last_as_of_ns,
        wrong_runs=[wrong.run for wrong in repair.wrong],
        removed_messages=0,
        removed_bytes=0,
    )


def _wrong_runs(history: History, as_of_ns: int, now_ns: int) -> list[WrongRun]:
    """The runs since the last repair that applied a later instant, or were named by a later clock; newest first."""
    undone: dict[str, str] = {}
    wrong = []
    for record in history.outcomes():
        if isinstance(record, ClockRepaired):
            break
        if not record.may_count:
            continue
        if isinstance(record, Undone):
            undone[record.undoes] = record.run
        name = parse_run_name(record.run)
        is_named_later = name is not None and name.started_ns > now_ns + _APART_NS
        if is_named_later or (isinstance(record, Applied) and record.as_of_ns > as_of_ns):
            wrong.append(_wrong_run(record, undone.get(record.run)))
    return wrong


def _wrong_run(record: RunRecord, undone_by: str | None) -> WrongRun:
    return WrongRun(
        run=record.run,
        kind=record.kind,
        as_of_ns=record.as_of_ns,
        removed_messages=record.removed_messages,
        removed_bytes=record.removed_bytes,
        by_rule=record.by_rule,
        markers=record.markers if isinstance(record, PlannedRun) else 0,
        deleted_consumers=tuple(record.deleted_consumers) if isinstance(record, PlannedRun) else (),
        undone_by=undone_by,
    )


def _later_times(opened: OpenedStream, now_ns: int) -> LaterTimes | None:
    """The files with messages ahead of the clock; None: there are none."""
    if not opened.table.exists():
        return None
    files = opened.store.inventory(opened.store.snapshot()).files
    later = files.filter(pc.greater(files["max_ts_ns"], now_ns))
    if not later.num_rows:
        return None
    first, last = (pc.min(later["min_seq"]).as_py(), pc.max(later["max_seq"]).as_py())
    return LaterTimes(later.num_rows, first, last, pc.max(later["max_ts_ns"]).as_py())
