"""Removing missing, damaged or foreign files from a table, and giving up their contents."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.change import Change
from retention.apply.recorded_run import recorded_run
from retention.apply.recover import settle_interrupted
from retention.context.context import OpenedStream
from retention.context.holds import refuse_held
from retention.context.maintenance import maintaining
from retention.core.display import Displayed
from retention.core.json_object import JsonObject
from retention.core.table_updates import set_next_seqs
from retention.datafile.parquet import read_columns, stats_table
from retention.errors import (
    BusyError,
    ConflictError,
    DamagedError,
    ForeignRowsError,
    RefusedError,
    RetentionError,
    StalePlanError,
    UsageError,
)
from retention.history.kinds import FilesGivenUp, GivenUpFile
from retention.history.runs import history_of
from retention.plan.run_ranges import ranges_of_files
from retention.ports import Snapshot
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.schemas.messages import MESSAGES, PARTITION_COLUMNS
from retention.stores.layout import is_ours

KIND = "lost"
"""The name of this repair in commands and in the run history."""
ATTEMPTS = 20
_ALL = tuple(name for name in MESSAGES.names if name not in PARTITION_COLUMNS)


@dataclass(frozen=True)
class LostFile:
    """A file to remove from the table, and the reason."""

    path: str
    """Relative to `messages/`."""
    reason: str
    messages: int | None
    """None: unknown."""
    bytes: int | None
    """By the broker's accounting; None: unknown."""
    first_seq: int
    last_seq: int


@dataclass(frozen=True, repr=False)
class FileRepair(Displayed):
    """Files to remove from a table, and the run that removed them."""

    stream: str
    files: tuple[LostFile, ...] = ()
    """Empty: there is nothing to repair."""
    run: str | None = None
    """None: nothing was changed."""

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        return bool(self.files)

    @property
    def messages(self) -> int:
        """The known number of messages in the files."""
        return sum(file.messages or 0 for file in self.files)

    @property
    def bytes(self) -> int:
        """The bytes of these messages."""
        return sum(file.bytes or 0 for file in self.files)

    def as_json(self) -> JsonObject:
        """The repair as JSON values."""
        return {
            "stream": self.stream,
            "repair": KIND,
            "run": self.run,
            "removed_messages": self.messages,
            "removed_bytes": self.bytes,
            "files": [asdict(file) for file in self.files],
        }


@dataclass(frozen=True)
class _Diagnosis:
    snapshot: Snapshot
    leaving: pa.Table
    """Shape `FILE_STATS`; 0: unknown."""
    repair: FileRepair


def find_lost_files(opened: OpenedStream, named: Sequence[str] = ()) -> FileRepair:
    """Find the files that the repair would remove; nothing is changed.

    Args:
        opened: the stream.
        named: files, by their path in the table or their location; each is read completely, and a file of another
            writer is removed even if it is readable. Empty: all missing or unreadable files.

    Raises:
        UsageError: the table has no such file.
        RefusedError: every file is missing, or the sequences of one of them are unknown.
        DamagedError: the table's log cannot be read.
    """
    return _diagnose(opened, named).repair if opened.table.exists() else FileRepair(opened.name)


def repair_lost_files(opened: OpenedStream, named: Sequence[str] = ()) -> FileRepair:
    """Remove the files from the table in one commit; their sequences are not assigned again.

    If a file is found later, put it back at its path and undo the run.

    Args:
        opened: the stream.
        named: as `find_lost_files`.

    Raises:
        UsageError, RefusedError, DamagedError: as `find_lost_files`.
        BusyError: another run is in progress, or other writers kept committing first.
    """
    if not opened.table.exists():
        return FileRepair(opened.name)
    history = history_of(opened.warehouse, opened.name)
    with maintaining(opened):
        settle_interrupted(opened, history)
        for _ in range(ATTEMPTS):
            diagnosis = _diagnose(opened, named)
            if not diagnosis.repair.files:
                return diagnosis.repair
            with suppress(ConflictError, StalePlanError):
                return _take_out(opened, diagnosis)
    raise BusyError(
        f"{opened.name}: {ATTEMPTS} times another writer came first; nothing was changed; try again later"
    )


def _diagnose(opened: OpenedStream, named: Sequence[str]) -> _Diagnosis:
    snapshot = opened.store.snapshot()
    looked_at = _named(opened, snapshot.files, named) if named else snapshot.files
    reasons = {
        path: reason
        for at, path in enumerate(looked_at["path"].to_pylist())
        if (reason := _reason(opened, snapshot.files, looked_at.slice(at, 1), whole=bool(named)))
        is not None
    }
    if not named and len(reasons) == snapshot.files.num_rows > 1:
        raise RefusedError(
            f"{opened.name}: none of its {len(reasons):,} files can be read, as where a disk is not mounted; nothing "
            "was changed; restore the files, or name each that is to be given up"
        )
    leaving = _statistics(opened, snapshot, list(reasons))
    lost = tuple(_of(row, reasons[row["path"]]) for row in leaving.to_pylist())
    return _Diagnosis(snapshot, leaving, FileRepair(opened.name, lost))


