"""The documents of tables, plans, consumers and topics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import AfterValidator, Field, create_model

from retention.core.counter_names import OF_TABLE
from retention.core.documents import (
    HIGHEST,
    Counts,
    Digest,
    Digits,
    Identifier,
    Int64,
    JsonDocument,
    Name,
    Natural,
    NextSequence,
    PartitionNumber,
    Path,
    PlacedFile,
    Ranges,
    RequestDocument,
    Version,
)
from retention.core.record_tables import ANY_SIGN
from retention.schemas.files import FILE_STATS


def _kind(field: pa.Field) -> object:
    if pa.types.is_boolean(field.type):
        return bool
    if field.name == "path":
        return Path
    if pa.types.is_int32(field.type):
        return PartitionNumber
    kind = Int64 if field.name in ANY_SIGN else Natural
    return kind | None if field.nullable else kind


FileRow: type[PlacedFile] = create_model(
    "FileRow",
    __base__=PlacedFile,
    **{field.name: (_kind(field), ...) for field in FILE_STATS},  # type: ignore[call-overload]
)
"""A row of `FILE_STATS`, as JSON."""
_Committer = Annotated[str, Field(pattern=r"^[^/\\%\x00-\x1f]{1,256}$")]
"""The writer of a commit: a recorded run, or an append."""


class _Logged(JsonDocument):
    """A log entry of a Parquet stream without counters of the table; its version is in its name."""

    version: Natural
    time_ms: Natural
    remove: list[Path]
    add: list[FileRow]  # type: ignore[valid-type]
    next_seq: dict[Digits, NextSequence]
    open_base: dict[Digits, Natural]
    batches: dict[str, Int64]
    run: _Committer | None = None
    metadata: dict[str, Any]
    table_id: Identifier | None = None


LogEntry: type[_Logged] = create_model(
    "LogEntry",
    __base__=_Logged,
    **dict.fromkeys(OF_TABLE, (Natural | None, None)),  # type: ignore[call-overload]
)
"""A log entry of a Parquet stream, as JSON."""


class _InEpoch(JsonDocument):
    next_seq: dict[Digits, NextSequence]
    open_base: dict[Digits, Natural]
    batches: dict[str, Int64]
    removed: dict[Digits, Natural]


class ListState(_InEpoch):
    """The state of a Parquet stream in a full list of its files, without the files."""

    table_id: Identifier
    seal: str = ""
    """The seal of the log entry of its version; lists of earlier program versions have none, and are ignored."""
    edits: dict[Name, Natural] = {}  # noqa: RUF012  (pydantic copies it)
    resting: dict[Digits, _InEpoch] = {}  # noqa: RUF012  (pydantic copies it)


class _Pin(JsonDocument):
    consumer: Name
    revision: Natural
    version: Natural


class _Segments(JsonDocument):
    dropped: Natural
    rewritten: Natural
    kept: Natural


class _Interest(JsonDocument):
    """The needs of one consumer when a plan was made."""

    consumer: Name
    ack_floor: Int64
    delivered: Int64
    filters: list[Name]
    explicit: bool
    pending: Ranges
    redelivered: Ranges


class _Protection(JsonDocument):
    interests: list[_Interest]
    after_ns: Int64
    from_seq: Natural


class _Tail(JsonDocument):
    segments: Natural
    messages: Natural
    bytes: Natural


class PlanCause(JsonDocument):
    """The cause of a plan, without the files that it was made from."""

    next_seq: dict[Digits, NextSequence]
    open_base: dict[Digits, Natural]
    tail: _Tail
    next_due_ns: Int64 | None
    scan_end: Natural | None
    refused: Ranges
    consumers: list[_Interest]
    pins: list[_Pin]
    expired: list[_Pin]
    protection: _Protection | None
    offsets: KeptOffsets | None


class PlanHeader(JsonDocument):
    """One plan of a plan file, without the tables stored beside it."""

    stream: Name
    plan_id: Digest
    table_id: Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{0,128}$")]
    version: Version
    as_of_ns: Int64
    policy: dict[str, Any]
    removed_messages: Natural
    removed_bytes: Int64
    by_rule: Counts
    segments: _Segments
    markers: Natural
    deleted_consumers: list[Name]
    files_read: Natural
    bytes_read: Natural
    sequences: Annotated[list[NextSequence], Field(min_length=2, max_length=2)] | None
    request: RequestDocument | None
    consumers: list[_Pin] | None
    expired: list[_Pin]
    released: Natural = 0
    """The number of the record of row tombstones of an earlier build; 0: there was none."""
    epoch: Natural
    begins_epoch: bool
    held: dict[str, object] | None = None
    holds: Natural = 0
    """The number of records of legal holds when the plan was made; 0: there never was one."""
    kept_by_holds: dict[Name, Natural] | None = None
    cause: PlanCause


class KeptConsumer(JsonDocument):
    """A consumer's record: its state is packed, or in the form of earlier versions."""

    consumer: Name
    config: dict[str, Any]
    state: str | dict[str, Any]
    version: Natural
    revision: Natural
    counted: bool
    deleted: bool
    origin: Name | None
    folded: dict[str, Any] = {}  # noqa: RUF012  (pydantic copies it)
    generation: Natural = 0
    changes: dict[Name, Int64] = {}  # noqa: RUF012  (pydantic copies it)
    unseen: object = None
    last_active_ns: object = None


class _StoredRow(JsonDocument):
    partition: PartitionNumber
    kind: Annotated[str, Field(pattern="^(consumer|group)$")]
    name: Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
    offset: Annotated[int, Field(ge=0, lt=2**64)]
    stored_ns: Int64


def _stored(row: list[object]) -> list[object]:
    _StoredRow.model_validate(dict(zip(_StoredRow.model_fields, row, strict=True)))
    return row


_Watermark = Annotated[int, Field(ge=-1, le=HIGHEST)]
"""A partition, or the base up to which its segments are to be deleted; -1: none."""


class KeptOffsets(JsonDocument):
    """The stored offsets of a topic, in the current and the previous epoch."""

    of: list[Annotated[list[Any], Field(min_length=5, max_length=5), AfterValidator(_stored)]]
    version: Natural = 0
    revision: Natural = 0
    counted: bool = True
    watermarks: list[Annotated[list[_Watermark], Field(min_length=2, max_length=2)]] = []  # noqa: RUF012
    origin: Name | None = None
    epoch: Natural = 0
    other: KeptOffsets | None = None


class KeptTopic(JsonDocument):
    """The stored settings of a topic, in the wire's 64-bit units."""

    message_expiry: Annotated[int, Field(ge=0, lt=2**64)]
    max_topic_size: Annotated[int, Field(ge=0, lt=2**64)]
    segment_size: Annotated[int, Field(ge=0, lt=2**64)]
    defaulted: list[Literal["message_expiry", "max_topic_size", "segment_size"]]
