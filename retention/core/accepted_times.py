"""Times that producers give: which instants are taken, and why others are refused, with the unit that they hint at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.core.spans import Array
from retention.core.units import INT64_MAX, MICROSECOND, MILLISECOND, SECOND, format_instant

INT64_MIN = -INT64_MAX - 1
EARLIEST_NS = 631_152_000 * SECOND
"""1990-01-01. Present times in seconds, milli- or microseconds lie before it when they are read as nanoseconds. A time
in a unit that is too large by 1,000 or more lies after 2262, so that no bound is needed in that direction."""
_UNITS = {"microseconds": MICROSECOND, "milliseconds": MILLISECOND, "seconds": SECOND}


@dataclass(frozen=True)
class AcceptedTimes:
    """The range of instants that a way in takes, at most that of 64 bits of nanoseconds: 1677-09-21 to 2262-04-11."""

    earliest_ns: int
    may_be_missing: bool = True
    """Whether a row may have no time, and gets the clock's."""

    def refusal(self, column: str, ns: int, *, as_number: bool) -> str | None:
        """The reason to refuse an instant; None if it is taken.

        Args:
            column: the column that has it.
            ns: the instant, nanoseconds since the epoch; it need not fit into 64 bits.
            as_number: whether the column holds that number; else it holds times.
        """
        instant = format_instant(ns)
        if not INT64_MIN <= ns <= INT64_MAX:
            return (
                f"{column} {ns if as_number else instant} is outside 1677-09-21 to 2262-04-11, the times that 64 bits "
                f"of nanoseconds hold{'' if as_number else _divided(ns)}"
            )
        if ns >= self.earliest_ns:
            return None
        given = f"{ns} is {instant}," if as_number else f"{instant} is"
        return (
            f"{column} {given} before 1990{_multiplied(ns, as_number=as_number)}; --any-time, in Python any_time=True, "
            "takes such times as they are"
        )

    def first_refused(self, instants: Array, unit: int = 1) -> int:
        """The place of the first instant that is refused; -1 if there is none.

        Args:
            instants: int64, `unit` nanoseconds each since the epoch.
            unit: the unit.
        """
        least, most = -(-self.earliest_ns // unit), INT64_MAX // unit
        refused = (instants < least) | (instants > most)
        return int(np.argmax(refused)) if refused.any() else -1


PLAUSIBLE_TIMES = AcceptedTimes(EARLIEST_NS)
ALL_TIMES = AcceptedTimes(INT64_MIN)


def accepted_times(*, any_time: bool, may_be_missing: bool = True) -> AcceptedTimes:
    """The instants to take: with `any_time` all that 64 bits hold, else those from 1990 on."""
    return AcceptedTimes(INT64_MIN if any_time else EARLIEST_NS, may_be_missing)


def _multiplied(ns: int, *, as_number: bool) -> str:
    """The larger unit in which an instant would not be before 1990, if there is one."""
    for unit, factor in _UNITS.items():
        if EARLIEST_NS <= ns * factor <= INT64_MAX:
            instant = format_instant(ns * factor)
            if as_number:
                return f"; it is {instant} if {unit} are meant: multiply by {factor:,}"
            return f"; read in a unit {factor:,} times larger it is {instant}"
    return ""


def _divided(ns: int) -> str:
    """The smaller unit in which an instant would fit into 64 bits, if there is one."""
    for factor in _UNITS.values():
        if EARLIEST_NS <= ns // factor <= INT64_MAX:
            instant = format_instant(ns // factor)
            return f"; read in a unit {factor:,} times smaller it is {instant}"
    return ""
