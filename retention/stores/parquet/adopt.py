"""Parquet files of other writers in `messages/`: adopted, or found unfit and moved aside on request."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.inventory import DataFile
from retention.core.read_count import ReadCount
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.datafile.parquet import further_columns
from retention.errors import DamagedError, ForeignRowsError
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage import files
from retention.stores.checks import duplicates, inventory, number_bounds
from retention.stores.layout import Layout, check_lengths, identities
from retention.stores.parquet.log import (
    CommitEntry,
    CommitState,
    ParquetLog,
    before_first_entry,
    with_removed,
)
from retention.stores.parquet.settle_files import Places
from retention.stores.table_format import Unfit

ASIDE = "foreign"
"""The directory below `_retention` for files that were moved aside."""
_PLACE = re.compile(r"partition=0/segment=(0|[1-9]\d{0,18})/[^/]+\.parquet")


def take_in(
    layout: Layout, log: ParquetLog, state: CommitState, paths: Sequence[str]
) -> tuple[Callable[[int], CommitEntry], ReadCount]:
    """Describe files of other writers and check them against the rules.

    Args:
        layout: the stream's layout.
        log: its log.
        state: the state without them.
        paths: the files, relative to `messages/`.

    Returns:
        A function from the wall clock in milliseconds to the log entry that adopts them; and the cost of reading them.

    Raises:
        ForeignRowsError: a file breaks the storage rules, or was removed from the stream earlier.
        DamagedError: a file cannot be read.
    """
    try:
        described, read = _described(layout, layout, log.names_ever(), paths)
        read += _refuse_together(layout, layout, state.files, described)
    except (ForeignRowsError, DamagedError) as error:
        unfit = unfit_files(layout)
        if not unfit:
            raise
        what = str(error).partition("; ")[0]
        raise type(error)(f"{what}; {_remedy(layout, unfit)}") from error
    counters = inventory.effective(state.counters, pa.concat_tables([state.files, described]))

    def entry(time_ms: int) -> CommitEntry:
        return CommitEntry(
            version=state.version + 1,
            time_ms=time_ms,
            add=described.to_pylist(),
            next_seq={**counters.next_seq},
            open_base={**counters.open_base},
            metadata=with_removed({"taken_in": len(paths)}, counters.removed),
        )

    return entry, read


def refuse_unfit(layout: Layout) -> None:
    """Refuse to begin a table over existing files that it could not adopt.

    Raises:
        ForeignRowsError: names the first such file and its fault.
    """
    unfit = unfit_files(layout)
    if unfit:
        what = f"{unfit[0].path} {unfit[0].reason}"
        raise ForeignRowsError(f"stream {layout.stream}: {what}; {_remedy(layout, unfit)}")


def _remedy(layout: Layout, unfit: Sequence[Unfit]) -> str:
    more = f" and {counted(len(unfit) - 1, 'more file')}" if len(unfit) > 1 else ""
    repair = command("repair foreign", layout.stream, options="--yes")
    return (
        f"{layout.live(unfit[0].path)}{more} cannot be taken in; nothing was changed; take away what another writer "
        f"put there, or run {repair}, which moves it aside"
    )


def unfit_files(layout: Layout) -> list[Unfit]:
    """The files that a stream cannot adopt; it can adopt all others together. Of two conflicting files, one is kept.

    Nothing is changed, and no statistics are cached.

    Raises:
        DamagedError: the log cannot be read.
    """
    log = ParquetLog(layout)
    state = log.read() if log.exists() else before_first_entry()
    paths = Places(layout, log).foreign(state)
    if not paths:
        return []
    with TemporaryDirectory() as folder:
        memory = Layout(folder, layout.stream, layout.partitions)
        described, unfit = _described_each(layout, memory, log.names_ever(), paths)
        unfit += _unfit_together(layout, memory, state.files, described)
    return sorted(unfit, key=lambda file: file.path)


def _described_each(
    layout: Layout, memory: Layout, removed: set[str], paths: Sequence[str]
) -> tuple[pa.Table, list[Unfit]]:
    """Statistics of the files that individually obey the rules, and the other files."""
    described, unfit = [FILE_STATS.empty_table()], []
    for path in paths:
        try:
            described.append(_described(layout, memory, removed, [path])[0])
        except FileNotFoundError:
            continue
        except (ForeignRowsError, DamagedError) as error:
            unfit.append(Unfit(path, _reason(layout, path, error)))
    return pa.concat_tables(described), unfit


def _unfit_together(
    layout: Layout, memory: Layout, live: pa.Table, described: pa.Table
) -> list[Unfit]:
    """The files that break the rules in combination with live files or with earlier ones."""
    unfit, fit, pending = [], live, [described]
    while pending:
        some = pending.pop()
        try:
            _refuse_together(layout, memory, fit, some)
        except (ForeignRowsError, DamagedError) as error:
            if not some.num_rows:
                # The live files alone break the rules.
                raise
            half = some.num_rows // 2
            if half:
                pending += [some.slice(half), some.slice(0, half)]
            else:
                path = some["path"][0].as_py()
                unfit.append(Unfit(path, _reason(layout, path, error)))
        else:
            fit = pa.concat_tables([fit, some])
    return unfit


def move_aside(layout: Layout, run: str, paths: Sequence[str]) -> None:
    """Move files that no log entry names out of `messages/` to a run's directory; live files are not moved."""
    log = ParquetLog(layout)
    live = (log.read() if log.exists() else before_first_entry()).files["path"]
    named = pa.array(paths, pa.string())
    idle = named.filter(pc.invert(pc.is_in(named, value_set=live.combine_chunks()))).to_pylist()
    files.move((layout.live(path), files.join(aside(layout, run), path)) for path in idle)


