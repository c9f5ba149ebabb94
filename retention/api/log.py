"""A log of the Python API: the members that streams and topics share, and a plan that explains and applies itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from retention.api.dry_run import DryRun
from retention.api.pictures import LogPictures, plot_plan
from retention.api.public import Public
from retention.api.repairs import Instant, Repairs
from retention.api.verifying import LogVerification
from retention.apply.compact import CompactionLimits, compact_now, show_compaction
from retention.apply.guards import Guards
from retention.apply.saved_plan import apply_plan
from retention.context.context import OpenedStream, has_table
from retention.core.accepted_times import accepted_times
from retention.core.arguments import checked_class
from retention.core.display import fields_html
from retention.core.json_object import JsonObject
from retention.core.policy import describe
from retention.dialects.column_mapping import ColumnMapping, WholeRow, refuse_sql
from retention.engines.select import EngineName, Engines
from retention.errors import MissingMessageError
from retention.formats.jsonl import Given, open_lines
from retention.history.runs import history_of
from retention.ingest.append import Appended
from retention.ingest.dataframe import append_mapped, is_spark_frame, streaming_sink
from retention.ingest.idempotency import append_identity, last_batches
from retention.ingest.records import append_records
from retention.inspect.messages import Selection, read_messages
from retention.inspect.removed_message import explain_removed
from retention.inspect.simulation import simulate
from retention.inspect.state import state_of
from retention.plan.compaction import CompactionPlan
from retention.plan.plan import Plan
from retention.plan.planfile import save_plans
from retention.plan.simulation import SIMULATED_AT, simulation_request
from retention.planners.explain import explain, explain_by
from retention.planners.requests import plan_removal
from retention.planners.shown import plan_stream
from retention.plots.picture import Picture
from retention.restore.run import Restored, restore
from retention.restore.select import MessageRange
from retention.rules.requests import Drop, Request, purge_request
from retention.views.frames import RunRecords
from retention.views.html import plan_html
from retention.views.notebook import (
    ShownCompaction,
    ShownExplanation,
    ShownReport,
    ShownSimulation,
    ShownState,
)
from retention.views.text import plan_text
from retention.views.text_compaction import compaction_plan_text
from retention.views.wording import lines_text

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@checked_class
@dataclass(frozen=True)
class Log(Public, Repairs, LogVerification, LogPictures):
    """A stream or topic of a warehouse."""

    opened: OpenedStream
    engine: EngineName | None = None
    """The engine, which overrides the configuration's; None: the configuration's."""

    @property
    def name(self) -> str:
        """The name used in commands."""
        return self.opened.name

    def plan(self, as_of: Instant = None) -> BoundPlan:
        """Plan one pass; nothing is changed.

        Raises:
            UsageError: `as_of` is not an instant.
            RefusedError: the configuration or the table requires a feature that this version lacks.
        """
        with Engines(self.engine) as engines:
            return BoundPlan(self, plan_stream(self.opened, self.instant(as_of), engines))

    def explain(self, seq: int, as_of: Instant = None, partition: int = 0) -> ShownExplanation:
        """Explain why a pass at `as_of` keeps or removes a message; for a removed one, which run removed it and why.

        Args:
            seq: its sequence, or its offset in a topic.
            as_of: the pass's instant.
            partition: the message's partition.

        Raises:
            MissingMessageError: there is no such message, and no run with a record removed it.
        """
        try:
            with Engines(self.engine) as engines:
                explanation = explain(self.opened, seq, self.instant(as_of), engines, partition)
        except MissingMessageError:
            if not has_table(self.opened):
                raise
            explanation = explain_removed(self.opened, (partition, seq), self.opened.clock())
        return ShownExplanation(**vars(explanation))

    def simulate(
        self,
        variants: Mapping[str, Mapping[str, object]] | None = None,
        at: Iterable[Instant] = SIMULATED_AT,
        growth: str = "none",
        as_of: Instant = None,
        *,
        exact: bool = False,
        **settings: object,
    ) -> ShownSimulation:
        """Simulate what policies would keep, beside the configured one; nothing is changed, and no data file opened.

        Args:
            variants: name of each policy → its limits, with the keys and values of the configuration.
            at: the instants of passes, such as `now+30d`, where `now` is `as_of`.
            growth: the messages stored from `as_of` on: `none`, `history` (as in the last 30 days of its messages), or
                a number a day, such as `5000/day`.
            as_of: the instant at which growth begins.
            exact: whether to read rows, for exact numbers instead of bounds; without growth.
            settings: the limits of one more policy: `simulate(max_age="7d")`.

        Raises:
            UsageError: a setting is not a limit, or not valid; or the stream was never written to.
            RefusedError: files of another writer have no statistics yet; or growth is assumed, but consumers release.
        """
        request = simulation_request(
            variants, settings, at, self.instant(as_of), growth, exact=exact
        )
        with Engines(self.engine) as engines:
            simulation = simulate(self.opened, engines, request)
        return ShownSimulation(**vars(simulation))

    def purge(
        self, subject: str | None = None, seq: int | None = None, keep: int | None = None
    ) -> BoundPlan:
        """Plan the removal of all messages, or of some; `apply` of the plan carries it out.

        Args:
            subject: only subjects that match this filter, with `*` for one token and a last `>` for one or more.
            seq: only messages below it; without `subject`, one beyond the last also moves the next sequence there.
            keep: the number of newest messages to keep; not together with `seq`.

        Raises:
            UsageError: `subject` is not a filter, or `seq` and `keep` are both given.
            RefusedError: the stream is sealed, or denies purges; or it is a topic, and not all messages are selected.
        """
        return self._removal(purge_request(subject, seq, keep))

    def drop(self) -> BoundPlan:
        """Plan the removal of the whole log; `apply` of the plan carries it out, `undo` restores it within the grace.

        The first write afterwards creates a new table, with an id of its own and sequences from the first one on.

        Raises:
            UsageError: it was never written to, or was dropped already.
        """
        return self._removal(Drop())

    def _removal(self, request: Request) -> BoundPlan:
        with Engines(self.engine) as engines:
            return BoundPlan(self, plan_removal(self.opened, request, engines).plan)

    def compact(
        self, limits: CompactionLimits | None = None
    ) -> DryRun[CompactionPlan, ShownCompaction]:
        """Merge files where it is worth the cost, best merges first; no message is changed, added or removed.

        Raises:
            ForeignRowsError, DamagedError: the files break the storage rules, or are damaged.
            BusyError: another run is in progress; from `apply()`.
        """
        within = limits or CompactionLimits()

        def act() -> ShownCompaction:
            with Engines(self.engine) as engines:
                return ShownCompaction(**vars(compact_now(self.opened, engines, within)))

        return DryRun(
            lambda: show_compaction(self.opened, within.max_bytes), act, compaction_plan_text
        ).looked()

    def state(self, as_of: Instant = None) -> ShownState:
        """The contents, and the minimum that a pass at `as_of` would remove; `to_pandas()` makes a data frame of it."""
        return ShownState(**vars(state_of(self.opened, self.instant(as_of))))

    def messages(self, wanted: Selection | None = None) -> Iterator[pa.Table]:
        """Messages by partition and sequence, in Arrow tables of shape `retention.schemas.messages.MESSAGES`."""
        return read_messages(self.opened, wanted or Selection())

    def history(self) -> RunRecords:
        """The outcomes of its runs, newest first; `to_pandas()` makes a data frame of them."""
        return RunRecords(
            record.as_json() for record in history_of(self.opened.warehouse, self.name).outcomes()
        )

    def read(self, spark: SparkSession) -> DataFrame:
        """The live messages as a Spark DataFrame."""
        from retention.engines.spark.read import read_frame

        return read_frame(self.opened, spark)

    def append(  # noqa: PLR0913  (a person names them)
        self,
        frame: DataFrame | Given,
        writer: str | None = None,
        batch_id: int | None = None,
        *,
        any_time: bool = False,
        order_by: Iterable[str] | None = None,
        where: str | None = None,
        tombstone: str | None = None,
        payload: WholeRow | None = None,
    ) -> Appended:
        """Append a Spark DataFrame as one commit, or, in this process, anything that `publish` accepts.

        Args:
            frame: of a stream `subject`, `payload`, optional `headers`, `ts_ns` or `time`: its rows get sequences in
                the order of `order_by`, then of time, subject, headers and payload. Of a topic `payload`, optional
                `partition` or `key`, `id`, `headers`, `origin_ts_ns`: its rows get offsets in the order of
                `order_by`, then of `origin_ts_ns`, id, headers and payload.
            writer: the writer's name; `append`, if only a batch is given.
            batch_id: makes the append exactly once: a number that rises with each of the writer's batches.
            any_time: accept times before 1990, which are otherwise refused as being in a wrong unit, such as
                milliseconds in `ts_ns`.
            order_by: columns that order the rows; None: an offset of the frame with its partition (`kafka_offset`,
                `offset`, `seq` and others), if it has one. `Appended.order_by` has the columns used.
            where: an SQL condition over a Spark frame; only rows for which it is true are appended.
            tombstone: an SQL condition over a Spark frame; rows for which it is true become deletions of their keys.
            payload: `all` makes the whole row of a Spark frame, as JSON, the payload.

        Raises:
            UsageError: a column is missing, a row is not a valid message, its time is refused, or its payload is null.
            RefusedError: a topic's server would refuse a row.
        """
        identity, times = append_identity(writer, batch_id), accepted_times(any_time=any_time)
        mapping = _mapping(order_by, where, tombstone, payload)
        if is_spark_frame(frame):
            return append_mapped(self.opened, frame, mapping, identity, times)
        refuse_sql(mapping)
        with open_lines(frame) as records:
            return append_records(self.opened, records, identity, times, mapping.order_by)

    def last_batches(self) -> dict[str, int]:
        """Writer → the number of its last batch; batches up to that number are not written again."""
        store = self.opened.store
        return last_batches(store.snapshot().counters) if store.exists() else {}

    def sink(
        self,
        writer: str,
        *,
        any_time: bool = False,
        order_by: Iterable[str] | None = None,
        where: str | None = None,
        tombstone: str | None = None,
        payload: WholeRow | None = None,
    ) -> Callable[[DataFrame, int], None]:
        """A function for `foreachBatch` of a streaming query: each of its batches is appended exactly once.

        Args:
            writer: one name per checkpoint.
            any_time: as for `append`, like `order_by`, `where`, `tombstone` and `payload`.
            order_by: within a batch; batches follow each other.
            where: as for `append`.
            tombstone: as for `append`.
            payload: as for `append`.
        """
        mapping = _mapping(order_by, where, tombstone, payload)
        return streaming_sink(self.opened, writer, mapping, accepted_times(any_time=any_time))

    def restore(
        self,
        archive: str | None = None,
        wanted: MessageRange | None = None,
        into: Log | None = None,
    ) -> Restored:
        """Restore removed messages from an archive: to their original positions, or into a new stream.

        Args:
            archive: its location; None: the configured one.
            wanted: the messages to restore; None: all.
            into: a stream or topic that was never written to; None: this one, whose existing messages are kept.

        Raises:
            UsageError: there is no such archive, or it lacks the requested messages.
            DamagedError: it is damaged or incomplete.
            RefusedError: its messages come from another table; or `into` was written to.
        """
        target = None if into is None else into.opened
        with Engines(self.engine) as engines:
            return restore(self.opened, archive, wanted or MessageRange(), target, engines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r} in {self.opened.warehouse})"

    def _repr_html_(self) -> str:
        config = self.opened.config
        about = {"stream": self.name, "warehouse": self.opened.warehouse, "format": config.format}
        return fields_html(
            type(self).__name__.lower(), about | {"policy": describe(config.policy())}
        )


@checked_class
@dataclass(frozen=True, repr=False)
class BoundPlan(Public):
    """A plan together with its stream or topic."""

    stream: Log
    plan: Plan

    def explain(self, seq: int, partition: int = 0) -> ShownExplanation:
        """Explain why this plan keeps or removes a message, regardless of later changes.

        Raises:
            UsageError: there is no such message.
            StalePlanError: a file that the plan was made from was removed.
        """
        explanation = explain_by(self.stream.opened, self.plan, (partition, seq))
        return ShownExplanation(**vars(explanation))

    def apply(
        self, *, allow_future: bool = False, allow_rewind: bool = False, allow_large: bool = False
    ) -> ShownReport:
        """Carry out the plan, unchanged.

        Args:
            allow_future: whether its instant may be later than the clock.
            allow_rewind: whether its instant may be earlier than the last applied one.
            allow_large: whether it may remove more than the stream's `guards` permit at once.

        Raises:
            StalePlanError: the stream has changed since: plan again.
            RefusedError: the plan's instant is later than the clock, or earlier than the last applied one; or it
                removes more than a guard permits.
            BusyError: another run is in progress.
        """
        with Engines(self.stream.engine) as engines:
            guards = Guards(allow_future, allow_rewind, allow_large)
            report = apply_plan(self.stream.opened, self.plan, engines, guards)
        return ShownReport(**vars(report))

    def save(self, path: str | Path) -> None:
        """Write the plan to a file for `retention apply`.

        Raises:
            UsageError: the file exists and is not a saved plan, or the same is true of a file beside it.
        """
        save_plans(str(path), [self.plan])

    def plot(self) -> Picture:
        """Draw the messages of each day, or segment: those kept, and those that each rule removes.

        Raises:
            UsageError: matplotlib is not installed here.
            StalePlanError: the plan was made without all segments, and the stream has changed since.
        """
        return plot_plan(self.stream.opened, self.plan)

    def to_pandas(self) -> pd.DataFrame:
        """The files that the plan touches, one row each: the messages removed from each, and by which rule."""
        files: pd.DataFrame = self.plan.actions.files_with_rules.to_pandas()
        return files

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """The rows of `to_pandas` as a Spark DataFrame."""
        from retention.engines.spark.frames import spark_frame

        return spark_frame(spark, self.plan.actions.files_with_rules)

    def as_json(self) -> JsonObject:
        """The numbers of the plan as JSON values."""
        return self.plan.summary() | self.plan.forecast.as_json()

    def __repr__(self) -> str:
        return lines_text(plan_text(self.plan))

    def _repr_html_(self) -> str:
        return plan_html(self.plan)


def _mapping(
    order_by: Iterable[str] | None,
    where: str | None,
    tombstone: str | None,
    payload: WholeRow | None,
) -> ColumnMapping:
    """The column mapping from a frame's rows to messages, from the caller's options."""
    order = None if order_by is None else tuple(order_by)
    return ColumnMapping({}, order, where, tombstone, whole_row=payload is not None)
