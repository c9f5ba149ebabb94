"""Groups of adjacent segments that a plan treats alike, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.units import format_duration
from retention.core.wording import counted
from retention.rules import MAX_AGE, RULES
from retention.views.reasons import reason
from retention.views.wording import brief_duration

if TYPE_CHECKING:
    from retention.core.json_object import JsonObject
    from retention.plan.plan import Plan


@dataclass(frozen=True)
class Group:
    """Adjacent segments that a plan treats alike, and why."""

    partition: int
    first: int
    last: int
    """The bases of its first and last segment."""
    count: int
    removed: int
    messages: int
    by_rule: Mapping[str, int]
    """Rule → messages that it removes; none of them is 0."""
    reasons: tuple[str, ...]

    @property
    def dropped(self) -> bool:
        """Whether all messages are removed."""
        return self.removed == self.messages

    @property
    def segments(self) -> str:
        """The name of the group, such as `segment 1` or `segments 1 … 90001 (18)`."""
        prefix = f"partition {self.partition} " if self.partition else ""
        if self.count == 1:
            return f"{prefix}segment {self.first}"
        return f"{prefix}segments {self.first} … {self.last} ({self.count:,})"

    @property
    def amount(self) -> str:
        """The number of messages to remove, of how many, with their noun."""
        if self.dropped:
            return counted(self.messages, "message")
        return f"{self.removed:,} of {counted(self.messages, 'message')}"

    @property
    def line(self) -> str:
        """The group in one line."""
        return f"{self.segments}: remove {self.amount}: {'; '.join(self.reasons)}"

    def as_json(self) -> JsonObject:
        """The group as JSON values."""
        return {
            "partition": self.partition,
            "first_segment": self.first,
            "last_segment": self.last,
            "segments": self.count,
            "messages": self.messages,
            "removed_messages": self.removed,
            "by_rule": dict(self.by_rule),
            "reasons": list(self.reasons),
        }


def groups_of(plan: Plan) -> list[Group]:
    """The segments that a plan touches, in order; adjacent ones dropped by the same rules are one group."""
    table = _segments(plan.actions.files_with_rules)
    if not table.num_rows:
        return []
    whole = table["removed_messages_sum"].to_numpy() == table["messages_sum"].to_numpy()
    rules = np.stack([table[f"by_{rule}_sum"].to_numpy() for rule in RULES], axis=1)
    partition = table["partition"].to_numpy()
    alike = np.all((rules[1:] > 0) == (rules[:-1] > 0), axis=1)
    joined = alike & whole[1:] & whole[:-1] & (partition[1:] == partition[:-1])
    starts = np.append(0, np.flatnonzero(~joined) + 1)
    ends = np.append(starts[1:], table.num_rows)
    return [
        _group(plan, table.slice(start, end - start), rules[start:end].sum(axis=0))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]


def _segments(files: pa.Table) -> pa.Table:
    """The sums of a plan's files by segment: one row each, in order."""
    sums = ["messages", "removed_messages", *(f"by_{rule}" for rule in RULES)]
    folds = [(name, "sum") for name in sums] + [("max_ts_ns", "max")]
    grouped = files.group_by(["partition", "segment"], use_threads=False).aggregate(folds)
    return grouped.sort_by([("partition", "ascending"), ("segment", "ascending")])


def _group(plan: Plan, segments: pa.Table, counts: np.ndarray) -> Group:
    removed, messages = (
        int(pc.sum(segments[f"{name}_sum"]).as_py()) for name in ("removed_messages", "messages")
    )
    by_rule = {rule: number for rule, number in zip(RULES, counts.tolist(), strict=True) if number}
    reasons = [reason(plan, rule) for rule in by_rule]
    if removed == messages and [*by_rule] == [MAX_AGE]:
        limit = format_duration(plan.header.policy.max_age_ns or 0)
        youngest_ns = plan.header.as_of_ns - int(pc.max(segments["max_ts_ns_max"]).as_py())
        reasons = [f"max_age {limit}, youngest is {brief_duration(youngest_ns)} old"]
    if len(by_rule) > 1:
        numbers = by_rule.values()
        reasons = [f"{number:,} by {text}" for number, text in zip(numbers, reasons, strict=True)]
    return Group(
        partition=segments["partition"][0].as_py(),
        first=segments["segment"][0].as_py(),
        last=segments["segment"][-1].as_py(),
        count=segments.num_rows,
        removed=removed,
        messages=messages,
        by_rule=by_rule,
        reasons=tuple(reasons),
    )
