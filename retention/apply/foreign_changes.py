"""Changes to a table since a run: why the run cannot be undone, the evidence, and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.core.inventory import DataFile
from retention.core.spans import Array
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.datafile.parquet import read_columns
from retention.errors import RefusedError, VerificationError
from retention.history.record import RunRecord
from retention.ports import Snapshot
from retention.storage import files
from retention.storage.places import delta_name
from retention.stores.checks import swap
from retention.stores.layout import Layout, identities

_MOST_RANGES = 3


@dataclass(frozen=True)
class UndoCheck:
    """A run to be undone, and the current table."""

    opened: OpenedStream
    snapshot: Snapshot
    outcome: RunRecord
    """The run's record in the run history."""
    removed: pa.Table
    """The files that the run removed, shape `FILE_STATS`."""
    added: pa.Table
    """The copies that the run wrote."""

    @property
    def run(self) -> str:
        """The run's name."""
        return self.outcome.run

    @cached_property
    def lost(self) -> list[str]:
        """Removed files that exist nowhere any more, or were replaced by other files."""
        return [path for path, place in self.places(self.removed).items() if place is None]

    @cached_property
    def rewritten(self) -> list[str]:
        """Copies that are no longer in the table."""
        return sorted(set(self.added["path"].to_pylist()) - self._live)

    @cached_property
    def back(self) -> list[str]:
        """Removed files that the table has again."""
        return sorted(set(self.removed["path"].to_pylist()) & self._live)

    @cached_property
    def _live(self) -> set[str]:
        return set(self.snapshot.files["path"].to_pylist())

    @property
    def is_alone(self) -> bool:
        """Whether only the run's own copies can contain a message that it removed."""
        live = self.opened.store.inventory(self.snapshot).files
        copies = pc.is_in(live["path"], value_set=self.added["path"].combine_chunks())
        others = live.filter(pc.invert(copies))
        for partition in self.removed["partition"].unique().to_pylist():
            removed, other = (
                table.filter(pc.equal(table["partition"], partition))
                for table in (self.removed, others)
            )
            if any(True for _ in swap.overlapping(removed, other, removed.slice(0, 0))):
                return False
        return True

    @property
    def layout(self) -> Layout:
        """The stream's layout."""
        return Layout(self.opened.root, self.opened.name)

    @property
    def markers(self) -> pa.Table:
        """The files with delete markers that the run wrote: their sequences follow everything that it removed."""
        last = pc.max(self.removed["max_seq"]).as_py()
        return self.added.filter(pc.greater(self.added["min_seq"], -1 if last is None else last))

    def places_of(self, paths: Sequence[str]) -> list[str | None]:
        """The present location of each file, live or removed; None: it does not exist."""
        located: list[str | None] = [None] * len(paths)
        for directory in (self.layout.messages, self.layout.engine_path("trash")):
            places = [files.join(directory, path) for path in paths]
            lengths = files.lengths(places)
            located = [
                known or (place if length is not None else None)
                for known, place, length in zip(located, places, lengths, strict=True)
            ]
        return located

    def places(self, table: pa.Table) -> dict[str, str | None]:
        """Path → the present location of that very file; None: it does not exist."""
        paths, wanted = table["path"].to_pylist(), table["file_bytes"].to_pylist()
        located: dict[str, str | None] = dict.fromkeys(paths)
        for directory in (self.layout.messages, self.layout.engine_path("trash")):
            places = [files.join(directory, path) for path in paths]
            for path, place, length, expected in zip(
                paths, places, files.lengths(places), wanted, strict=True
            ):
                if length == expected:
                    located[path] = located[path] or place
        return located

    def messages(self) -> dict[int, Array] | None:
        """Partition → the sequences that the run removed; None: some of its files are missing."""
        removed, left = self._sequences(self.removed), self._sequences(self.added)
        if removed is None or left is None:
            return None
        return {part: np.setdiff1d(seqs, left.get(part, [])) for part, seqs in removed.items()}

    def _sequences(self, table: pa.Table) -> dict[int, Array] | None:
        places = self.places(table)
        seqs_of: dict[int, list[Array]] = {}
        for path, partition, segment in identities(table):
            place = places[path]
            if place is None:
                return None
            rows, _ = read_columns(DataFile(path, partition, segment, place, ""), ("seq",))
            seqs_of.setdefault(partition, []).append(rows["seq"].to_numpy())
        return {partition: np.concatenate(parts) for partition, parts in seqs_of.items()}

    def there(self, partition: int, wanted: Array) -> Array:
        """A mask of `wanted`, ascending sequences: True where the table has the message."""
        mask = np.zeros(len(wanted), dtype=bool)
        if not len(wanted):
            return mask
        store = self.opened.store
        live = store.inventory(self.snapshot).files
        meets = pc.and_(
            pc.equal(live["partition"], partition),
            pc.and_(
                pc.less_equal(live["min_seq"], int(wanted[-1])),
                pc.greater_equal(live["max_seq"], int(wanted[0])),
            ),
        )
        for file in store.data_files(live.filter(meets)):
            mask |= np.isin(wanted, read_columns(file, ("seq",))[0]["seq"].to_numpy())
        return mask

    def act(self) -> tuple[int, str] | None:
        """The commit of another program that removed copies or restored removed files: version and operation."""
        named = [path.rpartition("/")[2].encode() for path in (*self.rewritten, *self.back)]
        committed = self.outcome.version_after
        after = -1 if committed is None else committed
        return self.opened.table_format.foreign_act(self.layout, after, named)


