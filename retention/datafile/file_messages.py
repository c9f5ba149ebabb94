"""The messages of a data file in pieces, for readers that hold a list of files from an earlier moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from retention.core.inventory import DataFile
from retention.core.message_filter import MessageFilter
from retention.datafile.row_groups import rows_in_order
from retention.errors import DamagedError, StalePlanError
from retention.schemas.messages import FILE_COLUMNS, MESSAGES, PARTITION_COLUMNS
from retention.storage import files


def messages_in(
    file: DataFile, columns: Sequence[str], wanted: MessageFilter
) -> Iterator[pa.Table]:
    """The visible messages of a file that a filter selects, ascending by `seq`.

    Args:
        file: the file, as it was listed.
        columns: names of `MESSAGES`, in any order.
        wanted: the filter from which the file was listed.

    Raises:
        StalePlanError: the file was deleted since it was listed.
        DamagedError: the file cannot be read to its end.
    """
    needed = {"seq", *columns, *wanted.columns}
    stored = [name for name in FILE_COLUMNS.names if name in needed]
    try:
        for rows in rows_in_order(file, stored):
            yield with_position(file, wanted.rows(rows)).select(list(columns))
    except DamagedError as error:
        if _is_there(file):
            raise
        raise StalePlanError(
            f"{file.stream}: {file.path} was deleted from the storage after this read had listed it, so its messages "
            "cannot be read; read again, and if the same file is named then, run `retention doctor`"
        ) from error


def with_position(file: DataFile, rows: pa.Table) -> pa.Table:
    """Rows of a file with the columns of its directory, `PARTITION_COLUMNS`, after their own."""
    for name in PARTITION_COLUMNS:
        value = pa.scalar(getattr(file, name), MESSAGES.field(name).type)
        rows = rows.append_column(MESSAGES.field(name), pa.repeat(value, rows.num_rows))
    return rows


def _is_there(file: DataFile) -> bool:
    for location in filter(None, (file.location, file.later)):
        try:
            files.stat(location)
        except FileNotFoundError:
            continue
        return True
    return False
