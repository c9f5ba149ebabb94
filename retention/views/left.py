"""The sentence for streams and tables that a budget left unprocessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retention.core.outcomes import Outcome
from retention.core.wording import counted

if TYPE_CHECKING:
    from retention.history.report import RunReport
    from retention.tables.report import TableReport


def left_text(
    streams: Sequence[Outcome[RunReport]], tables: Sequence[Outcome[TableReport]] = ()
) -> str:
    """The streams and tables left for the next run, the reason, and the most overdue of them; empty if none are."""
    every: list[Outcome[Any]] = [*streams, *tables]
    left = {
        each.stream: (each.value.left, each.value.as_of_ns)
        for each in every
        if each.value is not None and each.value.left is not None
    }
    if not left:
        return ""
    from retention.views.wording import brief_duration

    of_tables = sum(each.stream in left for each in tables)
    numbers = [(len(left) - of_tables, "stream"), (of_tables, "table")]
    units = " and ".join(counted(number, noun) for number, noun in numbers if number)
    [(reasons, _), *_] = left.values()
    text = f"{units} left for the next run ({reasons['budget']} is spent)"
    late = {
        name: as_of_ns - reasons["since_ns"]
        for name, (reasons, as_of_ns) in left.items()
        if reasons["since_ns"] is not None
    }
    if not late:
        return f"{text}, none of them known to be late"
    first = max(late, key=lambda name: late[name])
    return f"{text}, {len(late):,} of them late: the most overdue is {first}, by {brief_duration(late[first])}"
