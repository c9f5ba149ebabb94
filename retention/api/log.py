"""One stream or topic as a person holds it: what both have; and a plan that can explain, save and apply itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retention.apply.compact import CompactionLimits, compact_now, show_compaction
from retention.apply.guards import Guards
from retention.apply.repair.clock import ClockRepair, find_wrong_clock, repair_wrong_clock
from retention.apply.repair.foreign import ForeignRepair, find_foreign_files, repair_foreign_files
from retention.apply.repair.returned import (
    ReturnedRepair,
    find_returned_messages,
    repair_returned_messages,
)
from retention.apply.repair.sequences import (
    SequenceRepair,
    find_impossible_sequences,
    repair_impossible_sequences,
)
from retention.apply.run import apply_plan
from retention.context.context import OpenedStream
from retention.core.units import parse_instant
from retention.engines.select import EngineName, Engines
from retention.errors import MissingMessageError
from retention.history.runs import history_of
from retention.ingest.append import Appended
from retention.ingest.dataframe import append_frame, streaming_sink
from retention.ingest.idempotency import append_identity
from retention.inspect.messages import Selection, read_messages
from retention.inspect.removed_message import explain_removed
from retention.inspect.state import state_of
from retention.plan.actions import TOMBSTONE
from retention.plan.plan import Plan
from retention.plan.planfile import save_plans
from retention.planners.cached import plan_stream
from retention.planners.explain import explain, explain_by
from retention.planners.requests import plan_removal
from retention.restore.run import Restored, restore
from retention.restore.select import MessageRange
from retention.rules.requests import Request, purge_request
from retention.views.html import plan_html
from retention.views.notebook import (
    ShownCompaction,
    ShownCompactionPlan,
    ShownExplanation,
    ShownReport,
    ShownState,
)
from retention.views.text import plan_text
from retention.views.wording import lines_text

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from retention.apply.reclaim.report import ReclaimReport

Instant = str | int | None
"""RFC 3339, integer nanoseconds since the epoch, or None: now."""


@dataclass(frozen=True)
class Log:
    """A stream or topic of a warehouse."""

    opened: OpenedStream
    engine: EngineName | None = None
    """The engine, which beats the configuration's; None: the configuration's."""

    @property
    def name(self) -> str:
        """The name that commands take."""
        return self.opened.name

    def plan(self, as_of: Instant = None) -> BoundPlan:
        """Plan one pass; nothing is changed.

        Raises:
            UsageError: `as_of` is no instant.
            RefusedError: the configuration or the table needs what this version cannot do.
        """
        with Engines(self.engine) as engines:
            return BoundPlan(self, plan_stream(self.opened, self.instant(as_of), engines))

    def explain(self, seq: int, as_of: Instant = None, partition: int = 0) -> ShownExplanation:
        """Explain why a message stays or goes in a pass at `as_of`; of one that is gone, which run took it and why.

        Args:
            seq: its sequence, or its offset in a topic.
            as_of: the pass's instant.
            partition: the partition in which it lies.

        Raises:
            MissingMessageError: there is no such message, and no run that has a record took it.
        """
        try:
            with Engines(self.engine) as engines:
                explanation = explain(self.opened, seq, self.instant(as_of), engines, partition)
        except MissingMessageError:
            if not self.opened.store.exists():
                raise
            explanation = explain_removed(self.opened, (partition, seq), self.opened.clock())
        return ShownExplanation(**vars(explanation))

    def purge(
        self, subject: str | None = None, seq: int | None = None, keep: int | None = None
    ) -> BoundPlan:
        """Plan the removal of all messages, or of some; `apply` of the plan carries it out.

        Args:
            subject: only subjects that match this filter, with `*` for one token and a last `>` for one or more.
            seq: only messages below it; without `subject`, one beyond the last also moves the next sequence there.
            keep: so many of the newest stay; never together with `seq`.

        Raises:
            UsageError: `subject` is no filter, or `seq` and `keep` are both given.
            RefusedError: the stream is sealed, or denies purges; or it is a topic, of which not all shall go.
        """
        return self._removal(purge_request(subject, seq, keep))

    def _removal(self, request: Request) -> BoundPlan:
        with Engines(self.engine) as engines:
            return BoundPlan(self, plan_removal(self.opened, request, engines).plan)

    def plan_compaction(self, max_bytes: int | None = None) -> ShownCompactionPlan:
        """Plan the merges of files that pay, the best first; nothing is changed.

        Args:
            max_bytes: the most bytes to rewrite; None: no bound.

        Raises:
            ForeignRowsError, DamagedError: the files break the storage rules, or are damaged.
        """
        return ShownCompactionPlan(**vars(show_compaction(self.opened, max_bytes)))

    def compact(self, limits: CompactionLimits | None = None) -> ShownCompaction:
        """Merge files where it pays, the best merges first; no message changes, comes or goes.

        Raises:
            BusyError: another run is at work.
            DamagedError: files of some merges are damaged; the others are done.
        """
        with Engines(self.engine) as engines:
            report = compact_now(self.opened, engines, limits or CompactionLimits())
        return ShownCompaction(**vars(report))

    def state(self, as_of: Instant = None) -> ShownState:
        """The contents, and what a pass at `as_of` would let go at least."""
        return ShownState(**vars(state_of(self.opened, self.instant(as_of))))

    def messages(self, wanted: Selection | None = None) -> Iterator[pa.Table]:
        """Messages in order of partition and sequence, in Arrow tables of shape `schemas.messages.MESSAGES`."""
        return read_messages(self.opened, wanted or Selection())

    def history(self) -> list[dict[str, Any]]:
        """The outcomes of its runs, newest first."""
        return list(history_of(self.opened.warehouse, self.name).outcomes())

    def find_wrong_clock(self, as_of: Instant = None) -> ClockRepair:
        """Find what passes with a wrong clock left, and what `repair_wrong_clock` would make of it; nothing is changed.

        Raises:
            UsageError: `as_of` is no instant, or later than the clock.
        """
        return find_wrong_clock(self.opened, self.instant(as_of))

    def repair_wrong_clock(self, as_of: Instant = None) -> ClockRepair:
        """Settle passes that were made with a wrong clock: `as_of` counts as the last applied instant from now on.

        Raises:
            UsageError: `as_of` is no instant, or later than the clock.
            BusyError: another run is at work.
        """
        return repair_wrong_clock(self.opened, self.instant(as_of))

    def find_impossible_sequences(self) -> SequenceRepair:
        """Find rows with sequences or sizes that no message can have, and counters of such; nothing is changed.

        Raises:
            ForeignRowsError: rows of other writers break another storage rule.
        """
        return find_impossible_sequences(self.opened)

    def repair_impossible_sequences(self) -> SequenceRepair:
        """Take rows with sequences or sizes that no message can have out, and count sequences on from the others.

        Raises:
            BusyError: another run is at work.
            ForeignRowsError: rows of other writers break another storage rule; nothing was changed.
        """
        return repair_impossible_sequences(self.opened)

    def find_foreign_files(self) -> ForeignRepair:
        """Find files that another writer put into a Parquet stream, and that it cannot take in; nothing is changed.

        Raises:
            RefusedError: it is a Delta stream.
        """
        return find_foreign_files(self.opened)

    def repair_foreign_files(self) -> ForeignRepair:
        """Move files that another writer put into a Parquet stream, and that it cannot take in, aside.

        Raises:
            RefusedError: it is a Delta stream.
            BusyError: another run is at work, or somebody appends.
        """
        return repair_foreign_files(self.opened)

    def find_returned_messages(self) -> ReturnedRepair:
        """Find the messages that other writers have brought back by overlooking a removal; nothing is changed.

        Raises:
            RefusedError: what they made was rewritten since.
        """
        return find_returned_messages(self.opened)

    def repair_returned_messages(self) -> ReturnedRepair:
        """Remove exactly what other writers have brought back, as a run that can be undone.

        Raises:
            RefusedError: what they made was rewritten since.
            BusyError: another run is at work.
        """
        return repair_returned_messages(self.opened)

    def find_reclaimable(self) -> ReclaimReport:
        """Find what `reclaim` would delete by now, by reason; nothing is changed.

        Raises:
            RefusedError, DamagedError: as `reclaim`.
        """
        from retention.apply.reclaim.run import plan_reclaim

        return plan_reclaim(self.opened)

    def reclaim(self) -> ReclaimReport:
        """Delete what is dead for longer than its grace; it cannot be undone.

        Raises:
            BusyError: another run is at work.
            RefusedError: the storage's clock differs from this machine's.
            DamagedError: a record of a run, or an entry of the log, cannot be read.
        """
        from retention.apply.reclaim.run import reclaim_now

        return reclaim_now(self.opened)

    def find_leftovers(self) -> ReclaimReport:
        """Find what killed processes have left, and `reclaim_leftovers` would delete by now; nothing is changed.

        Raises:
            RefusedError, DamagedError: as `reclaim`.
        """
        from retention.apply.reclaim.leftovers import find_leftovers

        return find_leftovers(self.opened)

    def reclaim_leftovers(self) -> ReclaimReport:
        """Delete what killed processes have left, once it was noted for the grace; every file is listed.

        Raises:
            BusyError, RefusedError, DamagedError: as `reclaim`.
        """
        from retention.apply.reclaim.leftovers import reclaim_leftovers

        return reclaim_leftovers(self.opened)

    def read(self, spark: SparkSession) -> DataFrame:
        """The live messages as a Spark DataFrame."""
        from retention.engines.spark.read import read_frame

        return read_frame(self.opened, spark)

    def append(
        self, frame: DataFrame, writer: str | None = None, batch_id: int | None = None
    ) -> Appended:
        """Append a Spark DataFrame as one commit.

        Args:
            frame: of a stream `subject`, `payload`, optional `headers`, `ts_ns` or `time`: its rows get sequences in
                the order of time, then subject, headers and payload. Of a topic `payload`, optional `partition` or
                `key`, `id`, `headers`, `origin_ts_ns`: its rows get offsets in the order of `origin_ts_ns`, then id,
                headers and payload.
            writer: who writes; `append`, if only a batch is given.
            batch_id: makes the append exactly once: a number that rises with each of the writer's batches.

        Raises:
            UsageError: a column is missing, or a row cannot be a message.
            RefusedError: a topic's server would refuse a row.
        """
        return append_frame(self.opened, frame, append_identity(writer, batch_id))

    def sink(self, writer: str) -> Callable[[DataFrame, int], None]:
        """The function that `foreachBatch` of a streaming query takes: each of its batches is appended exactly once.

        Args:
            writer: one name for one checkpoint.
        """
        return streaming_sink(self.opened, writer)

    def restore(
        self,
        archive: str | None = None,
        wanted: MessageRange | None = None,
        into: Log | None = None,
    ) -> Restored:
        """Bring back from an archive what runs have removed: where it was, or into a new stream.

        Args:
            archive: where it is; None: where the configuration has it.
            wanted: which messages; None: all.
            into: a stream or topic to which nothing was written yet; None: this one, where what is there stays.

        Raises:
            UsageError: there is no such archive, or not what is asked for in it.
            DamagedError: it is damaged or incomplete.
            RefusedError: what it holds comes from another table; or `into` was written to.
        """
        target = None if into is None else into.opened
        with Engines(self.engine) as engines:
            return restore(self.opened, archive, wanted or MessageRange(), target, engines)

    def instant(self, as_of: Instant) -> int:
        """An instant in nanoseconds since the epoch; None is the clock's."""
        return self.opened.clock() if as_of is None else parse_instant(as_of)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} in {self.opened.warehouse})"


