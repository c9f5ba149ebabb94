"""The report of a pass over a table in place: its numbers as data and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from retention.core.json_object import JsonObject
from retention.tables.plan import TablePlan


@dataclass(frozen=True)
class TableReport:
    """The outcome of a pass."""

    run: str
    """Empty if nothing was to go, so that nothing was committed."""
    plan: TablePlan
    version_after: int
    bytes_written: int = 0
    seconds: float = 0.0
    guards: Sequence[Mapping[str, object]] | None = None
    """The guards that it exceeded, as in `GuardFinding.as_json`: they warn, or were lifted; None: none."""
    left: Mapping[str, Any] | None = None
    """The exhausted limit of a budget that left the table to the next run; None if it was processed."""
    spent_by: str | None = None
    """The earlier run that spent the same approval, so that nothing was done; None if this is not a retry."""
    superseded_by: Mapping[str, Any] | None = None
    """The earlier pass at a later instant, so that nothing was done: `as_of_ns`, `run`; None if there is none."""

    expired_holds: Sequence[str] | None = None
    """The legal holds that it is the first to ignore, because their time is over; None: none."""

    @property
    def is_left(self) -> bool:
        """Whether a budget deferred the table to the next run."""
        return self.left is not None

    @property
    def as_of_ns(self) -> int:
        """The instant of the pass, nanoseconds since the epoch."""
        return self.plan.as_of_ns

    @property
    def removed_rows(self) -> int:
        """The number of removed rows."""
        return self.plan.removed_rows

    def as_json(self) -> JsonObject:
        """The report's entry in the JSON output, with the plan's numbers."""
        names = ("guards", "left", "spent_by", "superseded_by", "expired_holds")
        optional = {name: getattr(self, name) for name in names}
        return {
            **numbers_of(self.plan),
            "run": self.run,
            "version_after": self.version_after,
            "bytes_written": self.bytes_written,
            "seconds": round(self.seconds, 6),
            **{name: value for name, value in optional.items() if value is not None},
        }


def numbers_of(plan: TablePlan) -> dict[str, Any]:
    """The numbers of a plan, as JSON values."""
    return {
        "table": plan.table,
        "location": plan.location,
        "plan_id": plan.plan_id,
        "removed_rows": plan.removed_rows,
        "removed_bytes": plan.removed_bytes,
        "by_rule": plan.by_limit,
        "files": {
            "dropped": len(plan.dropped),
            "cut": len(plan.cut),
            "kept": plan.files - len(plan.removals),
        },
        "rows": plan.rows,
        "rows_without_time": plan.unlimited.without_time,
        "rows_without_key": plan.unlimited.without_key,
        "rows_without_size": plan.unlimited.without_size,
        "rows_ahead_of_clock": plan.unlimited.ahead,
        "files_read": plan.files_read,
        "bytes_read": plan.bytes_read,
        "version_before": plan.version,
        **({} if plan.kept_by_holds is None else {"kept_by_holds": dict(plan.kept_by_holds)}),
        **({"files_passed_over": dict(plan.passed_over)} if plan.passed_over else {}),
    }
