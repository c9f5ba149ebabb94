"""Taking in Parquet files that another writer put into `messages/`, if they keep the storage rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pyarrow as pa

from retention import files
from retention.errors import ForeignRowsError
from retention.segments import DataFile, ReadCount
from retention.stores import doubles, index, number_bounds
from retention.stores.layout import Layout, check_lengths, identities
from retention.stores.parquet_log import Entry, ParquetLog, State
from schemas.files import LOGGED_FILES

_PLACE = re.compile(r"partition=0/segment=(0|[1-9]\d{0,18})/[^/]+\.parquet")


def take_in(
    layout: Layout, log: ParquetLog, state: State, paths: Sequence[str]
) -> tuple[Callable[[int], Entry], ReadCount]:
    """Describe files of other writers and hold them against the rules.

    Args:
        layout: the stream's places.
        log: its log.
        state: the state that does not have them.
        paths: the files, relative to `messages/`.

    Returns:
        The log entry that takes them in, given the wall clock in milliseconds; and what looking at them cost.

    Raises:
        ForeignRowsError: a file breaks the storage rules, or was removed from the stream before.
        DamagedError: a file cannot be read.
    """
    back = sorted(set(paths) & log.names_ever())
    if back:
        raise ForeignRowsError(
            f"stream {layout.stream}: {layout.live(back[0])} was removed from this stream and is back; "
            "nothing was changed; take the file away, or use undo to bring rows back"
        )
    logged = pa.Table.from_pylist([_logged(layout, path) for path in paths], schema=LOGGED_FILES)
    found = [layout.data_file(row, layout.live(row[0])) for row in identities(logged)]
    described, read = index.describe(found, logged)
    number_bounds.refuse_impossible(layout, described)

    def locate(table: pa.Table) -> list[DataFile]:
        there = [layout.data_file(row, layout.live(row[0])) for row in identities(table)]
        check_lengths(layout, table, there)
        return there

    table = index.in_order(pa.concat_tables([state.files, described]))
    read += doubles.refuse_doubles(layout, index.refuse_overlaps(layout.stream, table), locate)
    counters = index.effective(state.counters, table)

    def entry(time_ms: int) -> Entry:
        return Entry(
            version=state.version + 1,
            time_ms=time_ms,
            add=described.to_pylist(),
            next_seq={**counters.next_seq},
            open_base={**counters.open_base},
            metadata={"taken_in": len(paths)},
        )

    return entry, read


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
