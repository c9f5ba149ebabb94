"""Producer timestamps: the accepted range, and the reason for a refusal with the unit that the value suggests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retention.core.spans import Array
from retention.core.units import INT64_MAX, MICROSECOND, MILLISECOND, SECOND, format_instant

INT64_MIN = -INT64_MAX - 1
EARLIEST_NS = 631_152_000 * SECOND
"""1990-01-01. A current time in seconds, milliseconds or microseconds falls before it when read as
nanoseconds. A unit too large by 1,000 or more puts the time after 2262, so no upper bound is
needed."""
_UNITS = {"microseconds": MICROSECOND, "milliseconds": MILLISECOND, "seconds": SECOND}


@dataclass(frozen=True)
class AcceptedTimes:
    """The range of instants that an ingest path accepts, at most 64 bits of nanoseconds: 1677-09-21 to 2262-04-11."""

    earliest_ns: int
    may_be_missing: bool = True
    """Whether a row may omit its time; it then gets the current time of the clock."""

    def refusal(self, column: str, ns: int, *, as_number: bool) -> str | None:
        """The reason to refuse an instant; None if it is accepted.

        Args:
            column: the column of the instant.
            ns: the instant, nanoseconds since the epoch; may exceed 64 bits.
            as_number: whether the column has integers; otherwise it has timestamps.
        """
        if self.earliest_ns <= ns <= INT64_MAX:
            return None
        instant = format_instant(ns)
        if not INT64_MIN <= ns <= INT64_MAX:
            return (
                f"{column} {ns if as_number else instant} is outside 1677-09-21 to 2262-04-11, the range of 64 bits "
                f"of nanoseconds{'' if as_number else _divided(ns)}"
            )
        given = f"{ns} is {instant}," if as_number else f"{instant} is"
        return (
            f"{column} {given} before 1990{_multiplied(ns, as_number=as_number)}; --any-time, in Python any_time=True, "
            "takes such times as they are"
        )

    def first_refused(self, instants: Array, unit: int = 1) -> int:
        """The index of the first refused instant; -1 if there is none.

        Args:
            instants: int64, in units of `unit` nanoseconds since the epoch.
            unit: nanoseconds per unit.
        """
        least, most = -(-self.earliest_ns // unit), INT64_MAX // unit
        refused = (instants < least) | (instants > most)
        return int(np.argmax(refused)) if refused.any() else -1


PLAUSIBLE_TIMES = AcceptedTimes(EARLIEST_NS)
ALL_TIMES = AcceptedTimes(INT64_MIN)


def accepted_times(*, any_time: bool, may_be_missing: bool = True) -> AcceptedTimes:
    """The accepted instants: any in 64 bits with `any_time`, otherwise those from 1990 on."""
    return AcceptedTimes(INT64_MIN if any_time else EARLIEST_NS, may_be_missing)


def _multiplied(ns: int, *, as_number: bool) -> str:
    """The larger unit that puts the instant at 1990 or later, if there is one."""
    for unit, factor in _UNITS.items():
        if EARLIEST_NS <= ns * factor <= INT64_MAX:
            instant = format_instant(ns * factor)
            if as_number:
                return f"; it is {instant} if {unit} are meant: multiply by {factor:,}"
            return f"; read in a unit {factor:,} times larger it is {instant}"
    return ""


def _divided(ns: int) -> str:
    """The smaller unit in which the instant fits into 64 bits, if there is one."""
    for factor in _UNITS.values():
        if EARLIEST_NS <= ns // factor <= INT64_MAX:
            instant = format_instant(ns // factor)
            return f"; read in a unit {factor:,} times smaller it is {instant}"
    return ""
