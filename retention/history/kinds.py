"""The kinds of runs, each with its own record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from retention.core.documents import (
    Digest,
    Identifier,
    Int64,
    Name,
    Natural,
    Path,
    Version,
    validated,
)
from retention.core.json_object import JsonObject
from retention.history.record import STATUSES, RecordPart, RunRecord, Segments, SpentApproval


class PermittedRun(RunRecord):
    """A run that applied a plan, within guards and an approval."""

    plan_id: Identifier | None = None
    guards: object = None
    reason: str | None = None
    """The reason for lifting refusals; None if none was given."""
    approval: SpentApproval | None = None
    """The approval that the run spent; None if it needed none."""


class PlannedRun(PermittedRun):
    """A run that applied a plan of a stream."""

    segments: Segments | None = None
    files_read: Natural | None = None
    seconds: float | None = None
    markers: Natural = 0
    deleted_consumers: list[Name] = Field(default_factory=list)
    held: object = None
    overdue: Any = None
    dropped: Any = None


class Applied(PlannedRun):
    """A pass: the rules of a policy at one instant."""

    kind: Literal["apply"] = "apply"


class Requested(PlannedRun):
    """A removal on request, other than a drop."""

    kind: Literal["delete", "purge", "delete_segments"]


class Erased(PlannedRun):
    """The removal of messages of which no copy is left; it cannot be undone."""

    kind: Literal["erase"] = "erase"
    erasure: Identifier
    """The erasure whose request and report have the details."""


class Dropped(PlannedRun):
    """The removal of a stream with all its messages."""

    kind: Literal["drop"] = "drop"


class OfTable(RunRecord):
    """A run on a table in place."""

    def as_json(self) -> JsonObject:
        """The fields of the run, as JSON values in alphabetical order; `table` names its table."""
        fields = super().as_json()
        return dict(sorted({"table": fields.pop("stream", None), **fields}.items()))


class TableRun(OfTable):
    """A run that changed a table in place."""

    location: str = ""
    started_ns: Int64 = 0
    """The start that the log's `txn` of a committed run has, nanoseconds since the epoch."""
    staged: list[Path] = Field(default_factory=list)
    """The files that it wrote before its commit, in the table's directory; deleted if it did not commit."""
    removed_rows: Natural = 0
    kept_rows: Natural | None = None
    """The rows after the run, of the version that it was planned on; None: they were not counted."""
    files_dropped: Natural = 0
    files_cut: Natural = 0
    seconds: float | None = None


class TableApplied(TableRun, PermittedRun):
    """A pass over a table in place."""

    kind: Literal["apply_table"] = "apply_table"
    files_read: Natural = 0
    records: dict[Name, Digest] = Field(default_factory=dict)
    """Name of each record of the run, `changes` and `evidence` → the SHA-256 of its file."""


class TableUndone(TableRun):
    """An undo of a pass over a table in place."""

    kind: Literal["undo_table"] = "undo_table"
    undoes: Identifier
    restored_rows: Natural = 0
    restored_files: Natural = 0
    """Files that are as before the undone run."""
    written_files: Natural = 0
    """Files with rows that came back on their own, because others had changed their old file."""


class TableErased(TableRun):
    """The removal of rows by an erasure; it cannot be undone."""

    kind: Literal["erase_table"] = "erase_table"
    erasure: Identifier
    """The erasure whose request and report have the details."""


class Undone(RunRecord):
    """An undo of another run."""

    kind: Literal["undo"] = "undo"
    undoes: Identifier
    restored_messages: Natural = 0
    restored_bytes: Int64 = 0
    rewritten: bool = False
    """Whether messages were restored in new files; otherwise the removed files themselves were restored."""


class RestoredRun(RunRecord):
    """A restore of messages from an archive."""

    kind: Literal["restore"] = "restore"
    source: str | None = None
    """The directory of the archive."""
    restored_messages: Natural = 0
    restored_bytes: Int64 = 0


class RolledUp(RunRecord):
    """A publish with roll-ups that removed older messages."""

    kind: Literal["rollup"] = "rollup"
    published_messages: Natural = 0


class Compacted(RunRecord):
    """A merge of files that removed no message."""

    kind: Literal["compact"] = "compact"
    files_before: Natural = 0
    files_after: Natural = 0


class ClaimedFiles(RecordPart):
    """The number of dead files with one reason, and their bytes on disk."""

    bytes: Natural
    files: Natural


class Reclaimed(RunRecord):
    """The deletion of dead files after their grace."""

    kind: Literal["reclaim"] = "reclaim"
    reclaimed: dict[Name, ClaimedFiles] = Field(default_factory=dict)
    """Reason → the claimed files."""


