"""Runs: carry plans out, one commit each; every decision lies below."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from retention.copies import Copy, copy_without
from retention.engines.choice import Engines
from retention.errors import CommitUnknownError, HiddenRowsError
from retention.opened import OpenedStream
from retention.parquet_files import Description, stats_table
from retention.passes.guards import Guards, check_instant, check_policy
from retention.passes.history import History, history_of
from retention.passes.plan import Plan
from retention.passes.planning import Planned, plan_pass, plan_stream
from retention.passes.purge import purge_vectors
from retention.passes.report import Report
from retention.passes.settling import settle_interrupted
from retention.passes.undo import keep_for_undo
from retention.passes.verify import check_copy, check_pins
from retention.ports import Snapshot, Swap
from retention.segments import DataFile, ReadCount
from retention.stores.lease import lease
from retention.units import SECOND
from schemas.files import FILE_STATS, LOGGED_FILES


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
        planned = _plan_resolving_vectors(opened, as_of_ns, engines)
        return _carry_out(opened, planned, engines, history, started)


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
        if planned.snapshot is not None:
            # What a killed run left undone behind its commit is done now.
            opened.store.finish()
        return report
    snapshot = planned.snapshot or _pinned(opened, plan)
    plan = replace(plan, version=snapshot.version)
    copies = _copies(opened, plan)
    try:
        written = _stage(opened, plan, copies, engines)
        version = _commit(opened, plan, run, written, snapshot, history)
    except CommitUnknownError:
        raise
    except BaseException:
        opened.store.discard([copy.target.path for copy in copies])
        raise
    work = _Work(
        read=sum((copy.read for copy in written), ReadCount()),
        bytes_written=sum(copy.stats["file_bytes"] for copy in written),
        version_before=plan.version,
        version_after=version,
    )
    report = _report(opened, plan, run, work, started)
    _finish(history, report, planned.next_seq)
    opened.store.finish()
    return report


def _pinned(opened: OpenedStream, plan: Plan) -> Snapshot:
    """Open the table, in which every file must be as the plan has it."""
    snapshot = opened.store.snapshot()
    check_pins(plan, snapshot.files)
    return snapshot


def _copies(opened: OpenedStream, plan: Plan) -> list[Copy]:
    rewrites = plan.rewrites
    sources: list[DataFile] = opened.store.data_files(rewrites)
    return [
        Copy(source, opened.store.stage(source.partition, source.segment), plan.ranges_of(number))
        for source, number in zip(sources, rewrites["number"].to_pylist(), strict=True)
    ]


def _stage(
    opened: OpenedStream, plan: Plan, copies: list[Copy], engines: Engines
) -> list[Description]:
    rewrites = plan.rewrites
    weights = rewrites["file_bytes"].to_pylist()
    engine = engines.pick(opened.config.engine, sum(weights), opened.config.local_limit)
    written = engine.map(copy_without, copies, weights)
    for planned, copy in zip(rewrites.to_pylist(), written, strict=True):
        check_copy(opened.name, planned, copy.stats)
    return written


def _commit(
    opened: OpenedStream,
    plan: Plan,
    run: str,
    written: list[Description],
    snapshot: Snapshot,
    history: History,
) -> int:
    added = stats_table([copy.stats for copy in written])
    metadata = {
        "run": run,
        "plan_id": plan.plan_id,
        "as_of_ns": plan.as_of_ns,
        "by_rule": plan.by_rule,
    }
    keep_for_undo(opened, run, plan.files.select(FILE_STATS.names), added)
    history.begin(run, _record(plan) | {"status": "begun"})
    swap = Swap(remove=plan.files.select(LOGGED_FILES.names), add=added, metadata=metadata)
    return opened.store.commit(swap, snapshot)


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
    )