@dataclass(frozen=True, repr=False)
class BoundPlan:
    """A plan together with the stream or topic that it is about."""

    stream: Log
    plan: Plan

    def explain(self, seq: int, partition: int = 0) -> ShownExplanation:
        """Explain why a message stays or goes by this plan, whatever came since.

        Raises:
            UsageError: there is no such message.
            StalePlanError: a file that the plan was made from is gone.
        """
        explanation = explain_by(self.stream.opened, self.plan, (partition, seq))
        return ShownExplanation(**vars(explanation))

    def apply(self, *, allow_future: bool = False, allow_rewind: bool = False) -> ShownReport:
        """Carry the plan out, unchanged.

        Raises:
            StalePlanError: the stream has changed since: plan again.
            RefusedError: the plan's instant is later than the clock, or earlier than the last applied one.
            BusyError: another run is at work.
        """
        with Engines(self.stream.engine) as engines:
            guards = Guards(allow_future, allow_rewind)
            report = apply_plan(self.stream.opened, self.plan, engines, guards)
        return ShownReport(**vars(report))

    def save(self, path: str | Path) -> None:
        """Write the plan to a file that `retention apply` takes."""
        save_plans(str(path), [self.plan])

    def to_pandas(self) -> pd.DataFrame:
        """The files that the plan touches, one a row: what goes of each, and by which rule."""
        files: pd.DataFrame = self.plan.actions.files_with_rules.to_pandas()
        files["action"] = files["action"].replace(TOMBSTONE, "hide")
        return files

    def as_json(self) -> dict[str, Any]:
        """The numbers of the plan as JSON values."""
        return self.plan.summary() | self.plan.forecast.as_json()

    def __repr__(self) -> str:
        return lines_text(plan_text(self.plan))

    def _repr_html_(self) -> str:
        return plan_html(self.plan)
