"""Execution of one plan: staged and verified additions, one commit, two records in the run history, one report."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from retention.apply.archive import Archived, LeavingFiles, archive
from retention.apply.change import Change
from retention.apply.execution import ExecutionTerms, Work, report_of
from retention.apply.keep_ids import keep_ids_of
from retention.apply.permits import permit_of
from retention.apply.plan_record import intent_of, kept_after, outcome_of, sequences_after
from retention.apply.preconditions import check_pins
from retention.apply.recorded_run import RecordedRun, recorded_run
from retention.apply.replay_terms import replay_terms
from retention.apply.stage import Additions, stage_additions
from retention.context.context import OpenedStream
from retention.core.read_count import ReadCount
from retention.core.table_requirements import AssertEpoch
from retention.core.table_updates import (
    SetDropped,
    set_epoch,
    set_next_seqs,
    set_open_bases,
)
from retention.datafile.parquet import stats_table
from retention.datafile.segment_writer import PARTITION
from retention.engines.select import Engines
from retention.errors import RetentionError
from retention.history.report import RunReport
from retention.history.runs import History
from retention.plan.plan import Plan
from retention.plan.run_ranges import ranges_of_plan
from retention.planners.after_pass import remember_left
from retention.planners.cached import Planned
from retention.ports import Snapshot
from retention.rules.erase import Erase
from retention.rules.requests import Drop
from retention.schemas.files import FILE_STATS
from retention.stores.layout import note_dropping


def execute(
    opened: OpenedStream,
    planned: Planned,
    terms: ExecutionTerms,
    history: History,
    run: str,
    started: int,
) -> RunReport:
    """Commit a plan that changes something, as `carry_out` has it."""
    plan, engines = planned.plan, terms.engines
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
    with suppress(OSError, RetentionError):
        # Without it, the next run opens the table, and reports what is wrong there.
        remember_left(opened, planned, run, snapshot, version)
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
