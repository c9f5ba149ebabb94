"""Execution of one plan: staged and verified additions, one commit, two records in the run history, one report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from retention.apply.archive import Archived, LeavingFiles, archive
from retention.apply.guards import Guards
from retention.apply.keep_ids import keep_ids_of
from retention.apply.permits import permit_of
from retention.apply.plan_record import intent_of, kept_after, outcome_of, sequences_after
from retention.apply.preconditions import check_pins
from retention.apply.recorded_run import Change, RecordedRun, recorded_run
from retention.apply.replay_terms import replay_terms
from retention.apply.stage import Additions, stage_additions
from retention.context.context import OpenedStream
from retention.context.holds import expired_since
from retention.core.inventory import ReadCount
from retention.core.table_requirements import AssertEpoch
from retention.core.table_updates import (
    SetDropped,
    set_epoch,
    set_next_seqs,
    set_open_bases,
)
from retention.core.units import SECOND
from retention.datafile.parquet import stats_table
from retention.datafile.segment_writer import PARTITION
from retention.engines.select import Engines
from retention.history.report import RunReport
from retention.history.runs import History
from retention.interest.commit_offsets import raise_watermark
from retention.plan.plan import Plan
from retention.plan.run_ranges import ranges_of_plan
from retention.planners.cached import Planned
from retention.ports import Snapshot
from retention.rules.erase import Erase
from retention.rules.requests import Drop
from retention.schemas.files import FILE_STATS
from retention.stores.layout import note_dropping


@dataclass(frozen=True)
class Work:
    """The work done to carry out a plan."""

    read: ReadCount = field(default_factory=ReadCount)
    bytes_written: int = 0
    version_before: int = -1
    version_after: int = -1
    archived: Archived | None = None


@dataclass(frozen=True)
class ExecutionTerms:
    """The terms on which a plan is carried out."""

    engines: Engines
    """The engines that copy rows."""
    guards: Guards | None = None
    """Guards checked at the commit as well; None: a person requested the removal, and no guard applies."""


def carry_out(
    opened: OpenedStream,
    planned: Planned,
    terms: ExecutionTerms,
    history: History,
    run: str,
    started: int,
) -> RunReport:
    """Carry a plan out, under the stream's maintenance lease.

    Args:
        opened: the stream.
        planned: the plan, and the snapshot and statistics that it was made from.
        terms: where rows are copied, and which guards the commit must pass.
        history: where the run is recorded.
        run: the name of the run.
        started: when the run began, nanoseconds since the epoch.

    Raises:
        StalePlanError: a pinned file is gone or changed, or another run is spending the same approval.
        RefusedError: at the commit the table has too few messages for a guard to permit the plan.
        ConflictError: an append committed first, and the plan sets the next sequence.
        VerificationError: a staged copy differs from the plan; nothing was committed.
    """
    plan, engines = planned.plan, terms.engines
    raise_watermark(opened, plan.header.request, plan.header.epoch)
    if plan.is_empty and planned.goes_on is None:
        return _recorded_alone(opened, planned, run, history, started)
    snapshot = planned.snapshot or pinned(opened, plan)
    plan = replace(plan, header=replace(plan.header, version=snapshot.version))
    epochs = _epochs(plan, snapshot, history)
    permit = permit_of(opened, history, plan, snapshot, run, terms.guards)
    with recorded_run(opened, snapshot, run) as recorded:
        prepared = prepare(opened, plan, engines, recorded)
        intent = intent_of(replace(planned, plan=plan), run, epochs).updated(
            spark_application=engines.application(),
            approval=permit.approval,
            reason=None if terms.guards is None else terms.guards.reason,
            **kept_after(plan, prepared.change),
        )
        change = _change(opened, plan, prepared, epochs)
        replay = replay_terms(opened, planned, run)
        change = replace(
            change,
            requirements=[*change.requirements, *permit.requirements, *replay.requirements],
            updates=[*change.updates, *replay.updates],
        )
        version = recorded.commit(intent, change).committed_version
        size, archived = prepared.additions.bytes, prepared.archived
        work = Work(prepared.read, size, plan.header.version, version, archived)
        report = report_of(opened, plan, run, work, started)
        recorded.outcome = outcome_of(history, intent, report)
    return report


@dataclass(frozen=True)
class Prepared:
    """Everything written before a plan is committed."""

    additions: Additions
    archived: Archived | None
    ids_read: ReadCount
    change: Change
    """The removal, with its copies and markers."""

    @property
    def read(self) -> ReadCount:
        """The files and bytes read to prepare it."""
        archived = self.archived.read if self.archived else ReadCount()
        return self.additions.read + self.ids_read + archived


def prepare(opened: OpenedStream, plan: Plan, engines: Engines, run: RecordedRun) -> Prepared:
    """Stage the files that a plan adds, archive those that it removes, and keep the message ids that still count.

    Raises:
        StalePlanError: messages were appended since, and the plan writes markers.
        VerificationError: a staged copy differs from the plan; nothing was committed.
    """
    additions = stage_additions(opened, plan, engines, run)
    archived = _archived(opened, plan, run.snapshot, engines)
    ids_read = _keep_ids(opened, plan, run.snapshot)
    if isinstance(plan.header.request, Drop):
        note_dropping(opened.layout, opened.config.format)
    change = Change(
        remove=plan.actions.files.select(FILE_STATS.names),
        add=stats_table(additions.stats),
        archived=archived,
        ranges=ranges_of_plan(plan),
    )
    return Prepared(additions, archived, ids_read, change)


def _keep_ids(opened: OpenedStream, plan: Plan, snapshot: Snapshot) -> ReadCount:
    """Keep the ids of removed messages; those of erased ones count no more."""
    if isinstance(plan.header.request, Erase):
        return ReadCount()
    return keep_ids_of(opened, plan, snapshot)


def _recorded_alone(
    opened: OpenedStream, planned: Planned, run: str, history: History, started: int
) -> RunReport:
    """Record a run with nothing to commit, but no pass without a policy: it would count as the last pass."""
    plan = planned.plan
    work = Work(version_before=plan.header.version, version_after=plan.header.version)
    report = report_of(opened, plan, run, work, started)
    if opened.is_listed or plan.header.request is not None:
        intent = intent_of(planned, run, (plan.header.epoch, plan.header.epoch))
        outcome = outcome_of(history, intent, report).updated(**kept_after(plan, Change()))
        history.finish(outcome)
    if planned.snapshot is not None:
        # Finish what a killed run left undone after its commit.
        opened.store.finish()
    return report


def _archived(
    opened: OpenedStream, plan: Plan, snapshot: Snapshot, engines: Engines
) -> Archived | None:
    """Copy departing files to the stream's archive; None: none is configured, no such file, or they are erased."""
    if opened.config.archive is None or isinstance(plan.header.request, Erase):
        return None
    files = plan.actions.files_with_rules
    leaving = LeavingFiles(files, plan.plan_id, plan.header.as_of_ns, plan.by_rule)
    return archive(opened, leaving, snapshot, engines)