class TableReclaimed(OfTable):
    """The deletion of files that passes over a table removed, after their grace."""

    kind: Literal["reclaim_table"] = "reclaim_table"
    location: str = ""
    reclaimed: dict[Name, ClaimedFiles] = Field(default_factory=dict)
    """Reason → the deleted files."""


class Repaired(RunRecord):
    """A repair."""

    kind: Literal["repair"] = "repair"
    repair: Name

    @property
    def purges(self) -> bool:
        """Always False: after a repair, sequences continue from the remaining ones."""
        return False


class ClockRepaired(Repaired):
    """A repair of the effects of a wrong clock."""

    repair: Literal["clock"] = "clock"
    wrong_as_of_ns: Int64 | None = None
    """The last applied instant before the repair."""
    wrong_runs: list[Identifier] = Field(default_factory=list)


class MovedFile(RecordPart):
    """A file of another writer that was moved aside."""

    path: Path
    reason: str


class ForeignMoved(Repaired):
    """A repair that moved files of another writer aside."""

    repair: Literal["foreign"] = "foreign"
    directory: str | None = None
    """The directory with the moved files, each at its path."""
    files: list[MovedFile] = Field(default_factory=list)


class ReturnedRemoved(Repaired):
    """A repair that removed again the messages that another writer resurrected."""

    repair: Literal["returned"] = "returned"
    commits: list[Version] = Field(default_factory=list)
    """The versions that the other writer committed."""


class GivenUpFile(RecordPart):
    """A file that was removed from a table without a replacement."""

    path: Path
    reason: str
    messages: Natural | None = None
    """The number of its messages; None if unknown."""
    bytes: Natural | None = None
    first_seq: Int64
    last_seq: Int64


class FilesGivenUp(Repaired):
    """A repair that removed missing, damaged or foreign files from a table."""

    repair: Literal["lost"] = "lost"
    files: list[GivenUpFile] = Field(default_factory=list)


class LostCommitted(Repaired):
    """A repair that repeated a commit that another program had overwritten in the log."""

    repair: Literal["lost-commit"] = "lost-commit"
    commit: object = None
    """The commit, in the form of `CommittedAgain.as_json`."""


class SequencesRepaired(Repaired):
    """A repair that removed rows with impossible numbers; `SequenceRepair` documents its fields."""

    repair: Literal["sequences"] = "sequences"
    needed: bool = True
    files: Any = None
    counters: object = None
    begins_epoch: bool = False
    consumers: list[Name] = Field(default_factory=list)


class NewerRun(RunRecord):
    """A run with a kind or a status unknown to this release; a newer release wrote the record."""


_SHAPES: Mapping[str, type[RunRecord]] = {
    "apply": Applied,
    **dict.fromkeys(("delete", "purge", "delete_segments"), Requested),
    "drop": Dropped,
    "erase": Erased,
    "undo": Undone,
    "restore": RestoredRun,
    "rollup": RolledUp,
    "compact": Compacted,
    "reclaim": Reclaimed,
    "apply_table": TableApplied,
    "undo_table": TableUndone,
    "erase_table": TableErased,
    "reclaim_table": TableReclaimed,
}
_REPAIRS: Mapping[str, type[Repaired]] = {
    "clock": ClockRepaired,
    "lost": FilesGivenUp,
    "foreign": ForeignMoved,
    "lost-commit": LostCommitted,
    "returned": ReturnedRemoved,
    "sequences": SequencesRepaired,
}


def is_erasure(record: RunRecord) -> bool:
    """Whether a run removed messages of which no copy is left, also one of an earlier release."""
    is_former = record.request is not None and record.request.erase
    return is_former or isinstance(record, Erased)


def record_of(fields: Mapping[str, object]) -> RunRecord:
    """The record of a run, from its fields in the run history.

    Raises:
        ValueError: names the first missing or invalid field, and its value.
    """
    if "status" not in fields:
        raise ValueError("status is missing")
    record = validated(_shape_of(fields), fields)
    if record.status in STATUSES or isinstance(record, NewerRun):
        return record
    return validated(NewerRun, fields)


def _shape_of(fields: Mapping[str, object]) -> type[RunRecord]:
    kind, repair = fields.get("kind"), fields.get("repair")
    if kind == "repair" and isinstance(repair, str):
        return _REPAIRS.get(repair, NewerRun)
    return _SHAPES.get(kind, NewerRun) if isinstance(kind, str) else NewerRun
