"""The storage settings of streams and topics: format, grace, engine, archive, segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from retention.config.locations import Location
from retention.config.types import (
    Budget,
    Grace,
    Kept,
    Part,
    Size,
    Span,
)
from retention.core.units import DAY, INT64_MAX

if TYPE_CHECKING:
    pass


class KeepingSettings(Part):
    """The storage settings that streams and topics share."""

    format: Literal["delta", "parquet"] = "delta"
    grace: Grace = 7 * DAY
    history: Kept = INT64_MAX
    """The time that records of runs stay, nanoseconds; the largest 64-bit integer: for ever."""
    engine: Literal["auto", "spark", "local"] = "auto"
    local_limit: Budget = 64 * 2**20
    archive: Location | None = None
    """The location that files are copied to before a run removes them; None: they are not copied."""

    @property
    def grace_ns(self) -> int:
        """The time that removed files stay, nanoseconds."""
        return self.grace


class StorageSettings(KeepingSettings):
    """The storage settings of a stream; each of them can also stand under `defaults`."""

    segment_size: Size = 256 * 2**20
    segment_span: Span = DAY
    layout: Literal["sequence", "deadline"] = "sequence"

    @property
    def segment_span_ns(self) -> int | None:
        """The longest time between the first and last message of a segment, nanoseconds; None: no bound."""
        return self.segment_span or None