def refuse_put_back(opened: OpenedStream, snapshot: Snapshot, outcome: RunRecord) -> None:
    """Refuse to undo a run unknown to the table: the table was restored from an earlier copy.

    Raises:
        RefusedError: the table was restored.
    """
    here, committed = snapshot.version, outcome.version_after
    if committed is not None and here < committed:
        raise RefusedError(
            f"{opened.name}: there is nothing to undo: the table is at version {here}, and run {outcome.run} "
            f"committed version {committed}, so the table was restored from an earlier copy, which has the removed "
            "messages; nothing was changed"
        )


def changed_since(undoing: UndoCheck) -> RefusedError | None:
    """The error of a run whose copies were rewritten, or whose removed files were restored; None: neither was."""
    if undoing.rewritten or undoing.back:
        return RefusedError(_sentence(undoing))
    return None


def refuse_lost(undoing: UndoCheck) -> None:
    """Refuse to undo a run whose removed files are gone.

    Raises:
        VerificationError: they are.
    """
    if undoing.lost:
        raise VerificationError(_sentence(undoing))


def files_lost(undoing: UndoCheck, lost: int, of: int) -> VerificationError:
    """The error where files that held the messages to restore are gone."""
    return VerificationError(
        f"{undoing.opened.name}: run {undoing.run} cannot be undone: {lost} of {counted(of, 'file')} with removed "
        "messages no longer exist (VACUUM and reclaim delete them after the grace period); "
        f"nothing was changed; {_remedies(undoing)}"
    )


def back_under_other_names(undoing: UndoCheck) -> RefusedError:
    """The error where files of other names hold messages to restore."""
    return RefusedError(_sentence(undoing))


def _sentence(undoing: UndoCheck) -> str:
    name, run = undoing.opened.name, undoing.run
    messages = undoing.messages()
    missing = None if messages is None else _missing(undoing, messages)
    if messages is not None and missing is not None and not any(map(len, missing.values())):
        total = _total(messages)
        subject, verb = ("the message", "is") if total == 1 else (f"all {total:,} messages", "are")
        return (
            f"{name}: there is nothing to undo: {subject} that run {run} removed {verb} in the "
            f"table{_brought_by(undoing)}; the table is sound, nothing was changed"
        )
    return (
        f"{name}: run {run} cannot be undone: {_cause(undoing)}; the table is sound, nothing was changed; "
        f"{_state(undoing, messages, missing)}; {_files(undoing)}; {_remedies(undoing)}"
    )


