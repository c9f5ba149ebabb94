"""How streams and topics are kept: format, grace, engine, archive, segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from retention.config.locations import Location
from retention.config.types import (
    Budget,
    Grace,
    Part,
    Size,
    Span,
)
from retention.core.units import DAY

if TYPE_CHECKING:
    pass


class KeepingSettings(Part):
    """How streams and topics are kept here."""

    format: Literal["delta", "parquet"] = "delta"
    grace: Grace = 7 * DAY
    engine: Literal["auto", "spark", "local"] = "auto"
    local_limit: Budget = 64 * 2**20
    archive: Location | None = None
    """Where files are copied to before a run removes them; None: nowhere."""

    @property
    def grace_ns(self) -> int:
        """How long removed files stay, nanoseconds."""
        return self.grace


class StorageSettings(KeepingSettings):
    """How a stream is kept here; each of these can also stand under `defaults`."""

    segment_size: Size = 256 * 2**20
    segment_span: Span = DAY
    layout: Literal["sequence", "deadline"] = "sequence"

    @property
    def segment_span_ns(self) -> int | None:
        """How much younger than a segment's first message a message may be; None: any."""
        return self.segment_span or None
