"""Records of erasures: one JSON file for each, what is left to do, and the report that ends it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from retention.core.documents import Digest, Identifier, Int64, JsonDocument, Name, Natural
from retention.core.json_object import JsonObject
from retention.core.units import SECOND
from retention.erasure.listing import (
    NEEDLES,
    RECORD,
    REPORT,
    ListedErasures,
    directory_of,
    ids_among,
    listed_erasures,
)
from retention.erasure.needle_file import (
    NeedleFile,
    destroy_needles,
    read_needles,
    write_needles,
)
from retention.errors import DamagedError, UsageError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.storage.errors import first_line

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Trace(JsonDocument):
    """A place that still has a string of an erased message."""

    location: Name
    """The file; names in its path that have an erased string are replaced by keyed hashes."""
    what: Name
    """The kind of the string, such as `payload` or `subject`."""
    encoding: Name
    """The form in which it lies there."""
    view: Name
    """The reading of the file that has it: its `path`, its `bytes`, or how it was decoded."""
    offset: Natural


class DeletedFile(JsonDocument):
    """A file that an erasure deletes, or has deleted."""

    path: Name
    """Relative to the stream's directory."""
    bytes: Natural


class ErasureRequested(JsonDocument):
    """The request of an erasure, without a text of it: the part of a record that the ledger keeps as well."""

    format: Literal[1] = 1
    id: Identifier
    at_ns: Int64
    """The wall clock when it began, nanoseconds since the epoch."""
    below: Natural
    """The next sequence when it began, or the version of the table: what comes later is not part of it."""
    subjects: list[Digest]
    """Keyed hashes of the first subjects, in the order of the subjects."""
    request: Digest
    """The keyed hash of all subjects and sequences."""
    reason: Digest
    """The keyed hash of the reason."""
    named_subjects: Natural
    named_seqs: Natural

    def requested(self) -> dict[str, Any]:
        """These fields alone."""
        return self.model_dump(include=set(ErasureRequested.model_fields))