def pinned(opened: OpenedStream, plan: Plan) -> Snapshot:
    """Open the table, and verify that every pinned file is as the plan has it.

    Raises:
        StalePlanError: one is gone or changed.
    """
    if not plan.header.table_id:
        opened.store.create()
    snapshot = opened.store.snapshot()
    check_pins(plan, snapshot)
    return snapshot


def _change(
    opened: OpenedStream, plan: Plan, prepared: Prepared, epochs: tuple[int, int]
) -> Change:
    drops = isinstance(plan.header.request, Drop)
    bases = _first_bases(opened) if plan.header.begins_epoch else prepared.additions.open_base
    return replace(
        prepared.change,
        requirements=[AssertEpoch(epochs[0])],
        stepped_over=_stepped_over(plan),
        begins_epoch=plan.header.begins_epoch,
        asks_consumers=plan.pins.consumers is not None,
        updates=[
            *set_next_seqs(sequences_after(plan)),
            *set_open_bases({} if drops else bases),
            *set_epoch(*epochs),
            *([SetDropped(opened.clock())] if drops else ()),
        ],
        metadata={
            "plan_id": plan.plan_id,
            "as_of_ns": plan.header.as_of_ns,
            "by_rule": plan.by_rule,
        },
    )


def _stepped_over(plan: Plan) -> dict[int, int]:
    """Partition → the highest sequence that a plan assigns without storing it.

    Sequences that a purge skips, and markers evicted in the pass that writes them, count as removed.
    """
    stored = set(plan.actions.markers["seq"].to_pylist())
    first, after = plan.actions.sequences or (0, 0)
    last = next((seq for seq in range(after - 1, first - 1, -1) if seq not in stored), None)
    return {} if last is None else {PARTITION: last}


def _epochs(plan: Plan, snapshot: Snapshot, history: History) -> tuple[int, int]:
    """The epochs before and after a plan's commit: a new one has the number of a version, which is never reused.

    In a table restored from a copy a version may be reused: the new epoch then exceeds every epoch in the run history.
    """
    if not plan.header.begins_epoch:
        return plan.header.epoch, plan.header.epoch
    return plan.header.epoch, max(snapshot.version, history.last_epoch()) + 1


def _first_bases(opened: OpenedStream) -> dict[int, int]:
    """Partition → the base of its segment when an epoch begins."""
    return dict.fromkeys(range(opened.config.partitions), 0)


def report_of(opened: OpenedStream, plan: Plan, run: str, work: Work, started: int) -> RunReport:
    """The report of a run, or of the run that an empty stream would have had."""
    read = plan.header.read + work.read
    segments: Mapping[str, int] = asdict(plan.header.segments)
    return RunReport(
        run=run,
        stream=opened.name,
        plan_id=plan.plan_id,
        as_of_ns=plan.header.as_of_ns,
        removed_messages=plan.removed_messages,
        removed_bytes=plan.removed_bytes,
        by_rule=plan.by_rule,
        segments=segments,
        files_read=read.files,
        bytes_read=read.bytes,
        bytes_written=work.bytes_written,
        seconds=round((opened.clock() - started) / SECOND, 6),
        version_before=work.version_before,
        version_after=work.version_after,
        markers=plan.actions.markers.num_rows,
        deleted_consumers=[pin.consumer for pin in plan.pins.expired],
        held=plan.held_as_json,
        overdue=None if plan.overdue is None else plan.overdue.as_json(),
        archived=work.archived.as_json() if work.archived else None,
        dropped=None if plan.dropped is None else plan.dropped.as_json(),
        guards=[finding.as_json() for finding in plan.guards] or None,
        kept_by_holds=plan.kept_by_holds,
        expired_holds=expired_since(opened, started) or None,
    )
