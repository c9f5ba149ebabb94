"""The command `history export`: runs, and the messages or rows that each removed, as CSV, JSON, Parquet or a page."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from retention.cli.output import chosen_with_tables, say
from retention.cli.settings import Settings
from retention.core.units import format_instant
from retention.errors import UsageError

if TYPE_CHECKING:
    from retention.api.warehouse import Warehouse
    from retention.storage.signing import Signer
    from retention.stores.holds import Hold

_OF_BOTH = ("json", "html")
"""The formats that have runs of streams and of tables together."""


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export, as given."""

    since: str | None = None
    until: str | None = None
    output: str | None = None


def export_history(
    settings: Settings, names: list[str], tags: list[str] | None, bounds: ExportOptions
) -> None:
    """Write the runs of streams and tables that began in a period, and the messages or rows that each removed.

    Raises:
        UsageError: the format is not one of an export, or has one shape of rows, and both streams and tables are
            chosen; or another file would be overwritten.
        DamagedError: a record or a file of evidence is damaged; then no file is written.
    """
    from retention.storage.outputs import check_output
    from retention.views.history_export import FILES, json_pieces

    if settings.format not in FILES:
        raise UsageError(
            "history export writes a table of runs: say --format csv, json, parquet or html"
        )
    if bounds.output is None and settings.format == "parquet" and sys.stdout.isatty():
        raise UsageError("Parquet cannot be shown on a terminal: name a file with -o FILE")
    if bounds.output is not None:
        check_output(bounds.output, FILES[settings.format])
    warehouse = settings.open()
    signer = _signer(warehouse, bounds.output)
    since, until = (
        None if at is None else warehouse.instant(at) for at in (bounds.since, bounds.until)
    )
    streams, tables = _chosen(settings, warehouse, names, tags)

    def runs() -> Iterator[Any]:
        return chain(
            warehouse.history_tables(streams, since, until),
            warehouse.table_history_tables(tables, since, until),
        )

    names = [*streams, *tables]
    holds = [
        hold for hold in warehouse.holds(names, ended=True) if hold.was_in_effect(since, until)
    ]
    period = {"from": _written(since), "to": _written(until)}
    with _sink(settings, bounds) as sink:
        if settings.format == "html":
            key = None if signer is None else signer.fingerprint
            _write_text(sink, _page(warehouse, runs, period, names, holds, key))
        elif settings.format == "json":
            _write_text(sink, json_pieces(runs(), period, (hold.as_json() for hold in holds)))
        else:
            _write_rows(settings, sink, runs(), of_tables=bool(tables))
    if signer is not None and bounds.output is not None:
        signer.sign(bounds.output)
        say(f"{bounds.output}.sig: signed by the key {signer.fingerprint}")


def _signer(warehouse: Warehouse, output: str | None) -> Signer | None:
    """The signer of the exported file; None: no key is configured, or no file is written."""
    from retention.storage.outputs import is_stream

    location = warehouse.config.signing_key
    if location is None or output is None or is_stream(output):
        return None
    from retention.storage.signing import signer_of

    signer = signer_of(location)
    signer.check(output)
    return signer


def _chosen(
    settings: Settings, warehouse: Warehouse, names: list[str], tags: list[str] | None
) -> tuple[list[str], list[str]]:
    """The streams and tables of an export; of both kinds only in a format that has both."""
    streams, tables = chosen_with_tables(warehouse, names, tags, warehouse.streams())
    if not streams or not tables or settings.format in _OF_BOTH:
        return streams, tables
    listed = ", ".join(tables)
    if names or tags:
        raise UsageError(
            f"streams and tables have different columns, and {settings.format} has one kind of rows: name either "
            f"streams, or tables ({listed}), or say --format json or html"
        )
    say(f"without the runs on tables ({listed}): name them, or say --format json or html")
    return streams, []


def _write_rows(settings: Settings, sink: Any, runs: Iterator[Any], *, of_tables: bool) -> None:
    """Write runs as rows, CSV or Parquet."""
    from retention.schemas.history_export import HISTORY_EXPORT, TABLE_HISTORY_EXPORT
    from retention.views.history_export import csv_lines, write_parquet

    shape = TABLE_HISTORY_EXPORT if of_tables else HISTORY_EXPORT
    if settings.format == "parquet":
        write_parquet(sink, runs, shape)
    else:
        _write_text(sink, (f"{line}\n" for line in csv_lines(runs, shape)))


def _page(
    warehouse: Warehouse,
    runs: Callable[[], Iterator[Any]],
    period: dict[str, str | None],
    names: Sequence[str],
    holds: Sequence[Hold],
    key: str | None,
) -> Iterator[str]:
    """The page of runs, with the digest of their JSON, and the heads of their histories."""
    from retention.views.evidence_page import EvidenceBasis, evidence_page
    from retention.views.history_export import json_pieces

    digest = hashlib.sha256()
    for piece in json_pieces(runs(), period, (hold.as_json() for hold in holds)):
        digest.update(piece.encode())
    basis = EvidenceBasis(
        warehouse.basis_of_run, warehouse.chain_of, digest.hexdigest(), holds, key
    )
    return evidence_page(runs(), period, names, basis)


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


def _write_text(sink: Any, pieces: Iterable[str]) -> None:
    for piece in pieces:
        sink.write(piece.encode())
