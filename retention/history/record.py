"""Records of runs: one type for each kind of run, as the run history keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from retention.core import documents
from retention.core.documents import (
    Counts,
    Document,
    Identifier,
    Int64,
    Name,
    Natural,
    NextSequence,
    PartitionNumber,
    Path,
    Version,
    validated,
)
from retention.rules import requests
from retention.rules.requests import Request

FORMAT = 1
"""The number of the list of kinds that this release knows; a release that adds a kind raises it.

Each record has that of the release that wrote it, which made sure before that it knew all earlier ones.
"""
BEGUN = "begun"
DONE = "done"
ABANDONED = "abandoned"
"""The status of a run that was interrupted and changed nothing."""
UNKNOWN = "unknown"
"""The status of a run of which it cannot be known any more whether it committed."""
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
"""Partition → next sequence; in JSON the partition is a key, a text."""


class _Part(Document):
    """A part of a record; fields that a newer release adds are kept."""

    model_config = ConfigDict(extra="allow")


class Basis(_Part):
    """The table on which a run was about to commit."""

    table_id: str
    version: Version


class ArchivedCopies(_Part):
    """The copies that a run made in an archive before it removed files."""

    bytes: Natural
    files: Natural
    manifest: str


class Segments(_Part):
    """The segments that a pass dropped, kept and rewrote."""

    dropped: Natural
    kept: Natural
    rewritten: Natural


class RecordedRequest(documents.Request, _Part):
    """A request of people, as a run carried it out."""

    @classmethod
    def of(cls, request: Request) -> Self:
        """The record of a request."""
        values = requests.as_json(request)
        return cls.model_validate(
            {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
        )

    def read(self) -> Request:
        """The request, without what a newer release has added to it."""
        known = set(documents.Request.model_fields)
        return requests.from_json(self.model_dump(include=known, exclude_unset=True))


class RunRecord(_Part):
    """A run in the run history: its intent before the commit, its outcome after it."""

    run: Identifier
    kind: Name
    status: Annotated[str, Field(pattern=r"^[a-z]{1,32}$")] = BEGUN
    as_of_ns: Int64
    """The instant that the run applied rules at, nanoseconds since the epoch; its clock's where it applied none."""
    stream: Name | None = None
    who: Any = None
    """The user, machine and process, for people only; None: an interrupted run of a release that did not record it."""
    format: Natural | None = None
    """The `FORMAT` of the release that wrote the record; None: an earlier release did."""
    basis: Basis | None = None
    """Of an intent."""
    version_before: Version | None = None
    version_after: Version | None = None
    settled: bool = False
    """Whether a later run found out that it committed."""
    epoch: Natural = 0
    """The epoch of the counters after the run."""
    ends_epoch: Natural | None = None
    """The epoch that the run ended."""
    next_seq: Sequences | None = None
    """The next sequences after the run, as far as it knew them."""
    ended_next_seq: Sequences | None = None
    """The same of the epoch that it ended."""
    floor: Sequences | None = None
    """The highest next sequences of the epoch in all runs up to this one."""
    latest_as_of_ns: Int64 | None = None
    """The latest instant that a pass applied rules at, in all runs up to this one; a repair of the clock sets it."""
    policy: dict[str, Any] | None = None
    """The stream's policy, as `Policy.as_json` has it."""
    removed_messages: Natural = 0
    removed_bytes: Int64 = 0
    by_rule: Counts = Field(default_factory=dict)
    released: Annotated[list[Natural], Field(min_length=2, max_length=2)] | None = None
    """The numbers of the records of row tombstones before and after the run; None: it changed nothing there."""
    archived: ArchivedCopies | None = None
    request: RecordedRequest | None = None
    bytes_read: Natural | None = None
    bytes_written: Natural | None = None
    spark_application: Name | None = None

    VALUES_OF_NONE: ClassVar[frozenset[str]] = frozenset({"who", "version_after"})
    """The fields in which a null is worth writing."""

    @property
    def carried_request(self) -> Request | None:
        """The request that it carried out; None: it was none."""
        return None if self.request is None else self.request.read()

    @property
    def is_done(self) -> bool:
        """Whether it is known that the run committed."""
        return self.status == DONE

    @property
    def is_certain(self) -> bool:
        """Whether it is known what became of the run."""
        return self.status in {DONE, ABANDONED}

    @property
    def may_count(self) -> bool:
        """Whether the run committed, or may have."""
        return self.status in {DONE, UNKNOWN}

    @property
    def committed_version(self) -> int:
        """The version that the run committed.

        Raises:
            ValueError: the record does not tell.
        """
        if self.version_after is None:
            raise ValueError(f"run {self.run} has no version")
        return self.version_after

    @property
    def names_initiator(self) -> bool:
        """Whether the release that wrote it recorded who ran a run, and which sequences the run took of files."""
        return "who" in self.model_fields_set

    @property
    def purges(self) -> bool:
        """Whether sequences began again with the run: a repair goes on with those that stay."""
        return self.ends_epoch is not None and not isinstance(self, Repaired)

    def ended(self, version: int | None = None, **fields: Any) -> Self:
        """The outcome of a run that had this intent, and committed a version; what the intent rests on is left out."""
        done: dict[str, Any] = {"status": DONE, "basis": None, **fields}
        return self.updated(**done if version is None else done | {"version_after": version})

    def updated(self, **fields: Any) -> Self:
        """The record with other values of some fields, which are not checked."""
        return self.model_copy(update=fields)

    def as_json(self) -> dict[str, Any]:
        """The fields that the run has, as JSON values in alphabetical order."""
        return {name: value for name, value in self.as_stored().items() if name != "format"}

    def as_stored(self) -> dict[str, Any]:
        """The fields as they stand in the file, without its checksum."""
        fields = self.model_dump(exclude_unset=True) | {"kind": self.kind, "status": self.status}
        return {
            name: fields[name]
            for name in sorted(fields)
            if fields[name] is not None or name in self.VALUES_OF_NONE
            if name != "epoch" or fields[name]
        }


