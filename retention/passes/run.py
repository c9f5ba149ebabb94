"""Runs: carry plans out, one commit each; every decision lies below."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from retention.engines.choice import Engines
from retention.errors import (
    BusyError,
    CommitUnknownError,
    ConflictError,
    HiddenRowsError,
    StalePlanError,
)
from retention.opened import OpenedStream
from retention.parquet_files import stats_table
from retention.passes.additions import Additions, stage_additions
from retention.passes.guards import Guards, check_instant, check_policy
from retention.passes.history import History, history_of
from retention.passes.plan import Plan
from retention.passes.planning import Planned, plan_pass, plan_stream
from retention.passes.purge import purge_vectors
from retention.passes.report import Report
from retention.passes.settling import settle_interrupted
from retention.passes.undo import keep_for_undo
from retention.passes.verify import check_pins
from retention.ports import Snapshot, Swap
from retention.segments import ReadCount
from retention.staging import PARTITION
from retention.stores.lease import lease
from retention.units import SECOND
from schemas.files import FILE_STATS, LOGGED_FILES

ATTEMPTS = 20
APPENDS_WAIT_S = 60.0


def apply_now(opened: OpenedStream, as_of_ns: int, engines: Engines, guards: Guards) -> Report:
    """Plan and apply in one go, under the stream's maintenance lease.

    Raises:
        BusyError: another run holds the lease, or the table keeps moving.
        RefusedError: `as_of_ns` lies in the future or before the last applied instant, or a guard of the table.
        VerificationError: a staged copy does not hold what the plan says; nothing was committed.
    """
    started = opened.clock()
    history = history_of(opened.warehouse, opened.name)
    check_instant(opened, history, as_of_ns, guards)
    if not opened.store.exists():
        plan = plan_stream(opened, as_of_ns, engines)
        return _report(opened, plan, history.name_run(started), _Work(), started)
    with lease(opened.root, "maintenance", opened.clock):
        settle_interrupted(opened, history)
        return _apply_until_committed(opened, as_of_ns, engines, history, started)


def _apply_until_committed(
    opened: OpenedStream, as_of_ns: int, engines: Engines, history: History, started: int
) -> Report:
    """Plan and carry out; where appends come between a plan with markers and its commit, again with appends held."""
    with ExitStack() as held:
        for _ in range(ATTEMPTS):
            planned = _plan_resolving_vectors(opened, as_of_ns, engines)
            try:
                return _carry_out(opened, planned, engines, history, started)
            except (ConflictError, StalePlanError):
                if planned.plan.sequences is None:
                    raise
            held.close()
            held.enter_context(lease(opened.root, "append", opened.clock, wait_s=APPENDS_WAIT_S))
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times messages were appended between the plan of a pass that writes delete markers "
        "and its commit; nothing was changed; try again later"
    )


def apply_plan(opened: OpenedStream, plan: Plan, engines: Engines, guards: Guards) -> Report:
    """Apply a plan that was made earlier, unchanged.

    Raises:
        StalePlanError: the files that it pinned moved, or the stream's policy has changed since.
        BusyError, RefusedError, VerificationError: as `apply_now`.
    """
    started = opened.clock()
    history = history_of(opened.warehouse, opened.name)
    if plan.is_empty and not opened.store.exists():
        check_instant(opened, history, plan.as_of_ns, guards)
        return _report(opened, plan, history.name_run(started), _Work(), started)
    with lease(opened.root, "maintenance", opened.clock):
        settle_interrupted(opened, history)
        snapshot = _pinned(opened, plan)
        check_policy(opened, plan)
        # Behind the pins: who came second is told to plan again, not that time runs backwards.
        check_instant(opened, history, plan.as_of_ns, guards)
        planned = Planned(
            replace(plan, version=snapshot.version), snapshot.counters.next_seq, snapshot
        )
        return _carry_out(opened, planned, engines, history, started)


def _plan_resolving_vectors(opened: OpenedStream, as_of_ns: int, engines: Engines) -> Planned:
    try:
        return plan_pass(opened, as_of_ns, engines)
    except HiddenRowsError as hidden:
        purge_vectors(opened, hidden, engines)
        return plan_pass(opened, as_of_ns, engines)


@dataclass(frozen=True)
class _Work:
    """What carrying a plan out did."""

    read: ReadCount = field(default_factory=ReadCount)
    bytes_written: int = 0
    version_before: int = -1
    version_after: int = -1


def _carry_out(
    opened: OpenedStream, planned: Planned, engines: Engines, history: History, started: int
) -> Report:
    plan = planned.plan
    run = history.name_run(started)
    if plan.is_empty:
        work = _Work(version_before=plan.version, version_after=plan.version)
        report = _report(opened, plan, run, work, started)
        _finish(history, report, planned.next_seq)
        return report
    snapshot = planned.snapshot or _pinned(opened, plan)
    plan = replace(plan, version=snapshot.version)
    added = stage_additions(opened, plan, snapshot, engines)
    try:
        version = _commit(opened, plan, run, added, snapshot, history)
    except CommitUnknownError:
        raise
    except BaseException:
        opened.store.discard([row["path"] for row in added.stats])
        raise
    work = _Work(added.read, added.bytes, plan.version, version)
    report = _report(opened, plan, run, work, started)
    _finish(history, report, {**planned.next_seq, **_sequences_after(plan)})
    opened.store.finish()
    return report


def _pinned(opened: OpenedStream, plan: Plan) -> Snapshot:
    """Open the table, in which every file must be as the plan has it."""
    snapshot = opened.store.snapshot()
    check_pins(plan, snapshot.files)
    return snapshot


def _commit(
    opened: OpenedStream,
    plan: Plan,
    run: str,
    added: Additions,
    snapshot: Snapshot,
    history: History,
) -> int:
    files = stats_table(added.stats)
    metadata = {
        "run": run,
        "plan_id": plan.plan_id,
        "as_of_ns": plan.as_of_ns,
        "by_rule": plan.by_rule,
    }
    keep_for_undo(opened, run, plan.files.select(FILE_STATS.names), files)
    history.begin(run, _record(plan) | {"status": "begun"})
    swap = Swap(
        remove=plan.files.select(LOGGED_FILES.names),
        add=files,
        metadata=metadata,
        next_seq=_sequences_after(plan),
        open_base=added.open_base,
    )
    return opened.store.commit(swap, snapshot)


def _sequences_after(plan: Plan) -> dict[int, int]:
    """Partition → the next sequence to assign, where markers have used some."""
    return {} if plan.sequences is None else {PARTITION: plan.sequences[1]}


def _record(plan: Plan) -> dict[str, Any]:
    return plan.summary() | {
        "kind": "apply",
        "as_of_ns": plan.as_of_ns,
        "policy": plan.policy.as_json(),
    }


def _finish(history: History, report: Report, next_seq: Mapping[int, int]) -> None:
    latest = max(report.as_of_ns, history.last_as_of_ns() or report.as_of_ns)
    record = report.as_json() | {
        "kind": "apply",
        "status": "done",
        "as_of_ns": report.as_of_ns,
        "latest_as_of_ns": latest,
        "next_seq": {str(partition): seq for partition, seq in next_seq.items()},
    }
    history.finish(report.run, record)


def _report(opened: OpenedStream, plan: Plan, run: str, work: _Work, started: int) -> Report:
    read = plan.read + work.read
    segments: Mapping[str, int] = asdict(plan.segments)
    return Report(
        run=run,
        stream=opened.name,
        plan_id=plan.plan_id,
        as_of_ns=plan.as_of_ns,
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
        markers=plan.markers.num_rows,
    )
