"""One run in detail: its removals by segment and rule, its operator, and the messages, while files or records exist."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.run_evidence import TakenByRun
from retention.context.context import OpenedStream
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.policy import policy_from_json
from retention.core.units import format_instant
from retention.errors import UsageError
from retention.history.kinds import Applied, PlannedRun, Undone
from retention.history.record import RunRecord
from retention.history.runs import history_of
from retention.inspect.removals import RemovalRun, is_undoing
from retention.inspect.taken import Taken
from retention.plan.removed_again import RemovedAgain, removed_again
from retention.schemas.runs import RUN_RANGES

_SHOWN = ("seq", "subject", "ts_ns", "size")
_OF_SEGMENT = ["partition", "segment"]
_OF_FILE = [*_OF_SEGMENT, "messages", "bytes"]
_SUMS = [("messages", "sum"), ("bytes", "sum", pc.ScalarAggregateOptions(skip_nulls=False))]


@dataclass(frozen=True)
class SegmentLoss:
    """The messages that a run removed from one segment."""

    partition: int
    segment: int
    files: int
    messages: int
    bytes: int | None
    """Bytes by the broker's accounting; None: not counted."""
    by_rule: Mapping[str, int] | None
    """Rule → messages; empty for a repair, None if an earlier version of this program recorded no rules."""


@dataclass(frozen=True, repr=False)
class RunDetails(Displayed):
    """A run of a stream, by its records and files."""

    removal: RemovalRun
    now_ns: int
    """The clock, which decides whether the grace period is over."""
    removed_again: RemovedAgain | None = None
    """For an undo with no pass after it: the messages that the next pass removes again; None: nothing certain."""

    @property
    def outcome(self) -> RunRecord:
        """The run's record in the run history."""
        return self.removal.outcome

    @property
    def has_removed(self) -> bool:
        """Whether the run may have removed messages, so that there is something to restore."""
        return bool(self.outcome.removed_messages) or self.outcome.ends_epoch is not None

    @cached_property
    def taken(self) -> TakenByRun | None:
        """The messages that the run removed, as from `RemovalRun.ranges`."""
        return self.removal.ranges()

    @property
    def has_ranges(self) -> bool:
        """Whether the messages that the run removed are known."""
        return self.taken is not None and self.taken.is_exact

    def segments(self) -> list[SegmentLoss]:
        """Segments that lost messages, in order."""
        if self.taken is None:
            return []
        losses = _of_ranges if self.taken.is_exact else _of_files
        return losses(self.taken.tables())

    def messages(self) -> Iterator[dict[str, Any]]:
        """Every removed message, one range after the other; for a deleted file, only the range.

        A message has `partition`, `segment`, `seq`, `subject`, `ts_ns`, `size` and `rules`; a range of a deleted file
        has `partition`, `segment`, `first_seq`, `last_seq`, `messages` and `rules`.
        """
        tables = self.taken.tables() if self.taken is not None and self.has_ranges else ()
        for row in (row for table in tables for row in table.to_pylist()):
            place = {name: row[name] for name in _OF_SEGMENT}
            rows = self.removal.read(row, _SHOWN)
            if rows is None:
                kept = {name: row[name] for name in ("first_seq", "last_seq", "messages", "rules")}
                yield place | kept
                continue
            yield from (
                place | message | {"rules": row["rules"]}
                for batch in rows.to_batches()
                for message in batch.to_pylist()
            )

    def notes(self) -> list[str]:
        """All non-numeric facts about the run, a line each."""
        outcome, removal = self.outcome, self.removal
        lines = [
            f"began {format_instant(removal.removed_ns)}, as of {format_instant(outcome.as_of_ns)}",
            f"run by {removal.who()}",
        ]
        lines += [removal.reason(rule) for rule in outcome.by_rule]
        if isinstance(outcome, PlannedRun) and outcome.reason is not None:
            lines.append(f"refusals were lifted, because: {outcome.reason}")
        if isinstance(outcome, Undone):
            lines.append(f"undid run {outcome.undoes}")
        if self.removed_again is not None:
            lines.append(self.removed_again.sentence)
        if self.has_removed:
            lines.append(removal.recovery(self.now_ns).sentence)
            if self.removal.is_forgotten():
                lines.append(
                    "the messages that it removed are not recorded: earlier versions of this program kept no such "
                    "record, or deleted it with reclaim"
                )
            elif not self.has_ranges:
                lines.append(
                    "the messages that it removed are not recorded: an earlier version of this program recorded only "
                    "whole files"
                )
        return lines

    def display_fields(self) -> JsonObject:
        """The run for people: its numbers, its notes, and the segments that lost messages."""
        return {
            **self.outcome.display_fields(),
            "stream": None,
            "notes": self.notes(),
            "by_segment": [vars(loss) for loss in self.segments()],
        }

    def as_json(self) -> JsonObject:
        """The run as JSON values: the fields of its record, and the derived facts."""
        recovery = self.removal.recovery(self.now_ns).as_json() if self.has_removed else None
        return {
            **self.outcome.as_json(),
            "stream": self.removal.opened.name,
            "began_ns": self.removal.removed_ns,
            "recorded_ranges": self.has_ranges,
            "recovery": recovery,
            "removed_again": self.removed_again and vars(self.removed_again),
            "by_segment": [vars(loss) for loss in self.segments()],
        }


