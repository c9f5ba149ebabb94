"""Leftovers of killed processes: noted when first seen, and deleted once noted for the grace period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention.apply.orphans import Orphan, orphans
from retention.apply.reclaim.claim import Deletion, delete_dead, drop_spent, unlink
from retention.apply.reclaim.records import KeptRun
from retention.apply.reclaim.report import Amount, ReclaimReport
from retention.apply.reclaim.survey import dead_files
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream, has_table
from retention.context.holds import refuse_held
from retention.context.maintenance import removing
from retention.context.ownership import refuse_other_owner
from retention.core.reclaim import DeadFile, Hindrance, Reason
from retention.history.runs import history_of
from retention.storage import files
from retention.storage.crash_points import Step
from retention.storage.sidecar import JsonCodec, Sidecar
from retention.stores.layout import Layout
from retention.stores.storage_clock import agreed_now

LEFTOVERS = "leftovers"
"""The reason for deleting files left by a killed process and first seen before the grace period."""
UNMARKED = "unmarked"
"""The hindrance for data files that no commit names, and that are not marked as ours."""


@dataclass(frozen=True)
class Leftover:
    """A file that nothing accounts for."""

    place: str
    bytes: int
    since_ns: int
    """The later of its last write and the time when it was first seen; nanoseconds since the epoch."""
    path: str | None
    """The path in the table, if it is a data file."""
    is_marked: bool
    """Whether its location, or its subject digest, marks it as ours."""


def find_leftovers(opened: OpenedStream) -> ReclaimReport:
    """Report what `reclaim_leftovers` would delete now; nothing is changed, and every file of the stream is listed.

    Raises:
        DamagedError: the log cannot be read.
    """
    if not has_table(opened):
        return ReclaimReport(opened.name, opened.config.grace_ns)
    now_ns = opened.clock()
    grace_ns = _grace_ns(opened)
    decision = _decide(_met(opened, _noted(opened).load() or {}, now_ns), now_ns - grace_ns)
    return ReclaimReport(opened.name, grace_ns, _amounts(decision.to_delete), decision.kept)


def reclaim_leftovers(opened: OpenedStream) -> ReclaimReport:
    """Delete leftovers that were first seen before the grace period; note newly seen ones.

    Raises:
        BusyError, RefusedError, StalePlanError, DamagedError: as `reclaim_now`.
    """
    if not has_table(opened):
        return ReclaimReport(opened.name, opened.config.grace_ns, is_done=True)
    refuse_other_owner(opened)
    history = history_of(opened.warehouse, opened.name)
    layout = opened.layout
    with removing(opened):
        settle_interrupted(opened, history)
        refuse_held(opened, opened.store.snapshot().counters, "a reclaim of leftovers")
        now_ns = agreed_now(layout, opened.clock())
        dead_files(opened).settle()
        grace_ns, noted = _grace_ns(opened), _noted(opened)
        met = _met(opened, noted.load() or {}, now_ns)
        if met:
            noted.write({item.place.removeprefix(opened.root): item.since_ns for item in met})
        decision = _decide(met, now_ns - grace_ns)
        deletion = _deleted(opened, decision.to_delete, now_ns - grace_ns)
        drop_spent(opened)
    deleted = _amounts(item for item in decision.to_delete if item.path not in deletion.spared)
    return ReclaimReport(opened.name, grace_ns, deleted, decision.kept, deletion.run, is_done=True)


@dataclass(frozen=True)
class _Decision:
    """Leftovers that may be deleted, and the amounts of kept ones, by hindrance."""

    to_delete: tuple[Leftover, ...]
    kept: dict[str, Amount]


def _decide(met: Iterable[Leftover], cutoff_ns: int) -> _Decision:
    to_delete: list[Leftover] = []
    kept: dict[str, Amount] = {}
    for item in met:
        if item.is_marked and item.since_ns < cutoff_ns:
            to_delete.append(item)
            continue
        hindrance = str(Hindrance.GRACE) if item.is_marked else UNMARKED
        kept[hindrance] = kept.get(hindrance, Amount()) + Amount(1, item.bytes)
    return _Decision(tuple(to_delete), kept)


def _amounts(items: Iterable[Leftover]) -> dict[str, Amount]:
    total = sum((Amount(1, item.bytes) for item in items), Amount())
    return {LEFTOVERS: total} if total.files else {}


def _deleted(opened: OpenedStream, to_delete: Sequence[Leftover], cutoff_ns: int) -> Deletion:
    """Delete leftovers: data files under a claim, all others at once."""
    layout = opened.layout
    trash = layout.engine_path("trash", "")
    dead = [
        DeadFile(
            item.path,
            item.bytes,
            Reason.REMOVED if item.place.startswith(trash) else Reason.ABANDONED,
            item.since_ns,
        )
        for item in to_delete
        if item.path is not None
    ]

    def deaths(_: Sequence[KeptRun]) -> list[DeadFile]:
        return dead

    snapshot = opened.store.snapshot()
    deletion = delete_dead(opened, snapshot, dead, cutoff_ns, deaths) if dead else Deletion()
    unlink([item.place for item in to_delete if item.path is None])
    return deletion


def _met(opened: OpenedStream, noted: Mapping[str, int], now_ns: int) -> list[Leftover]:
    """The current leftovers of a stream, except records of runs, which the run history accounts for."""
    layout = opened.layout
    history = history_of(opened.warehouse, opened.name)
    begun = {history.begun_location(run) for run in history.unfinished()}
    reports = layout.engine_path("reports", "")
    met = [
        _leftover(
            opened, layout, orphan, noted.get(orphan.location.removeprefix(opened.root), now_ns)
        )
        for orphan in orphans(opened)
        if orphan.location not in begun and not orphan.location.startswith(reports)
    ]
    # A data file's subject digest is deleted with it, and marks it as ours until then.
    digests = {layout.engine_path("subjects", item.path) for item in met if item.path is not None}
    return [item for item in met if item.place not in digests]


def _leftover(opened: OpenedStream, layout: Layout, orphan: Orphan, first_ns: int) -> Leftover:
    size, since_ns = files.length(orphan.location) or 0, max(orphan.since_ns, first_ns)
    marked = orphan.path is None or opened.table_format.is_own(layout, orphan.path)
    return Leftover(orphan.location, size, since_ns, orphan.path, marked)


def _grace_ns(opened: OpenedStream) -> int:
    """The longer of the configuration's grace period and the table's, nanoseconds."""
    kept_ns = dead_files(opened).kept_ns(opened.store.snapshot())
    return max(opened.config.grace_ns, kept_ns)


def _noted(opened: OpenedStream) -> Sidecar[dict[str, int]]:
    """The instants at which leftovers were first seen, by their location below the stream's directory."""
    codec = JsonCodec[dict[str, int]](dict, _instants)
    place = opened.layout.engine_path("leftovers.json")
    return Sidecar(place, codec, Step.LEFTOVERS_NOTED)


def _instants(_: object, fields: Mapping[str, Any]) -> dict[str, int]:
    return {str(place): int(at_ns) for place, at_ns in fields.items()}
