"""Names of recorded runs: they sort by time, even after a clock was set back or repaired."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from retention.core.units import SECOND, format_instant, parse_instant

_NAME = re.compile(r"(?:c(\d{4})-)?(\d{8}T\d{6}\.\d{9}Z)-")


@dataclass(frozen=True, order=True)
class RunName:
    """The content of a run's name: the era of its clock, and its start; names sort like these values."""

    era: int
    """The number of earlier repairs of the clock; its letters sort after every instant of the previous era."""
    started_ns: int
    """The start of the run, nanoseconds since the epoch."""

    def written(self) -> str:
        """A new unique name with this content."""
        head = f"c{self.era:04d}-" if self.era else ""
        return f"{head}{_stamp(self.started_ns)}-{secrets.token_hex(3)}"


def parse_run_name(run: str) -> RunName | None:
    """The content of a name; None: the name is not of a recorded run.

    >>> parse_run_name("20261121T103209.739426394Z-a1b2c3")
    RunName(era=0, started_ns=1795257129739426394)
    >>> parse_run_name("append-0af3")
    """
    match = _NAME.match(run)
    return None if match is None else RunName(int(match[1] or 0), _instant_of(match[2]))


def started_ns(run: str, otherwise: int) -> int:
    """The start of a run from its name, nanoseconds since the epoch; `otherwise` if the name has none."""
    name = parse_run_name(run)
    return otherwise if name is None else name.started_ns


def _stamp(instant_ns: int) -> str:
    """An instant to the nanosecond, in characters safe for file names: `20261121T103209.739426394Z`."""
    seconds, fraction = divmod(instant_ns, SECOND)
    text = format_instant(seconds * SECOND).replace("-", "").replace(":", "").rstrip("Z")
    return f"{text}.{fraction:09d}Z"


def _instant_of(stamp: str) -> int:
    date, time = stamp[:8], stamp[9:15]
    text = f"{date[:4]}-{date[4:6]}-{date[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}{stamp[15:]}"
    return parse_instant(text)