def _named(opened: OpenedStream, live: pa.Table, named: Sequence[str]) -> pa.Table:
    """The rows of named files; a name is a path in the table, or a location that ends with it."""
    paths = live["path"].to_pylist()
    path_of = {
        name: next((path for path in paths if name == path or name.endswith(f"/{path}")), None)
        for name in named
    }
    missing = [name for name, path in path_of.items() if path is None]
    if missing:
        raise UsageError(
            f"{opened.name}: the table has no file {missing[0]}; nothing was changed; name a file as the sentence that "
            "refused it does"
        )
    return live.filter(pc.is_in(live["path"], value_set=pa.array(path_of.values(), pa.string())))


def _reason(opened: OpenedStream, live: pa.Table, row: pa.Table, *, whole: bool) -> str | None:
    """The fault of a file of the table; None: it is sound, as far as it was checked."""
    [path] = row["path"].to_pylist()
    try:
        [file] = opened.store.data_files(row.select(LOGGED_FILES.names))
        rows, _ = read_columns(file, _ALL if whole else ("seq",))
    except (DamagedError, ForeignRowsError) as error:
        return str(error).partition("; ")[0].partition(f"{path}: ")[2] or str(error)
    if not whole:
        return None
    if not is_ours(path):
        return "another writer put it there"
    return (
        "another file has its sequences, too"
        if _stands_twice(opened, live, row, rows["seq"])
        else None
    )


def _stands_twice(
    opened: OpenedStream, live: pa.Table, row: pa.Table, seqs: pa.ChunkedArray
) -> bool:
    """Whether a sequence of a file also occurs in another file of its segment."""
    [path], [partition], [segment] = (
        row[name].to_pylist() for name in ("path", "partition", "segment")
    )
    beside = (pc.field("partition") == partition) & (pc.field("segment") == segment)
    others = live.filter(beside & (pc.field("path") != path))
    return any(
        pc.any(
            pc.is_in(seqs, value_set=read_columns(file, ("seq",))[0]["seq"]), min_count=0
        ).as_py()
        for file in opened.store.data_files(others.select(LOGGED_FILES.names))
    )


def _statistics(opened: OpenedStream, snapshot: Snapshot, paths: Sequence[str]) -> pa.Table:
    """Statistics of possibly unreadable files: the known ones, otherwise those in the log."""
    leaving = snapshot.files.filter(pc.is_in(snapshot.files["path"], pa.array(paths, pa.string())))
    with suppress(RetentionError):
        known = opened.store.inventory(snapshot).files
        return known.filter(pc.is_in(known["path"], pa.array(paths, pa.string()))).select(
            FILE_STATS.names
        )
    rows = leaving.to_pylist()
    untold = [
        row["path"] for row in rows if row.get("max_seq") is None or row.get("min_seq") is None
    ]
    if untold:
        raise RefusedError(
            f"{opened.name}: nothing tells which sequences {untold[0]} held, and one of them would be given out again; "
            "nothing was changed; restore the file from a copy"
        )
    unknown = {field.name: 0 for field in FILE_STATS if not field.nullable} | {
        "in_time_order": False
    }
    names = set(FILE_STATS.names)
    return stats_table(
        [{**unknown, **{k: v for k, v in row.items() if k in names}} for row in rows]
    )


def _of(row: dict[str, Any], reason: str) -> LostFile:
    counted = row["messages"] > 0
    return LostFile(
        path=row["path"],
        reason=reason,
        messages=row["messages"] if counted else None,
        bytes=row["bytes"] if counted else None,
        first_seq=row["min_seq"],
        last_seq=row["max_seq"],
    )


def _take_out(opened: OpenedStream, diagnosis: _Diagnosis) -> FileRepair:
    snapshot, leaving, repair = diagnosis.snapshot, diagnosis.leaving, diagnosis.repair
    refuse_held(opened, snapshot.counters, "this repair")
    with recorded_run(opened, snapshot) as run:
        change = Change(
            remove=leaving,
            ranges=[ranges_of_files(leaving, {})],
            updates=set_next_seqs(_known_from_files(opened, snapshot)),
            metadata={"repair": KIND},
        )
        intent = FilesGivenUp(
            run=run.name,
            as_of_ns=opened.clock(),
            removed_messages=repair.messages,
            removed_bytes=repair.bytes,
            files=[GivenUpFile(**asdict(file)) for file in repair.files],
        )
        run.commit(intent, change)
    return replace(repair, run=run.name)


def _known_from_files(opened: OpenedStream, snapshot: Snapshot) -> dict[int, int]:
    """Partition → the next sequence, if files give a higher one than the log: these files may be the ones to remove."""
    logged = opened.store.logged_counters(snapshot).next_seq
    next_seqs = snapshot.counters.next_seq.items()
    return {partition: seq for partition, seq in next_seqs if seq > logged.get(partition, 0)}