def run_details(opened: OpenedStream, run: str, now_ns: int) -> RunDetails:
    """Look a run up in the history of its stream.

    Args:
        opened: the stream.
        run: the run's name.
        now_ns: the clock.

    Raises:
        UsageError: it has no outcome.
        DamagedError: a record differs from what was written.
    """
    history = history_of(opened.warehouse, opened.name)
    outcome = history.done(run)
    if outcome is None:
        raise UsageError(
            f"{opened.name}: run {run} has no outcome yet: it is in progress, or was interrupted, and the next run of "
            "the stream settles it"
        )
    later = history.since(run)
    undone_by = next((record.run for record in later if is_undoing(record, run)), None)
    again = None
    if isinstance(outcome, Undone) and not any(isinstance(record, Applied) for record in later):
        again = _removed_again(opened, outcome.undoes)
    return RunDetails(RemovalRun(opened, outcome, undone_by, Taken(opened)), now_ns, again)


def removed_again_of(opened: OpenedStream, run: str) -> dict[str, object] | None:
    """The rules that remove messages of a run again once it is undone, and the sentence; None: none for certain."""
    again = _removed_again(opened, run)
    return None if again is None else vars(again)


def _removed_again(opened: OpenedStream, run: str) -> RemovedAgain | None:
    outcome = history_of(opened.warehouse, opened.name).done(run)
    then = now = opened.config.policy()
    if outcome is None:
        return removed_again({}, then, now)
    if outcome.policy is not None:
        with suppress(KeyError, TypeError):  # an earlier version of this program had other settings
            then = policy_from_json(outcome.policy)
    return removed_again(outcome.by_rule, then, now)


def _of_ranges(tables: Iterable[pa.Table]) -> list[SegmentLoss]:
    """The losses of segments, from ranges in batches; shape `RUN_RANGES`."""
    by_rule: dict[tuple[int, int], dict[str, int]] = {}
    of_files = [RUN_RANGES.empty_table().select([*_OF_SEGMENT, "path", "messages", "bytes"])]
    for table in tables:
        for row in _rule_sums(table).to_pylist():
            rules = by_rule.setdefault((row["partition"], row["segment"]), {})
            rules[row["rule"]] = rules.get(row["rule"], 0) + row["count_sum"]
        sums = table.group_by([*_OF_SEGMENT, "path"]).aggregate(_SUMS)
        named = sums.rename_columns(of_files[0].schema.names)
        of_files.append(named.cast(of_files[0].schema))
    ranges = pa.concat_tables(of_files)
    losses = ranges.group_by(_OF_SEGMENT).aggregate([("path", "count_distinct"), *_SUMS])
    return [
        SegmentLoss(
            row["partition"],
            row["segment"],
            row["path_count_distinct"],
            row["messages_sum"],
            row["bytes_sum"],
            _some(by_rule.get((row["partition"], row["segment"]), {})),
        )
        for row in losses.sort_by([(name, "ascending") for name in _OF_SEGMENT]).to_pylist()
    ]


def _rule_sums(ranges: pa.Table) -> pa.Table:
    """Messages by segment and rule: `partition`, `segment`, `rule` and `count_sum`."""
    at = pc.list_parent_indices(ranges["rules"])
    flat = pa.table(
        {
            **{name: ranges[name].take(at) for name in _OF_SEGMENT},
            "rule": pc.list_flatten(ranges["rules"]),
            "count": pc.list_flatten(ranges["counts"]),
        }
    )
    return flat.group_by([*_OF_SEGMENT, "rule"]).aggregate([("count", "sum")])


def _some(counts: Mapping[str, int]) -> dict[str, int]:
    return {rule: count for rule, count in counts.items() if count}


def _of_files(tables: Iterable[pa.Table]) -> list[SegmentLoss]:
    """The losses of segments, from the files that a run removed and wrote, as an earlier version recorded them."""
    files = pa.concat_tables([table.select(_OF_FILE) for table in tables])
    removed = pc.cast(pc.greater_equal(files["messages"], 0), pa.int64())
    wanted = [("removed", "sum"), ("messages", "sum"), ("bytes", "sum")]
    sums = files.append_column("removed", removed).group_by(_OF_SEGMENT).aggregate(wanted)
    return [
        SegmentLoss(
            row["partition"],
            row["segment"],
            row["removed_sum"],
            row["messages_sum"],
            row["bytes_sum"],
            None,
        )
        for row in sums.sort_by([(name, "ascending") for name in _OF_SEGMENT]).to_pylist()
        if row["removed_sum"]
    ]