def _missing(undoing: UndoCheck, messages: Mapping[int, Array]) -> dict[int, Array]:
    """Partition → the sequences that are not in the table."""
    return {part: seqs[~undoing.there(part, seqs)] for part, seqs in messages.items()}


def _brought_by(undoing: UndoCheck) -> str:
    act = undoing.act()
    return "" if act is None else f" again ({act[1]}, version {act[0]})"


def _cause(undoing: UndoCheck) -> str:
    if undoing.rewritten or undoing.back:
        act = undoing.act()
        who = "another program" if act is None else f"{act[1]} (version {act[0]})"
        if undoing.rewritten:
            number, of = len(undoing.rewritten), undoing.added.num_rows
            return f"{who} has rewritten {number} of {counted(of, 'file')} of kept messages, which would be duplicated"
        return f"{who} has restored {len(undoing.back)} of the removed files"
    if undoing.lost:
        return (
            f"{len(undoing.lost)} of {counted(undoing.removed.num_rows, 'removed file')} no longer exist, such as "
            f"{undoing.lost[0]} (VACUUM and reclaim delete them after the grace period)"
        )
    return "files of another writer hold messages that it removed, which would be duplicated"


def _state(
    undoing: UndoCheck, messages: Mapping[int, Array] | None, missing: Mapping[int, Array] | None
) -> str:
    removed = undoing.outcome.removed_messages
    if messages is None or missing is None:
        if undoing.is_alone:
            return f"none of {counted(removed, 'removed message')} is in the table"
        return f"it is unknown which of {counted(removed, 'removed message')} are in the table"
    total, gone = _total(messages), _total(missing)
    if gone == total:
        return f"none of {counted(total, 'removed message')} is in the table"
    ranges = [text for part, seqs in missing.items() for text in _spelled(part, seqs)]
    some = ", ".join(ranges[:_MOST_RANGES]) + (", …" if len(ranges) > _MOST_RANGES else "")
    return f"of {counted(total, 'removed message')}, {total - gone:,} are in the table, and {gone:,} are not ({some})"


def _spelled(partition: int, seqs: Array) -> Iterable[str]:
    """Ranges of ascending sequences in words: 3, 4, 5 and 9 are "3 to 5" and "9"."""
    of = f"partition {partition} " if partition else ""
    edges = np.flatnonzero(np.diff(seqs) != 1) + 1
    for part in np.split(seqs, edges) if len(seqs) else []:
        yield f"{of}{part[0]}" if len(part) == 1 else f"{of}{part[0]} to {part[-1]}"


def _files(undoing: UndoCheck) -> str:
    count = undoing.removed.num_rows
    there = count - len(undoing.lost)
    if not there:
        return "none of the removed files exists"
    kept = next(place for place in undoing.places(undoing.removed).values() if place is not None)
    return f"of {counted(count, 'removed file')}, {there:,} can still be read ({kept})"


def _remedies(undoing: UndoCheck) -> str:
    remedies: list[str] = []
    if undoing.opened.config.archive is not None or undoing.outcome.archived is not None:
        remedies.append(
            f"{command('restore', undoing.opened.name)} restores the missing messages from the archive"
        )
    act = undoing.act() if undoing.rewritten and not undoing.lost else None
    if act is not None:
        remedies.append(
            f"RESTORE TABLE {delta_name(undoing.layout.messages)} TO VERSION AS OF {act[0] - 1} makes the undo "
            "possible, but reverts every later commit, publishes included"
        )
    remedies.append("an earlier backup can be imported as another stream")
    return "; or ".join(remedies)


def _total(by_partition: Mapping[int, Array]) -> int:
    return sum(map(len, by_partition.values()))
