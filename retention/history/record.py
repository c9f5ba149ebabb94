"""The record of a run in the run history: the fields that runs of any kind may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from retention.core import documents
from retention.core.display import Displayed
from retention.core.documents import (
    Counts,
    Digest,
    Identifier,
    Int64,
    JsonDocument,
    Name,
    Natural,
    NextSequence,
    PartitionNumber,
    Version,
)
from retention.core.json_object import JsonObject
from retention.history.run_fields import run_fields

if TYPE_CHECKING:
    from retention.rules.requests import Request

FORMAT = 3
"""The number of this release's list of kinds; a release that adds a kind raises it.

Each record has the number of the release that wrote it; that release first checked that it knew all earlier records.
"""
BEGUN = "begun"
DONE = "done"
ABANDONED = "abandoned"
"""The status of a run that was interrupted and changed nothing."""
UNKNOWN = "unknown"
"""The status of a run with an outcome that can no longer be determined."""
_OF_KIND = ("kind", "repair", "status")
"""Fields that are always written, even if unset."""
_OF_FILE = frozenset({"format", "chain", "link", "commitments", "salts"})
"""Fields that concern only the file of a record."""
STATUSES = frozenset({BEGUN, DONE, ABANDONED, UNKNOWN})


def _by_number(seqs: object) -> object:
    if isinstance(seqs, Mapping):
        return {_number(partition): seq for partition, seq in seqs.items()}
    return seqs


def _number(partition: object) -> object:
    if isinstance(partition, str) and partition.isdecimal() and str(int(partition)) == partition:
        return int(partition)
    return partition


def _by_digits(seqs: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): seq for partition, seq in sorted(seqs.items())}


Sequences = Annotated[
    dict[PartitionNumber, NextSequence],
    BeforeValidator(_by_number),
    PlainSerializer(_by_digits),
]
"""Partition → next sequence; in JSON, the partition is a string key."""


class RecordPart(JsonDocument):
    """A part of a record; fields added by a newer release are kept."""

    model_config = ConfigDict(extra="allow")


class Basis(RecordPart):
    """The table version on which a run was about to commit."""

    table_id: str
    version: Version


class ArchivedCopies(RecordPart):
    """The copies that a run wrote to an archive before it removed files."""

    bytes: Natural
    files: Natural
    manifest: str
    previous: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")] | None = None
    """The link of the previous manifest; None if there is none, or an earlier release did not record it."""


class ChainedTo(RecordPart):
    """The place of a run in the chain of its history (`history.chain`)."""

    outcomes: Digest
    """The digest of the outcomes from the previous chained run on; of none for the first one."""
    after: Identifier | None = None
    """The previous chained run; None: the run begins the chain."""
    previous: Digest | None = None
    """The link of that run."""


class Segments(RecordPart):
    """The segments that a pass dropped, kept and rewrote."""

    dropped: Natural
    kept: Natural
    rewritten: Natural


class SpentApproval(RecordPart):
    """The operator's approval that a run spent; it permits no other run."""

    digest: Digest
    """SHA-256 of the approved report, computed as in `retention.jobs.approving`."""
    stream: Name
    run: Identifier