def aside(layout: Layout, run: str) -> str:
    """The directory to which a run moves files."""
    return layout.engine_path(ASIDE, run)


def _reason(layout: Layout, path: str, error: Exception) -> str:
    """The fault of a file, from an error's sentence without the file's name and the remedy."""
    reason = str(error).partition("; ")[0].removeprefix(f"stream {layout.stream}: ")
    for name in (layout.live(path), path):
        reason = reason.removeprefix(name).lstrip(": ")
    return reason


def _described(
    layout: Layout, memory: Layout, removed: set[str], paths: Sequence[str]
) -> tuple[pa.Table, ReadCount]:
    """Statistics of files, each checked individually against the rules; other findings are stored in `memory`."""
    back = sorted(removed.intersection(paths))
    if back:
        raise ForeignRowsError(
            f"stream {layout.stream}: {layout.live(back[0])} was removed from this stream and is back; "
            "nothing was changed; take the file away, or use undo to bring rows back"
        )
    logged = pa.Table.from_pylist([_logged(layout, path) for path in paths], schema=LOGGED_FILES)
    data_files = [memory.data_file(row, layout.live(row[0])) for row in identities(logged)]
    described, read = inventory.describe(data_files, logged)
    number_bounds.refuse_impossible(layout, described)
    _refuse_further_columns(layout, data_files)
    return described, read


def _refuse_further_columns(layout: Layout, data_files: Sequence[DataFile]) -> None:
    for file in data_files:
        further = further_columns(file)
        if further:
            raise ForeignRowsError(
                f"stream {layout.stream}: {file.location} has columns that no message has, which a rewrite would lose "
                f"({', '.join(further)}); nothing was changed; write it without those columns"
            )


def _refuse_together(
    layout: Layout, memory: Layout, live: pa.Table, described: pa.Table
) -> ReadCount:
    """Check files of other writers (`FILE_STATS`) against the rules, together with the live files."""
    places = Places(layout, ParquetLog(layout))

    def locate(table: pa.Table) -> list[DataFile]:
        there = [layout.data_file(row, places.find(row[0])) for row in identities(table)]
        check_lengths(layout, table, there)
        return there

    table = inventory.in_order(pa.concat_tables([live, described]))
    return duplicates.refuse_duplicates(
        memory, inventory.refuse_overlaps(layout.stream, table), locate
    )


def _logged(layout: Layout, path: str) -> dict[str, object]:
    place = _PLACE.fullmatch(path)
    if place is None:
        raise ForeignRowsError(
            f"stream {layout.stream}: {layout.live(path)} does not lie in partition=0/segment="
            "<number>/; nothing was changed; move the file to its segment, or take it away"
        )
    length, modified_ms = files.stat(layout.live(path))
    return {
        "path": path,
        "partition": 0,
        "segment": int(place[1]),
        "file_bytes": length,
        "modified_ms": modified_ms,
    }
