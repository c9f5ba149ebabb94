"""Row tombstones of earlier builds, messages released in live files without a rewrite: such streams are refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.wording import counted
from retention.errors import DamagedError, RefusedError
from retention.storage import files
from retention.storage.errors import first_line
from retention.stores.layout import Layout

LAST_BUILD = "64accb89"
"""The last commit of this project that reads and clears row tombstones."""
_DIGITS = 20


def has_records(layout: Layout) -> bool:
    """Whether an earlier build wrote any record of row tombstones, even one that no longer counts."""
    return bool(files.names(layout.engine_path("released")))


def refuse_row_tombstones(layout: Layout, number: int, live: pa.Table) -> None:
    """Refuse a table with row tombstones in live files, because its removed messages would be read again.

    Args:
        layout: the stream's layout.
        number: the number of the current record in the table's log; 0: there is none.
        live: the live files, with a column `path`.

    Raises:
        RefusedError: the record names a live file.
        DamagedError: the record is missing or cannot be read.
    """
    if not number:
        return
    paths = tombstoned_paths(layout, number)
    hidden = pc.sum(pc.is_in(live["path"], value_set=paths), min_count=0).as_py()
    if hidden:
        raise RefusedError(
            f"stream {layout.stream}: an earlier build released messages in {counted(hidden, 'file')} of it without "
            f"rewriting them, and this one would show those messages again; nothing was changed; set compact: "
            f"{{dead_share: 0}} for the stream, run `retention compact` of commit {LAST_BUILD} of this project, which "
            "rewrites these files, then come back"
        )


def tombstoned_paths(layout: Layout, number: int) -> pa.Array:
    """The paths in a record of row tombstones, live or not; strings, none for the number 0.

    Raises:
        DamagedError: the record is missing or cannot be read.
    """
    import pyarrow.parquet as pq

    if not number:
        return pa.array([], pa.string())
    place = layout.engine_path("released", f"{number:0{_DIGITS}d}.parquet")
    try:
        with files.open_input(place) as source:
            return pq.read_table(source, columns=["path"])["path"].combine_chunks()
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise DamagedError(
            f"{place}: the record of what is released in stream {layout.stream} cannot be read ({first_line(error)}); "
            "nothing was changed; restore it from a copy"
        ) from error