class RecordedRequest(documents.RequestDocument, RecordPart):
    """A removal request that a run executed."""

    @classmethod
    def of(cls, request: Request) -> Self:
        """The record of a request."""
        from retention.rules import requests

        values = requests.as_json(request)
        return cls.model_validate(
            {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
        )

    def read(self) -> Request:
        """The request, without fields added by a newer release."""
        from retention.rules import requests

        known = set(documents.RequestDocument.model_fields)
        return requests.from_json(self.model_dump(include=known, exclude_unset=True))


class RunRecord(Displayed, RecordPart):
    """A run in the run history: its intent before the commit, its outcome after it."""

    run: Identifier
    kind: Name
    status: Annotated[str, Field(pattern=r"^[a-z]{1,32}$")] = BEGUN
    as_of_ns: Int64
    """The instant at which the run applied rules, nanoseconds since the epoch; the clock's if it applied none."""
    stream: Name | None = None
    who: object = None
    """User, machine and process, for human readers; None for an interrupted run of a release that did not record it."""
    format: Natural | None = None
    """The `FORMAT` of the release that wrote the record; None for releases before `FORMAT`."""
    basis: Basis | None = None
    """The basis of an intent."""
    version_before: Version | None = None
    version_after: Version | None = None
    settled: bool = False
    """Whether a later run determined that it committed."""
    epoch: Natural = 0
    """The epoch of the counters after the run."""
    ends_epoch: Natural | None = None
    """The epoch that the run ended."""
    next_seq: Sequences | None = None
    """The next sequences after the run, if known to it."""
    ended_next_seq: Sequences | None = None
    """The next sequences of the epoch that it ended."""
    floor: Sequences | None = None
    """The highest next sequences of the epoch in all runs up to this one."""
    latest_as_of_ns: Int64 | None = None
    """The latest instant at which a pass applied rules, in all runs up to this one; a repair of the clock resets it."""
    policy: dict[str, Any] | None = None
    """The stream's policy, in the form of `Policy.as_json`."""
    removed_messages: Natural = 0
    removed_bytes: Int64 = 0
    by_rule: Counts = Field(default_factory=dict)
    kept_messages: Natural | None = None
    """The messages after the run, of the version that it was planned on; None: they were not counted."""
    kept_bytes: Natural | None = None
    """Their bytes; of a table in place, those of its files."""
    released: Annotated[list[Natural], Field(min_length=2, max_length=2)] | None = None
    """The numbers of the row-tombstone records before and after the run; None if unchanged."""
    archived: ArchivedCopies | None = None
    request: RecordedRequest | None = None
    bytes_read: Natural | None = None
    bytes_written: Natural | None = None
    spark_application: Name | None = None
    chain: ChainedTo | None = None
    """The place of the run in the chain; None for runs without a commit, and for those of earlier releases."""
    link: Digest | None = None
    """The digest of the intent, by which the commit and the next run name it; only outcomes have it."""
    commitments: dict[Name, Digest] | None = None
    """Field that may have to be erased → its salted commitment."""
    salts: dict[Name, Name] | None = None
    """Field → the salt of its commitment, erased with the value."""

    VALUES_OF_NONE: ClassVar[frozenset[str]] = frozenset({"who", "version_after"})
    """The fields with a meaningful null, which is written."""

    @property
    def carried_request(self) -> Request | None:
        """The request that the run executed; None if there was none."""
        return None if self.request is None else self.request.read()

    @property
    def is_done(self) -> bool:
        """Whether the run is known to have committed."""
        return self.status == DONE

    @property
    def is_certain(self) -> bool:
        """Whether the outcome of the run is known."""
        return self.status in {DONE, ABANDONED}

    @property
    def may_count(self) -> bool:
        """Whether the run committed, or may have."""
        return self.status in {DONE, UNKNOWN}

    @property
    def committed_version(self) -> int:
        """The version that the run committed.

        Raises:
            ValueError: the record has none.
        """
        if self.version_after is None:
            raise ValueError(f"run {self.run} has no version")
        return self.version_after

    @property
    def names_initiator(self) -> bool:
        """Whether the writing release recorded a run's initiator, and the sequences that it removed from files."""
        return "who" in self.model_fields_set

    @property
    def purges(self) -> bool:
        """Whether sequences restarted with the run."""
        return self.ends_epoch is not None

    def ended(self, version: int | None = None, **fields: object) -> Self:
        """The outcome of a run with this intent that committed a version; omits the basis of the intent."""
        done: dict[str, object] = {"status": DONE, "basis": None, **fields}
        return self.updated(**done if version is None else done | {"version_after": version})

    def updated(self, **fields: object) -> Self:
        """The record with new, unchecked values of given fields."""
        return self.model_copy(update=fields)

    def display_fields(self) -> JsonObject:
        """The fields that people look at."""
        return run_fields(self.as_json())

    def as_json(self) -> JsonObject:
        """The fields of the run, as JSON values in alphabetical order."""
        return {name: value for name, value in self.as_stored().items() if name not in _OF_FILE}

    def as_stored(self) -> dict[str, object]:
        """The fields as in the file, without its checksum."""
        known = type(self).model_fields.keys()
        of_kind = {name: getattr(self, name) for name in _OF_KIND if name in known}
        fields = self.model_dump(exclude_unset=True) | of_kind
        absent = {name for name in known - self.VALUES_OF_NONE if fields.get(name) is None}
        absent |= set() if self.epoch else {"epoch"}
        return {name: fields[name] for name in sorted(fields.keys() - absent)}
