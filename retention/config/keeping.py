"""The settings of streams, topics and tables beside their rules: grace, engine, guards, format, archive, segments."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, model_validator

from retention.config.guards import GuardSettings
from retention.config.locations import Location
from retention.config.types import (
    Budget,
    ConfigMapping,
    Flag,
    Grace,
    Kept,
    Minimum,
    Several,
    Share,
    Size,
    Span,
    Tags,
    refusal_error,
)
from retention.core.units import DAY, INT64_MAX


class Compaction(ConfigMapping):
    """The bounds from which on files are compacted."""

    min_files: Several = 8
    """The minimum number of files of a segment worth merging into one. None of them may have more than 1/`min_files` of
    their total bytes, so that a merged file is not merged again for a few more small files."""
    dead_share: Share = 20
    """The removed share of a file's or segment's original content, in percent, from which the rest is rewritten."""
    min_segment: Budget = 8 * 2**20
    """The largest sealed segment, in bytes, that is merged with its neighbours, regardless of its time span; 0: "
    "none."""


class Approval(ConfigMapping):
    """The amounts that a scheduled job may remove at once without a person's approval; None: any."""

    above_messages: Minimum | None = None
    above_rows: Minimum | None = None
    """The same amount as `above_messages`, by the name for tables."""
    above_bytes: Budget | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.above is None and self.above_bytes is None:
            raise refusal_error(
                "names no amount: write true, or {above_messages: 100000}, or {above_bytes: 10GiB}"
            )
        if self.above_messages is not None and self.above_rows is not None:
            raise refusal_error("above_messages and above_rows are one amount: write one")
        return self

    @property
    def above(self) -> int | None:
        """The number of messages or rows; None: any."""
        return self.above_rows if self.above_messages is None else self.above_messages


def _switch(value: object) -> object:
    """The settings for `true` and `false`; every other value unchanged."""
    if isinstance(value, bool):
        return Compaction() if value else None
    return value


class Selected(ConfigMapping):
    """The keys by which streams, topics and tables are put together: a group that they inherit from, and tags."""

    group: str | None = None
    """The name of the group that supplies settings without a value of their own."""
    tags: Tags = ()
    """Words by which commands and jobs select."""


def _approval(value: object) -> object:
    """The settings for `true` and `false`; every other value unchanged."""
    if isinstance(value, bool):
        return Approval(above_messages=0) if value else None
    return value


class RunSettings(ConfigMapping):
    """The settings of runs that streams, topics and tables share."""

    grace: Grace = 7 * DAY
    history: Kept = INT64_MAX
    """The time for which records of runs are kept, nanoseconds; the largest 64-bit integer: forever."""
    engine: Literal["auto", "spark", "local"] = "auto"
    local_limit: Budget = 64 * 2**20
    guards: GuardSettings = GuardSettings()
    """The limits beyond which a single pass is refused, or warns."""
    approve: Annotated[
        Approval | None,
        BeforeValidator(_approval, json_schema_input_type=bool | Approval | None),
    ] = None
    """The amounts from which a person has to approve removals by scheduled jobs; None: no approval is needed."""

    @property
    def grace_ns(self) -> int:
        """The time for which removed files are kept, nanoseconds."""
        return self.grace


class KeepingSettings(RunSettings):
    """The storage settings that streams and topics share."""

    format: Literal["delta", "parquet"] = "delta"
    archive: Location | None = None
    """The location that files are copied to before a run removes them; None: they are not copied."""
    archive_keep: Kept = INT64_MAX
    """The time for which the copies are kept, nanoseconds; the largest 64-bit integer: forever."""
    compact: Annotated[
        Compaction | None, BeforeValidator(_switch, json_schema_input_type=bool | Compaction | None)
    ] = None
    """The compaction by scheduled jobs; None: none."""
    spark_writes: Flag = False
    """Whether Spark writes to the table concurrently with the engine: on a local disk each commit waits for it."""


class StorageSettings(KeepingSettings):
    """The storage settings of a stream; each of them can also stand under `defaults`."""

    segment_size: Size = 256 * 2**20
    segment_span: Span = DAY
    layout: Literal["sequence", "deadline"] = "sequence"
    vectors: Flag = False
    """Whether a new table has deletion vectors, so that few removals from a file need no copy of it."""

    @property
    def segment_span_ns(self) -> int | None:
        """The longest time between the first and last message of a segment, nanoseconds; None: no limit."""
        return self.segment_span or None
