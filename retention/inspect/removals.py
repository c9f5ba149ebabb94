"""The removals of a stream's runs: the messages and operator of each, and whether and until when it can be undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.reclaim.survey import grace_of
from retention.apply.run_evidence import TakenByRun
from retention.apply.undo_records import read_record
from retention.context.context import OpenedStream
from retention.core.json_object import JsonObject
from retention.core.policy import policy_from_json
from retention.core.run_names import started_ns
from retention.core.seq_ranges import in_ranges
from retention.core.spoken_commands import command
from retention.core.units import format_instant
from retention.core.vector_paths import data_path
from retention.datafile.parquet import read_columns
from retention.errors import RetentionError, StorageError
from retention.history.initiator import initiator_text
from retention.history.kinds import RestoredRun, SequencesRepaired, Undone, is_erasure
from retention.history.record import RunRecord
from retention.inspect.taken import EndOfUndo, Taken
from retention.rules.reasons import reason_of
from retention.storage import files


@dataclass(frozen=True)
class RemovalRun:
    """A run that removed messages, or may have, and its later events."""

    opened: OpenedStream
    outcome: RunRecord
    """The run's record in the run history."""
    undone_by: str | None
    """The run that undid it; None: none did."""
    taken: Taken
    """The messages that the stream's runs removed."""

    @property
    def run(self) -> str:
        """The run's name."""
        return self.outcome.run

    @property
    def removed_ns(self) -> int:
        """The start of the run, the closest known time of the removal; nanoseconds since the epoch."""
        return started_ns(self.run, self.outcome.as_of_ns)

    @property
    def epoch(self) -> int:
        """The epoch of the sequences that it removed."""
        ended = self.outcome.ends_epoch
        return self.outcome.epoch if ended is None else ended

    @property
    def messages(self) -> int:
        """The number of messages that it removed."""
        return self.outcome.removed_messages

    def ranges(self) -> TakenByRun | None:
        """The messages that it removed, as from `Taken.of_run`.

        Raises:
            DamagedError: a record, or a file of evidence, differs from what was written.
        """
        return self.taken.of_run(self.run)

    def is_forgotten(self) -> bool:
        """Whether it removed messages, and neither they nor their files are known any more.

        Raises:
            DamagedError: as `ranges`.
        """
        taken = self.ranges() if self.messages else None
        has_rows = taken is not None and any(rows.num_rows for rows in taken.tables())
        return bool(self.messages) and not has_rows

    def reason(self, rule: str) -> str:
        """The reason why it removed messages by a rule, with the known numbers of that time."""
        request = self.outcome.carried_request
        if request is not None:
            return request.wording
        if self.outcome.policy is None:
            return rule
        try:
            policy = policy_from_json(self.outcome.policy)
        except (KeyError, TypeError, ValueError):
            return rule
        return reason_of(rule, policy, self.outcome.as_of_ns)

    def who(self) -> str:
        """The user, machine and process that ran it, and the scheduler's names, in words."""
        parts = [initiator_text(self.outcome.who)]
        if self.outcome.spark_application is not None:
            parts.append(f"Spark application {self.outcome.spark_application}")
        return "; ".join(parts)

    def recovery(self, now_ns: int) -> Recovery:
        """Whether its messages can be restored, by the present clock and disk."""
        until_ns = self.removed_ns + self._grace_ns()
        return Recovery(
            run=self.run,
            stream=self.opened.name,
            undone_by=self.undone_by,
            is_final=self._is_final(),
            until_ns=until_ns,
            is_over=now_ns >= until_ns,
            files_there=self._files_are_there(),
            reclaimed=self.taken.end_of_undo(self.run),
            archive=self._archive(),
        )

    def _archive(self) -> str | None:
        """The manifest of the copies; None: nothing was archived, or the copies are deleted."""
        if self.outcome.archived is None:
            return None
        place = self.outcome.archived.manifest
        try:
            return None if files.length(place) is None else place
        except StorageError:
            return place

    def read(self, row: Mapping[str, Any], columns: Sequence[str]) -> pa.Table | None:
        """Rows that one of its ranges removed, read from the file; None: the file is deleted, or damaged.

        Args:
            row: a row of `RUN_RANGES`.
            columns: columns of the messages, `seq` among them.
        """
        layout = self.opened.layout
        for directory in (layout.messages, layout.engine_path("trash")):
            place = files.join(directory, data_path(row["path"]))
            file = layout.data_file((row["path"], row["partition"], row["segment"]), place)
            try:
                if files.length(place) is not None:
                    return _within(read_columns(file, columns)[0], row)
            except (RetentionError, OSError):
                continue
        return None

    def holds(self, row: Mapping[str, Any], seq: int) -> bool | None:
        """Whether one of its ranges, which encloses a sequence, had a message there; None: unknown.

        A range without holes had one everywhere; for any other, its file decides, if it still exists.
        """
        excepted = sum(
            max(0, min(last, row["last_seq"]) - max(first, row["first_seq"]) + 1)
            for first, last in zip(row["except_firsts"], row["except_lasts"], strict=True)
        )
        if row["messages"] == row["last_seq"] - row["first_seq"] + 1 - excepted:
            return True
        rows = self.read(row, ("seq",))
        return None if rows is None else bool(pc.any(pc.equal(rows["seq"], seq)).as_py())

    def _grace_ns(self) -> int:
        """The grace by which a reclaim decides; that of the configuration if the table cannot be read."""
        try:
            return grace_of(self.opened, self.opened.store.snapshot())
        except RetentionError:
            return self.opened.config.grace_ns

    def _is_final(self) -> str | None:
        if is_erasure(self.outcome):
            return "it was erased"
        if isinstance(self.outcome, SequencesRepaired):
            return "a repair of sequences cannot be undone"
        if isinstance(self.outcome, Undone):
            return "an undo cannot be undone: the next pass removes the same messages, and writes markers again"
        return None

    def _files_are_there(self) -> bool:
        layout = self.opened.layout
        try:
            removed = read_record(self.opened, self.run, "removed")
        except RetentionError:
            return False
        paths, lengths = (removed[name].to_pylist() for name in ("path", "file_bytes"))
        missing = dict(zip(paths, lengths, strict=True))
        for directory in (layout.messages, layout.engine_path("trash")):
            places = [files.join(directory, data_path(path)) for path in missing]
            missing = {
                path: wanted
                for (path, wanted), length in zip(
                    missing.items(), files.lengths(places), strict=True
                )
                if length != wanted
            }
        return not missing