class ErasureRecord(ErasureRequested):
    """An erasure: who asked for it when, and what is left of it."""

    state: Literal["unfinished", "done"] = "unfinished"
    by_ns: Int64 | None = None
    """The instant by which it has to be done; None: no instant was named."""
    initiator: dict[str, Any]
    replayed: bool = False
    """Whether the ledger had it and the warehouse did not, after a restore from a backup."""
    keys: list[Digest] = Field(default_factory=list)
    """Keyed hashes of the first keys of rows of a table."""
    named_keys: Natural = 0
    records: dict[Identifier, dict[Name, str]] = Field(default_factory=dict)
    """Run on a table → the SHA-256 of its `changes` and `evidence` as the erasure left them; empty: it is at it."""
    key: Key | None
    """The key of the file with the request and the needles; None: both are destroyed."""
    deleted: list[DeletedFile] = Field(default_factory=list)
    """The files with erased messages; each of them is deleted at the end."""
    archived: list[DeletedFile] = Field(default_factory=list)
    """The files of archives with erased messages, by location; each is deleted, after a copy without them."""
    archive_records: list[Name] = Field(default_factory=list)
    """The locations of the records of this erasure in archives."""
    unreached: list[Name] = Field(default_factory=list)
    """Sentences about archives that may still have erased messages, or that do."""
    beyond: list[Name] = Field(default_factory=list)
    """Sentences about places that no erasure reaches: versions in buckets, and archives of other warehouses."""
    without: list[Name] = Field(default_factory=list)
    """Archives that no longer exist, as a person said."""
    former: list[Digest] = Field(default_factory=list)
    """Keyed hashes of the paths of files of older versions of a table in place that have erased rows."""
    lost_undos: list[Identifier] = Field(default_factory=list)
    """The runs that can no longer be undone, because one of these files is theirs."""
    traces: list[Trace] = Field(default_factory=list)
    """The places where the last search found strings of erased messages."""
    unread: list[Name] = Field(default_factory=list)
    """The files of the stream or table whose content the last search could not decode, or that it missed."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.state == "done"

    @property
    def key_bytes(self) -> bytes:
        """The key of its needle file; empty: it is destroyed."""
        return bytes.fromhex(self.key or "")

    @property
    def is_clean(self) -> bool:
        """Whether every archive was reached, and the last search read every file of ours, and found nothing."""
        return not (self.traces or self.unread or self.unreached)

    def updated(self, **fields: object) -> ErasureRecord:
        """The record with new, unchecked values of given fields."""
        return self.model_copy(update=fields)

    def as_json(self) -> JsonObject:
        """The record as JSON values, without the key."""
        return self.model_dump(exclude={"key", "format"})


@dataclass(frozen=True)
class Erasures:
    """The erasures of one stream or table, in its directory of the warehouse, `_retention/erasures/`."""

    root: str
    """The directory of the stream, or of our records of the table."""
    stream: str

    def all(self) -> list[ErasureRecord]:
        """All erasures, oldest first.

        Raises:
            DamagedError: a record cannot be read.
        """
        return [self.read(erasure) for erasure in self.ids()]

    def unfinished(self) -> Iterator[ErasureRecord]:
        """The erasures with something left to do, oldest first; no record of another one is read.

        Raises:
            DamagedError: a record cannot be read.
        """
        return map(self.read, self.unfinished_ids())

    def unfinished_ids(self) -> list[str]:
        """The ids of the unfinished erasures, oldest first."""
        return self.listed().unfinished

    def listed(self) -> ListedErasures:
        """The erasures by the names of their files, in one listing."""
        return listed_erasures(self.root)

    def read(self, erasure: str) -> ErasureRecord:
        """The record of one erasure.

        Raises:
            DamagedError: it cannot be read.
        """
        fields = self._fields(erasure + RECORD)
        try:
            return ErasureRecord.model_validate(fields)
        except ValidationError as error:
            raise self._damaged(erasure + RECORD, error) from error

    def has_report(self, erasure: str) -> bool:
        """Whether an erasure has a report, so that only its key and its needles may be left."""
        return files.length(self.report(erasure)) is not None

    def has_intact_report(self, erasure: str) -> bool:
        """Whether an erasure has a report, as it was written."""
        try:
            self._fields(erasure + REPORT)
        except DamagedError:
            return False
        return True

    def report(self, erasure: str) -> str:
        """The location of the report of an erasure."""
        return self._place(erasure + REPORT)

    def write(self, record: ErasureRecord) -> None:
        """Write the record of an erasure, in place of the one before."""
        self._write(record.id + RECORD, record.model_dump(), Step.ERASURE_RECORDED)

    def with_beyond(self, record: ErasureRecord, sentences: list[str]) -> ErasureRecord:
        """A record with sentences about places that it does not reach, written if they are new."""
        if sentences == record.beyond:
            return record
        record = record.updated(beyond=sentences)
        self.write(record)
        return record

    def write_report(self, erasure: str, report: Mapping[str, object]) -> None:
        """Write the report of an erasure."""
        self._write(erasure + REPORT, report, Step.ERASURE_REPORTED)

    def needles(self, erasure: str) -> str:
        """The location of the file with the request and the needles of an erasure."""
        return self._place(erasure + NEEDLES)

    def read_needles(self, record: ErasureRecord) -> NeedleFile:
        """The request and the needles of an unfinished erasure.

        Raises:
            DamagedError, FileNotFoundError: as `needle_file.read_needles`.
        """
        return read_needles(self.needles(record.id), record.key_bytes)

    def write_needles(self, record: ErasureRecord, content: NeedleFile) -> None:
        """Write the request and the needles of an erasure, in place of those before."""
        files.make_directory(self._directory)
        write_needles(self.needles(record.id), record.key_bytes, content)

    def close(self, record: ErasureRecord) -> ErasureRecord:
        """Destroy the key of an erasure with a report, then its needles, which nobody can read any more.

        While there are needles, the erasure is among the unfinished ones, so that a kill between the two leaves none.
        """
        done = record.updated(state="done", key=None, traces=[], unread=[])
        if done != record:
            self.write(done)
        destroy_needles(self.needles(record.id))
        return done

    def delete_unrecorded(self) -> None:
        """Delete the needles of erasures that were killed before their record was written."""
        names = set(files.names(self._directory))
        known = set(ids_among(names))
        files.delete(
            self._place(name)
            for name in names
            if name.endswith(NEEDLES) and name.removesuffix(NEEDLES) not in known
        )
        reached(Step.NEEDLES_TIDIED)

    def ids(self) -> list[str]:
        """The ids of all erasures, oldest first."""
        return self.listed().ids

    @property
    def _directory(self) -> str:
        return directory_of(self.root)

    def _place(self, name: str) -> str:
        return files.join(self._directory, name)

    def _write(self, name: str, fields: Mapping[str, object], step: Step) -> None:
        files.make_directory(self._directory)
        files.replace(self._place(name), json.dumps(with_checksum(fields)).encode())
        reached(step)

    def _fields(self, name: str) -> dict[str, Any]:
        try:
            return verified(parse_json(files.read_bytes(self._place(name)) or b""))
        except (ValueError, AttributeError) as error:
            raise self._damaged(name, error) from error

    def _damaged(self, name: str, error: Exception) -> DamagedError:
        return DamagedError(
            f"{self._place(name)}: this record of an erasure of {self.stream} cannot be read ({first_line(error)}); "
            "nothing was changed; restore it from a copy, or delete it and erase again"
        )


def new_id(now_ns: int) -> str:
    """A new id of an erasure: the second in which it begins, and a random part."""
    second = datetime.fromtimestamp(now_ns // SECOND, UTC)
    return f"{second:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def check_reason(reason: str) -> None:
    """Refuse an erasure without a reason.

    Raises:
        UsageError: the reason has no text.
    """
    if not reason.strip():
        raise UsageError(
            "an erasure needs text as its reason, of which a keyed hash is kept; nothing was changed"
        )