class PlannedRun(RunRecord):
    """A run that carried out a plan."""

    plan_id: Identifier | None = None
    segments: Segments | None = None
    files_read: Natural | None = None
    seconds: float | None = None
    markers: Natural = 0
    deleted_consumers: list[Name] = Field(default_factory=list)
    held: Any = None
    overdue: Any = None
    dropped: Any = None
    guards: Any = None


class Applied(PlannedRun):
    """A pass: the rules of a policy at one instant."""

    kind: Literal["apply"] = "apply"


class Requested(PlannedRun):
    """A removal that people asked for, but for a drop."""

    kind: Literal["delete", "purge", "delete_segments"]


class Dropped(PlannedRun):
    """A stream removed with all that it held."""

    kind: Literal["drop"] = "drop"


class Undone(RunRecord):
    """An undo of another run."""

    kind: Literal["undo"] = "undo"
    undoes: Identifier
    restored_messages: Natural = 0
    restored_bytes: Int64 = 0
    rewritten: bool = False
    """Whether messages came back in files of their own; else the files that the run removed did."""


class RestoredRun(RunRecord):
    """Messages brought back from an archive."""

    kind: Literal["restore"] = "restore"
    source: str | None = None
    """The directory of the archive."""
    restored_messages: Natural = 0
    restored_bytes: Int64 = 0


class RolledUp(RunRecord):
    """A publish whose roll-ups removed older messages."""

    kind: Literal["rollup"] = "rollup"
    published_messages: Natural = 0


class Compacted(RunRecord):
    """Files merged; no message was removed."""

    kind: Literal["compact"] = "compact"
    files_before: Natural = 0
    files_after: Natural = 0
    dead_bytes: Natural = 0
    """Bytes, by the broker's accounting, of deleted rows that left the files."""


class ClaimedFiles(_Part):
    """Dead files of one reason, and their bytes on the disk."""

    bytes: Natural
    files: Natural


class Reclaimed(RunRecord):
    """Dead files deleted, whose grace is over."""

    kind: Literal["reclaim"] = "reclaim"
    reclaimed: dict[Name, ClaimedFiles] = Field(default_factory=dict)
    """Reason → the files that were claimed."""


class Repaired(RunRecord):
    """A repair."""

    kind: Literal["repair"] = "repair"
    repair: Name


class ClockRepaired(Repaired):
    """A repair of what a wrong clock left."""

    repair: Literal["clock"] = "clock"
    wrong_as_of_ns: Int64 | None = None
    """The last applied instant until then."""
    wrong_runs: list[Identifier] = Field(default_factory=list)


class MovedFile(_Part):
    """A file of another writer that was moved aside."""

    path: Path
    reason: str


class ForeignMoved(Repaired):
    """A repair that moved files of another writer aside."""

    repair: Literal["foreign"] = "foreign"
    directory: str | None = None
    """The directory where they lie now, each at its path."""
    files: list[MovedFile] = Field(default_factory=list)


class ReturnedRemoved(Repaired):
    """A repair that removed again what another writer had brought back."""

    repair: Literal["returned"] = "returned"
    commits: list[Version] = Field(default_factory=list)
    """The versions that the other writer had made."""


class LostCommitted(Repaired):
    """A repair that committed again what another program had overwritten in the log."""

    repair: Literal["lost-commit"] = "lost-commit"
    commit: Any = None
    """The commit, as `CommittedAgain.as_json` has it."""


class SequencesRepaired(Repaired):
    """A repair that took rows with impossible numbers out; `SequenceRepair` has what its fields mean."""

    repair: Literal["sequences"] = "sequences"
    needed: bool = True
    files: Any = None
    counters: Any = None
    begins_epoch: bool = False
    consumers: list[Name] = Field(default_factory=list)


class NewerRun(RunRecord):
    """A run of a kind, or with a status, that this release does not know: a newer one wrote the record."""


Removal: TypeAlias = Applied | Requested | Dropped | RolledUp
"""A run by rules or requests, whose messages come back by an undo."""
_SHAPES: Mapping[str, type[RunRecord]] = {
    "apply": Applied,
    **dict.fromkeys(("delete", "purge", "delete_segments"), Requested),
    "drop": Dropped,
    "undo": Undone,
    "restore": RestoredRun,
    "rollup": RolledUp,
    "compact": Compacted,
    "reclaim": Reclaimed,
}
_REPAIRS: Mapping[str, type[Repaired]] = {
    "clock": ClockRepaired,
    "foreign": ForeignMoved,
    "lost-commit": LostCommitted,
    "returned": ReturnedRemoved,
    "sequences": SequencesRepaired,
}


def record_of(fields: Mapping[str, Any]) -> RunRecord:
    """The record of a run, by its fields in the run history.

    Raises:
        ValueError: naming the first field that is missing or does not fit, and its value.
    """
    if "status" not in fields:
        raise ValueError("status is missing")
    record = validated(_shape_of(fields), fields)
    if record.status in STATUSES or isinstance(record, NewerRun):
        return record
    return validated(NewerRun, fields)


def _shape_of(fields: Mapping[str, Any]) -> type[RunRecord]:
    kind, repair = fields.get("kind"), fields.get("repair")
    if kind == "repair" and isinstance(repair, str):
        return _REPAIRS.get(repair, NewerRun)
    return _SHAPES.get(kind, NewerRun) if isinstance(kind, str) else NewerRun