@dataclass(frozen=True)
class Recovery:
    """Whether, how and until when the messages of a run can be restored."""

    run: str
    stream: str
    undone_by: str | None
    is_final: str | None
    """The reason why no undo restores them at any time; None: no such reason."""
    until_ns: int
    """The instant until which a reclaim keeps the removed files at least, under the current grace period."""
    is_over: bool
    """Whether that instant has passed."""
    files_there: bool
    """Whether every file that the run removed is still on the disk."""
    reclaimed: EndOfUndo | None
    """The reclaim that made undo impossible; None: there was none, or it is unknown."""
    archive: str | None
    """The manifest of the copies in the archive; None: nothing was archived."""

    @property
    def is_possible(self) -> bool:
        """Whether an undo finds all that it needs; a later run on the same segments may still prevent it."""
        return self.undone_by is None and self.is_final is None and self.files_there

    @property
    def sentence(self) -> str:
        """The recovery in words."""
        copy = (
            ""
            if self.archive is None
            else f"; copies are in the archive ({self.archive}): {command('restore', self.stream)}"
        )
        return f"{self._fate()}{copy}"

    def _fate(self) -> str:
        if self.undone_by is not None:
            return f"run {self.undone_by} restored it"
        if self.is_final is not None:
            return f"it cannot be restored: {self.is_final}"
        until = format_instant(self.until_ns)
        if self.reclaimed is not None:
            return f"undo can no longer restore it: {self.reclaimed.sentence}"
        if not self.files_there:
            return f"undo cannot restore it: files that held it were deleted (kept until {until} at least)"
        if self.is_over:
            return (
                f"`retention undo {self.run}` may still restore it: the grace period ended at {until}, but its files "
                "are not deleted yet"
            )
        return f"`retention undo {self.run}` can restore it until {until} at least"

    def as_json(self) -> JsonObject:
        """The recovery as JSON values."""
        return {
            "possible": self.is_possible,
            "undone_by": self.undone_by,
            "until_ns": self.until_ns,
            "files_there": self.files_there,
            "reclaimed_by": self.reclaimed and self.reclaimed.by,
            "reclaimed_ns": self.reclaimed and self.reclaimed.at_ns,
            "archive": self.archive,
            "sentence": self.sentence,
        }


def removals_of(opened: OpenedStream, outcomes: Sequence[RunRecord]) -> Iterator[RemovalRun]:
    """The runs that removed messages, or may have, newest first.

    Args:
        opened: the stream.
        outcomes: the records of all its runs, newest first.
    """
    undone = {
        record.undoes: record.run
        for record in outcomes
        if isinstance(record, Undone) and record.is_done
    }
    taken = Taken(opened)
    for record in outcomes:
        if record.may_count and not isinstance(record, RestoredRun):
            yield RemovalRun(opened, record, undone.get(record.run), taken)


def is_undoing(record: RunRecord, run: str) -> bool:
    """Whether a record is that of a run which undid another."""
    return isinstance(record, Undone) and record.is_done and record.undoes == run


def rows_of(reaching: pa.Table, seq: int) -> Iterator[dict[str, object]]:
    """The ranges, among those that enclose a sequence, in which it is not an exception.

    `RemovalRun.holds` decides whether they had a message there.
    """
    for row in reaching.to_pylist():
        if not any(
            first <= seq <= last
            for first, last in zip(row["except_firsts"], row["except_lasts"], strict=True)
        ):
            yield dict(row)


def _within(rows: pa.Table, row: Mapping[str, object]) -> pa.Table:
    """Messages of a file that a range removed."""
    seqs = rows["seq"].to_numpy()
    excepted = np.array([row["except_firsts"], row["except_lasts"]], dtype=np.int64).T
    goes = (seqs >= row["first_seq"]) & (seqs <= row["last_seq"]) & ~in_ranges(seqs, excepted)
    return rows.filter(pa.array(goes))
