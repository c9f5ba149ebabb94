"""The extent of a removal: first and last sequence, and times of the oldest and newest removed message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.json_object import JsonObject
from retention.plan.actions import DROP
from retention.plan.plan import Plan


@dataclass(frozen=True)
class Extent:
    """The extent of the removed messages."""

    first_seq: int | None
    """The lowest sequence; None: several partitions lose messages, and each has its own sequences."""
    last_seq: int | None
    oldest_ns: int
    newest_ns: int
    is_exact: bool
    """Whether the times are those of removed messages; otherwise they only bound them."""

    def as_json(self) -> JsonObject:
        """The extent as JSON values."""
        return asdict(self)


def extent_of(plan: Plan) -> Extent | None:
    """Measure the removal of a plan without reading messages; None: nothing is removed."""
    files = plan.actions.files
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
    """First and last sequences of the removal: of all completely removed files, and of ranges in others."""
    if whole.num_rows:
        yield pc.min(whole["min_seq"]).as_py(), pc.max(whole["max_seq"]).as_py()
    for ranges in plan.actions.removed.tables():
        yield pc.min(ranges["first_seq"]).as_py(), pc.max(ranges["last_seq"]).as_py()
