"""The health of streams and tables for a report: a row of each, and all of one in detail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import pyarrow.compute as pc

from retention.config.describe import explain_stream
from retention.config.describe_table import table_in_words
from retention.config.table import TableConfig
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import RetentionError
from retention.history.runs import History, history_of
from retention.inspect.consumers import ConsumerInfo, consumer_infos, stored_consumers
from retention.inspect.lag import look
from retention.inspect.removals import RemovalRun
from retention.inspect.run_summary import RunSummary, summaries
from retention.inspect.state import State, state_of
from retention.inspect.subject_sizes import SubjectSize, largest_subjects
from retention.inspect.taken import Taken
from retention.plan.plan import Plan
from retention.planners.shown import plan_stream
from retention.tables.opened import OpenedTable
from retention.tables.state import TableState, state_of_table
from retention.tables.undo import undoable

AnyState: TypeAlias = State | TableState
MOST_RUNS = 1_000
"""The newest runs that a report has."""
_MOST_LOOKS = 30
"""The newest runs among which a row looks for the last pass."""
_LARGEST = 15
_MOST_UNDOS = 3


@dataclass(frozen=True)
class Overview:
    """One stream or table as a row of a report."""

    name: str
    kind: str
    """`stream`, `topic` or `table`."""
    amount: int = 0
    """Its messages or rows."""
    bytes: int = 0
    behind_ns: int | None = 0
    """The time since which a pass could have removed some of it, nanoseconds; None: it is not known."""
    due: int = 0
    """The least messages or rows that a pass would remove now."""
    last: RunSummary | None = None
    """Its last pass; None: none is among its newest runs."""
    error: str | None = None
    """The sentence that says why it, or its pass, failed; None: neither did."""

    @property
    def noun(self) -> str:
        """The noun for what it consists of."""
        return "row" if self.kind == "table" else "message"

    @property
    def urgency(self) -> tuple[int, int, int, str]:
        """The sort key: failed ones first, then unknown lags, the longest, and the largest."""
        rank = 0 if self.error else 1 if self.behind_ns is None else 2
        return rank, -(self.behind_ns or 0), -self.bytes, self.name


@dataclass(frozen=True)
class UndoOffer:
    """A run that can be undone now."""

    run: str
    sentence: str


@dataclass(frozen=True)
class LogReport:
    """One stream or table in detail."""

    overview: Overview
    policy: str
    """The effect of its configuration, in words."""
    state: AnyState | None
    """None: it cannot be read."""
    runs: Sequence[RunSummary] = ()
    """Its newest runs, the newest first; at most `MOST_RUNS`."""
    undos: Sequence[UndoOffer] = ()
    largest: Sequence[SubjectSize] | None = ()
    """The subjects with the most messages; None: too many subjects to count, or keys of a table, which are unknown."""
    consumers: Sequence[ConsumerInfo] = ()
    plan: Plan | None = None
    """The next pass, if it waits for consumers; None: it waits for none."""
    refused: Sequence[str] = field(default_factory=list)
    """The sentences that say which parts could not be read."""


def overview_of(opened: OpenedStream, as_of_ns: int) -> Overview:
    """A stream or topic as a row, from its log and its newest runs.

    Raises:
        RetentionError: it cannot be read.
    """
    reading = look(opened, as_of_ns)
    amount, size = (
        pc.sum(reading.files[name], min_count=0).as_py() for name in ("messages", "bytes")
    )
    return Overview(
        opened.name,
        "stream" if opened.config.topic is None else "topic",
        amount,
        size,
        None if reading.lag is None else reading.lag.behind_ns(as_of_ns),
        0 if reading.lag is None else reading.lag.messages,
        _last_pass(history_of(opened.warehouse, opened.name)),
    )


def overview_of_table(table: OpenedTable, as_of_ns: int) -> Overview:
    """A table as a row, from its log and its newest runs.

    Raises:
        RetentionError: it cannot be read.
    """
    state = state_of_table(table, as_of_ns)
    is_known = state.due is not None
    return Overview(
        table.name,
        "table",
        state.rows,
        state.bytes,
        state.behind_ns(as_of_ns) if is_known else None,
        state.due.lower if state.due else 0,
        _last_pass(table.history),
    )


def report_of(opened: OpenedStream, overview: Overview, as_of_ns: int) -> LogReport:
    """A stream or topic in detail; parts that cannot be read are named in it."""
    records = [*islice(history_of(opened.warehouse, opened.name).outcomes(), MOST_RUNS)]
    runs, refused = summaries(records), list[str]()
    state: State | None = None
    largest: list[SubjectSize] | None = []
    consumers: list[ConsumerInfo] = []
    plan: Plan | None = None
    try:
        state = state_of(opened, as_of_ns)
        if opened.config.topic is None:
            largest = largest_subjects(opened, _LARGEST)
            consumers = consumer_infos(opened, stored_consumers(opened))
        if opened.config.policy().hold is not None:
            with Engines("local") as engines:
                plan = plan_stream(opened, as_of_ns, engines)
    except RetentionError as error:
        refused.append(str(error))
    undos = [*islice(_undos(opened, runs, as_of_ns), _MOST_UNDOS)]
    policy = explain_stream(opened.config).removeprefix(f"{opened.name}: ")
    return LogReport(overview, policy, state, runs, undos, largest, consumers, plan, refused)


def report_of_table(
    table: OpenedTable, config: TableConfig, overview: Overview, as_of_ns: int
) -> LogReport:
    """A table in detail; parts that cannot be read are named in it."""
    runs = summaries([*islice(table.history.outcomes(), MOST_RUNS)])
    state, refused = None, list[str]()
    try:
        state = state_of_table(table, as_of_ns)
    except RetentionError as error:
        refused.append(str(error))
    undos = [*islice(_undos_of_table(table, runs), _MOST_UNDOS)]
    largest: list[SubjectSize] | None = None if config.key else []
    words = table_in_words(config)
    return LogReport(overview, words, state, runs, undos, largest, refused=refused)


def _last_pass(history: History) -> RunSummary | None:
    newest = summaries([*islice(history.outcomes(), _MOST_LOOKS)])
    return next((run for run in newest if run.is_pass and run.record.may_count), None)


def _undos(opened: OpenedStream, runs: Sequence[RunSummary], now_ns: int) -> Iterator[UndoOffer]:
    """The runs that can be undone, newest first."""
    taken = Taken(opened)
    for run in _removals(runs):
        recovery = RemovalRun(opened, run.record, run.undone_by, taken).recovery(now_ns)
        if recovery.is_possible:
            yield UndoOffer(run.run, recovery.sentence)


def _undos_of_table(table: OpenedTable, runs: Sequence[RunSummary]) -> Iterator[UndoOffer]:
    for run in _removals(runs):
        with suppress(RetentionError):
            undoable(table, run.run)
            yield UndoOffer(run.run, f"`retention undo {run.run}` restores the removed rows")


def _removals(runs: Sequence[RunSummary]) -> Iterator[RunSummary]:
    """The newest runs that removed something and are in effect."""
    removals = (run for run in runs if run.removed and run.undone_by is None and run.record.is_done)
    return islice(removals, _MOST_LOOKS)
