"""Conflicts of an undo with later changes of the table: their evidence, their sentences, and the remedies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from retention.apply.undo_files import RunToUndo
from retention.apply.undo_records import read_record
from retention.core.spans import Array
from retention.core.spoken_commands import command
from retention.core.vector_paths import data_path
from retention.core.wording import counted
from retention.erasure.record import Erasures
from retention.errors import RefusedError, VerificationError
from retention.history.kinds import RestoredRun, ReturnedRemoved, Undone
from retention.layout.segment_assignment import divided_mask, segment_of_rows
from retention.storage.places import delta_name

_MOST_RANGES = 3
_WHOLE_FILES = "a version of this program that recorded only whole files made"


def touched_since(undo: RunToUndo) -> RefusedError | None:
    """The error if a later run removed messages from the same segments, or restored some there; None: none did."""
    undone = {record.undoes for record in undo.later if isinstance(record, Undone)}
    segments = _segments(undo.removed)
    for record in undo.later:
        if record.run in undone:
            continue
        by_run = f"{undo.opened.name}: run {record.run}"
        if isinstance(record, RestoredRun):
            files_of_run = "added"
            conflict = RefusedError(
                f"{by_run} restored messages of the same segments from an archive after run {undo.run}, so they "
                "would be duplicated; nothing was changed; restore the others from the archive as well"
            )
        elif isinstance(record, Undone) and record.rewritten:
            files_of_run = "added"
            conflict = RefusedError(
                f"{by_run} rewrote messages of the same segments after run {undo.run}, and {_WHOLE_FILES} run "
                f"{undo.run}; nothing was changed; restore messages from an archive or a backup"
            )
        elif record.removed_messages and not isinstance(record, Undone | ReturnedRemoved):
            files_of_run = "removed"
            conflict = RefusedError(
                f"{by_run} removed messages of the same segments after run {undo.run}; undo that one first"
            )
        else:
            continue
        if segments & _segments(read_record(undo.opened, record.run, files_of_run)):
            return conflict
    return None


def merged_since(undo: RunToUndo) -> RefusedError | None:
    """The error if segments were merged since; None: they were not."""
    live, removed = undo.snapshot.files, undo.removed
    moved = segment_of_rows(live, removed) != removed["segment"].to_numpy()
    if not bool((moved | divided_mask(live, removed)).any()):
        return None
    return RefusedError(
        f"{undo.opened.name}: the segments of run {undo.run} have been compacted since, and {_WHOLE_FILES} that run; "
        "nothing was changed; restore messages from an archive or a backup"
    )


def foreign_change(undo: RunToUndo) -> RefusedError | None:
    """The error if another program rewrote copies, or restored removed files; None: neither."""
    return RefusedError(describe_change(undo)) if undo.rewritten or undo.restored else None


def present_again(undo: RunToUndo) -> RefusedError:
    """The error if the table has one of the messages to write anew."""
    return RefusedError(
        f"{undo.opened.name}: messages that run {undo.run} removed are in the table again, as after a restore "
        "from an archive, and would be duplicated; nothing was changed; restore the others from the archive as well"
    )


def files_lost(undo: RunToUndo, lost: int, of: int) -> VerificationError:
    """The error if files with messages to write anew are gone."""
    erasures = Erasures(undo.opened.root, undo.opened.name).all()
    erasure = next((each.id for each in erasures if undo.run in each.lost_undos), None)
    cause = (
        "VACUUM and reclaim delete them after the grace period"
        if erasure is None
        else f"erasure {erasure} deleted them"
    )
    return VerificationError(
        f"{undo.opened.name}: run {undo.run} cannot be undone: {lost} of {counted(of, 'file')} with removed "
        f"messages no longer exist ({cause}); nothing was changed; {_remedies(undo)}"
    )


def describe_change(undo: RunToUndo) -> str:
    """The sentence about a table that other programs changed: the cause, the state of the messages, the remedies."""
    name, run, messages = undo.opened.name, undo.run, undo.messages()
    if messages is None:
        state = _unknown_state(undo)
    else:
        total = _total(messages)
        missing = {part: seqs[~undo.already_present(part, seqs)] for part, seqs in messages.items()}
        if not _total(missing):
            subject, verb = (
                ("the message", "is") if total == 1 else (f"all {total:,} messages", "are")
            )
            return (
                f"{name}: there is nothing to undo: {subject} that run {run} removed {verb} in the "
                f"table{_brought_by(undo)}; the table is sound, nothing was changed"
            )
        state = _state(total, missing)
    return (
        f"{name}: run {run} cannot be undone: {_cause(undo)}; the table is sound, nothing was changed; "
        f"{state}; {_files(undo)}; {_remedies(undo)}"
    )


def _foreign_commit(undo: RunToUndo) -> tuple[int, str] | None:
    """The commit of another program that removed copies or restored removed files: version and operation."""
    named = [
        data_path(path).rpartition("/")[2].encode() for path in (*undo.rewritten, *undo.restored)
    ]
    committed = undo.outcome.version_after
    after = -1 if committed is None else committed
    return undo.opened.table_format.foreign_act(undo.layout, after, named)


def _brought_by(undo: RunToUndo) -> str:
    act = _foreign_commit(undo)
    return "" if act is None else f" again ({act[1]}, version {act[0]})"


def _cause(undo: RunToUndo) -> str:
    if undo.rewritten or undo.restored:
        act = _foreign_commit(undo)
        who = "another program" if act is None else f"{act[1]} (version {act[0]})"
        if undo.rewritten:
            number, of = len(undo.rewritten), undo.added.num_rows
            return f"{who} has rewritten {number} of {counted(of, 'file')} of kept messages, which would be duplicated"
        return f"{who} has restored {len(undo.restored)} of the removed files"
    if undo.lost:
        return (
            f"{len(undo.lost)} of {counted(undo.removed.num_rows, 'removed file')} no longer exist, such as "
            f"{undo.lost[0]} (VACUUM and reclaim delete them after the grace period)"
        )
    return "files of another writer hold messages that it removed, which would be duplicated"


def _unknown_state(undo: RunToUndo) -> str:
    removed = counted(undo.outcome.removed_messages, "removed message")
    if undo.overlaps(undo.without_copies(undo.live)):
        return f"it is unknown which of {removed} are in the table"
    return f"none of {removed} is in the table"


def _state(total: int, missing: Mapping[int, Array]) -> str:
    gone = _total(missing)
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


def _files(undo: RunToUndo) -> str:
    count = undo.removed.num_rows
    there = count - len(undo.lost)
    if not there:
        return "none of the removed files exists"
    kept = next(place for place in undo.locations.values() if place is not None)
    return f"of {counted(count, 'removed file')}, {there:,} can still be read ({kept})"


def _remedies(undo: RunToUndo) -> str:
    remedies: list[str] = []
    if undo.opened.config.archive is not None or undo.outcome.archived is not None:
        remedies.append(
            f"{command('restore', undo.opened.name)} restores the missing messages from the archive"
        )
    act = _foreign_commit(undo) if undo.rewritten and not undo.lost else None
    if act is not None:
        remedies.append(
            f"RESTORE TABLE {delta_name(undo.layout.messages)} TO VERSION AS OF {act[0] - 1} makes the undo "
            "possible, but reverts every later commit, publishes included"
        )
    remedies.append("an earlier backup can be imported as another stream")
    return "; or ".join(remedies)


def _total(by_partition: Mapping[int, Array]) -> int:
    return sum(map(len, by_partition.values()))


def _segments(files_of_run: pa.Table) -> set[tuple[int, int]]:
    partitions, segments = (files_of_run[name].to_pylist() for name in ("partition", "segment"))
    return set(zip(partitions, segments, strict=True))
