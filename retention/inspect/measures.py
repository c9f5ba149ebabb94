"""Measures of a stream or table for monitoring: its size and lag, small files, and dead files that await a reclaim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from retention.apply.compact import show_compaction
from retention.apply.reclaim.report import Amount, ReclaimReport
from retention.apply.reclaim.run import plan_reclaim
from retention.context.context import OpenedStream
from retention.context.holds import holds_of
from retention.context.ownership import is_unlisted
from retention.core.units import DAY, SECOND
from retention.erasure.record import Erasures
from retention.inspect.lag import look
from retention.ports import Snapshot, VersionToken
from retention.rules.acting import acting_rules
from retention.stores.pauses import pause_of
from retention.stores.sidecar.kept_measures import KeptMeasures, keep_measures, recall_measures
from retention.stores.sidecar.last_verification import LastVerification, last_verification
from retention.tables.bounded_files import set_limits
from retention.tables.opened import OpenedTable
from retention.tables.state import state_of_table

LONGEST_KEPT_NS = 7 * DAY
"""The time for which the measures of an idle stream are reused: old log entries become due meanwhile."""


@dataclass(frozen=True)
class Measures:
    """The state of a stream in numbers, all from metadata."""

    lag_seconds: float | None
    """The time by which it is behind its policy; None: the next pass is refused, or it has no policy."""
    small_files: int
    """The files that a compaction would merge."""
    due_bytes: int
    """The length of dead files that a reclaim would delete."""
    waiting_bytes: int
    """The length of dead files that are kept, most of them until the grace period is over."""
    messages: int
    bytes: int
    """The bytes of the messages, as the broker counts them."""
    oldest_dead_seconds: float
    """The time since the oldest dead file on the disk died; 0 without dead files."""
    rules: Sequence[str]
    """The rules by which passes may remove messages."""
    is_paused: bool
    """Whether a person has paused removals."""
    holds: int
    """The number of legal holds in effect."""
    unfinished_erasures: int = 0
    """The erasures with something left to do."""
    verified: LastVerification | None = None
    """Its last finished verification; None: there was none."""


@dataclass(frozen=True)
class TableMeasures:
    """The state of a table in place in numbers, from its log."""

    lag_seconds: float | None
    """The time by which it is behind its limits; None: nothing may be removed from it."""
    rows: int
    bytes: int
    """The length of its files."""
    files: int
    rules: Sequence[str]
    """The limits by which passes may remove rows."""
    is_paused: bool
    """Whether a person has paused removals."""
    verified: LastVerification | None = None
    """Its last finished verification; None: there was none."""
    holds: int = 0
    """The legal holds in effect."""
    unfinished_erasures: int = 0
    """The erasures with something left to do."""


def measure_table(opened: OpenedTable, as_of_ns: int) -> TableMeasures:
    """Measure a table in place.

    Raises:
        RetentionError: it cannot be read.
    """
    state = state_of_table(opened, as_of_ns)
    lag = None if state.due is None else state.behind_ns(as_of_ns) / SECOND
    rules, is_paused = set_limits(opened.policy), state.paused is not None
    verified = last_verification(opened.home)
    return TableMeasures(
        lag,
        *(state.rows, state.bytes, state.files, rules, is_paused),
        verified,
        len(state.holds),
        len(state.erasures),
    )


def measure(opened: OpenedStream, as_of_ns: int) -> Measures:
    """Measure a stream or topic; for an idle one, earlier measures are reused for up to a week.

    Raises:
        RetentionError: it cannot be read, or not completely.
    """
    token, settings = _version_token(opened), _settings(opened)
    kept = None if token is None else recall_measures(opened.root, token, settings, as_of_ns)
    if kept is not None:
        return _measures(opened, as_of_ns, 0, kept, ReclaimReport(opened.name, 0))
    looked, dead = look(opened, as_of_ns), plan_reclaim(opened)
    measured = KeptMeasures(
        as_of_ns,
        min(looked.due_ns or as_of_ns, as_of_ns + LONGEST_KEPT_NS),
        sum(merge.files.num_rows for merge in show_compaction(opened).merges),
        pc.sum(looked.files["messages"], min_count=0).as_py(),
        pc.sum(looked.files["bytes"], min_count=0).as_py(),
    )
    is_at_rest = looked.due_ns is not None and not dead.total.files and not dead.staying
    if token is not None and is_at_rest and token == _version_token(opened):
        keep_measures(opened.root, token, settings, measured)
    behind_ns = None if looked.lag is None else looked.lag.behind_ns(as_of_ns)
    return _measures(opened, as_of_ns, behind_ns, measured, dead)


def _version_token(opened: OpenedStream) -> VersionToken | None:
    """The token of the state, if it alone determines the measures; None: they depend on offsets or consumers too."""
    policy = opened.config.policy()
    if policy.topic is not None or policy.asks_consumers or not opened.table.exists():
        return None
    return opened.table.version_token() or _token(opened.store.snapshot())


def _token(snapshot: Snapshot) -> VersionToken | None:
    return None if snapshot.seal is None else VersionToken(snapshot.version, snapshot.seal)


def _settings(opened: OpenedStream) -> dict[str, object]:
    """The settings on which measures depend: the policy, and the sizes below which files are small."""
    config = opened.config
    sizes = [config.segment_size, config.segment_span_ns, config.whole_segments, config.most_files]
    return {"policy": config.policy().as_json(), "compact": repr(config.compact), "sizes": sizes}


def _measures(
    opened: OpenedStream,
    as_of_ns: int,
    behind_ns: int | None,
    measured: KeptMeasures,
    dead: ReclaimReport,
) -> Measures:
    return Measures(
        None if behind_ns is None or is_unlisted(opened) else behind_ns / SECOND,
        measured.small_files,
        dead.total.bytes,
        sum(dead.staying.values(), Amount()).bytes,
        measured.messages,
        measured.bytes,
        0.0 if dead.oldest_ns is None else max(as_of_ns - dead.oldest_ns, 0) / SECOND,
        acting_rules(opened.config.policy()),
        pause_of(opened.warehouse, opened.root, opened.name) is not None,
        len(holds_of(opened)),
        len(Erasures(opened.root, opened.name).unfinished_ids()),
        last_verification(opened.root),
    )
