"""Refusals of formats, archives and ledgers because of the location of the warehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from retention.config.document import Mistake, Place
from retention.config.keeping import KeepingSettings, StorageSettings
from retention.config.locations import absolute_location

_Listed = Mapping[Place, KeepingSettings]


def storage_mistakes(
    warehouse: str, defaults: StorageSettings, streams: _Listed, beside: str
) -> Iterator[Mistake]:
    """The mistakes in how streams and topics are kept.

    Args:
        warehouse: its location as written.
        defaults: of the file.
        streams: streams and topics with these defaults.
        beside: the file.
    """
    yield from _format_mistakes(warehouse, defaults, streams)
    yield from _vector_mistakes(defaults, streams)
    yield from _archive_mistakes(warehouse, defaults, streams, beside)


def ledger_mistakes(ledger: str | None, warehouse: str, beside: str) -> Iterator[Mistake]:
    """The mistake of a ledger that a restore of the warehouse would replace as well.

    Args:
        ledger: its location as written; None: there is none.
        warehouse: likewise.
        beside: the file.
    """
    if ledger is None:
        return
    place, stored = (f"{absolute_location(each, beside)}/" for each in (ledger, warehouse))
    if place.startswith(stored) or stored.startswith(place):
        yield Mistake(
            ("ledger",),
            "is in the warehouse or contains it, so that one restore from a backup would replace both; write a "
            "location on other storage",
        )


def _format_mistakes(
    warehouse: str, defaults: KeepingSettings, streams: _Listed
) -> Iterator[Mistake]:
    if not warehouse.startswith("s3://"):
        return
    text = "parquet is refused on object stores, where nothing can be renamed; write format: delta"
    if defaults.format == "parquet":
        yield Mistake(("defaults", "format"), text)
    for place, stream in streams.items():
        if stream.format == "parquet" != defaults.format:
            yield Mistake((*place, "format"), text)


def _vector_mistakes(defaults: StorageSettings, streams: _Listed) -> Iterator[Mistake]:
    text = "format: parquet has no deletion vectors; set vectors: false, or write a new stream as format: delta"
    if defaults.vectors and defaults.format == "parquet":
        yield Mistake(("defaults", "vectors"), text)
        return
    for place, stream in streams.items():
        if isinstance(stream, StorageSettings) and stream.vectors and stream.format == "parquet":
            yield Mistake((*place, "vectors"), text)


def _archive_mistakes(
    warehouse: str, defaults: KeepingSettings, streams: _Listed, beside: str
) -> Iterator[Mistake]:
    if defaults.archive is None and all(stream.archive is None for stream in streams.values()):
        return
    among = absolute_location(warehouse, beside) + "/streams"
    text = "is among the streams of the warehouse, and would look like one of them; write another location"

    def is_among(settings: KeepingSettings) -> bool:
        place = settings.archive
        return place is not None and f"{absolute_location(place, beside)}/".startswith(f"{among}/")

    if is_among(defaults):
        yield Mistake(("defaults", "archive"), text)
    for place, stream in streams.items():
        if is_among(stream) and stream.archive != defaults.archive:
            yield Mistake((*place, "archive"), text)
