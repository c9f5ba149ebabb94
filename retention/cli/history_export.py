"""The command `history export`: the runs of streams, and the messages that each removed, as CSV, JSON or Parquet."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from retention.cli.output import chosen_streams
from retention.cli.settings import Settings
from retention.core.units import format_instant
from retention.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export, as given."""

    since: str | None = None
    until: str | None = None
    output: str | None = None


def export_history(
    settings: Settings, names: list[str], tags: list[str] | None, bounds: ExportOptions
) -> None:
    """Write the runs of streams that began in a period, and the messages that each removed.

    Raises:
        UsageError: the format is not one of an export, or another file would be overwritten.
        DamagedError: a record or a file of evidence is damaged; then no file is written.
    """
    from retention.storage.outputs import check_output
    from retention.views.history_export import FILES

    if settings.format not in FILES:
        raise UsageError("history export writes a table of runs: say --format csv, json or parquet")
    if bounds.output is None and settings.format == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet cannot be shown on a terminal: name a file with -o FILE")
    if bounds.output is not None:
        check_output(bounds.output, FILES[settings.format])
    warehouse = settings.open()
    since, until = (
        None if at is None else warehouse.instant(at) for at in (bounds.since, bounds.until)
    )
    tables = warehouse.history_tables(
        chosen_streams(warehouse, names, tags, warehouse.streams()), since, until
    )
    with _sink(settings, bounds) as sink:
        _write(settings.format, sink, tables, {"from": _written(since), "to": _written(until)})


def _written(instant: int | None) -> str | None:
    return None if instant is None else format_instant(instant)


@contextmanager
def _sink(settings: Settings, bounds: ExportOptions) -> Iterator[Any]:
    """The named file, written atomically; otherwise standard output."""
    from retention.storage.outputs import open_output
    from retention.views.history_export import FILES

    if bounds.output is None:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with open_output(bounds.output, FILES[settings.format]) as sink:
        yield sink


def _write(form: str, sink: Any, tables: Iterable[pa.Table], period: dict[str, str | None]) -> None:
    from retention.views.history_export import csv_lines, json_pieces, write_parquet

    if form == "parquet":
        write_parquet(sink, tables)
        return
    pieces = (
        (f"{line}\n" for line in csv_lines(tables))
        if form == "csv"
        else json_pieces(tables, period)
    )
    for piece in pieces:
        sink.write(piece.encode())
