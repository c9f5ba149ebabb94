"""The extent of what a plan removes: its first and last sequence, and the times of its oldest and newest message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.plan.actions import DROP
from retention.plan.plan import Plan


@dataclass(frozen=True)
class Extent:
    """The extent of what goes."""

    first_seq: int | None
    """The lowest sequence; None: several partitions lose messages, which have sequences of their own."""
    last_seq: int | None
    oldest_ns: int
    newest_ns: int
    is_exact: bool
    """Whether these are times of messages that go; else no message that goes has a time beyond them."""

    def as_json(self) -> dict[str, Any]:
        """The extent as JSON values."""
        return asdict(self)


def extent_of(plan: Plan) -> Extent | None:
    """Measure what a plan removes, without reading a message; None: nothing goes."""
    files = plan.files
    if not files.num_rows:
        return None
    is_whole = pc.equal(files["action"], DROP)
    ends = list(_ends(plan, files.filter(is_whole)))
    is_single = len(pc.unique(files["partition"])) == 1
    return Extent(
        min(first for first, _ in ends) if is_single else None,
        max(last for _, last in ends) if is_single else None,
        pc.min(files["min_ts_ns"]).as_py(),
        pc.max(files["max_ts_ns"]).as_py(),
        pc.all(is_whole).as_py(),
    )


def _ends(plan: Plan, whole: pa.Table) -> Iterator[tuple[int, int]]:
    """First and last sequences of what goes: of all files that go whole, and of parts of others."""
    if whole.num_rows:
        yield pc.min(whole["min_seq"]).as_py(), pc.max(whole["max_seq"]).as_py()
    for ranges in plan.actions.removed.tables():
        yield pc.min(ranges["first_seq"]).as_py(), pc.max(ranges["last_seq"]).as_py()
