"""The manifest of an archive as a document: type, range and shape of each field."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from retention.core.documents import (
    Counts,
    Digest,
    Identifier,
    Int64,
    JsonDocument,
    Name,
    Natural,
    PartitionNumber,
    Path,
    PlacedFile,
    Ranges,
)

Link = Annotated[str, Field(pattern=r"^[0-7][0-9a-f]{15}$")]
"""63 bits of the digest of a manifest."""


class CopiedFile(PlacedFile):
    """A data file in an archive."""

    path: Path
    partition: PartitionNumber
    segment: Natural
    file_bytes: Natural
    sha256: Digest
    messages: Natural
    bytes: Natural
    min_seq: Natural
    max_seq: Natural
    min_ts_ns: Int64
    max_ts_ns: Int64
    by_rule: Counts
    hidden: Ranges


class _Origin(JsonDocument):
    stream: Name
    table_id: Identifier
    epoch: Natural


class _Writer(JsonDocument):
    warehouse: Name
    host: Name


class ArchiveManifest(JsonDocument):
    """The content of an archive's manifest, without the fields that identify the document."""

    origin: _Origin
    is_topic: bool
    plan_id: Identifier
    as_of_ns: Int64
    by_rule: Counts
    files: list[CopiedFile]
    previous: Link | None = None
    writer: _Writer | None = None


class _Replaced(JsonDocument):
    path: Path
    sha256: Digest
    by: CopiedFile | None


class ArchiveErasureDocument(JsonDocument):
    """The copies that an erasure replaced in an archive, without the fields that identify the document."""

    erasure: Identifier
    origin: _Origin
    at_ns: Int64
    after: list[Link]
    replaced: list[_Replaced]
