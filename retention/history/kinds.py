"""The kinds of runs: a record of its own for each, by what the run did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from retention.core.documents import Identifier, Int64, Name, Natural, Path, Version, validated
from retention.history.record import STATUSES, RecordPart, RunRecord, Segments, SpentApproval


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
    reason: str | None = None
    """The reason why refusals were lifted; None: nobody gave one."""
    approval: SpentApproval | None = None
    """The approval that the run spent; None: it needed none."""


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


class ClaimedFiles(RecordPart):
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

    @property
    def purges(self) -> bool:
        """Whether sequences began again: a repair goes on with those that stay."""
        return False


class ClockRepaired(Repaired):
    """A repair of what a wrong clock left."""

    repair: Literal["clock"] = "clock"
    wrong_as_of_ns: Int64 | None = None
    """The last applied instant until then."""
    wrong_runs: list[Identifier] = Field(default_factory=list)


class MovedFile(RecordPart):
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


class GivenUpFile(RecordPart):
    """A file that was taken out of a table without another in its place."""

    path: Path
    reason: str
    messages: Natural | None = None
    """None: nothing tells how many it held."""
    bytes: Natural | None = None
    first_seq: Int64
    last_seq: Int64


class FilesGivenUp(Repaired):
    """A repair that took files out of a table that were missing, damaged, or another writer's."""

    repair: Literal["lost"] = "lost"
    files: list[GivenUpFile] = Field(default_factory=list)


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
    "lost": FilesGivenUp,
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
