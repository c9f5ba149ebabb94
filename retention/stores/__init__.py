"""The table formats: a stream's table in the format that its configuration names."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from retention.config.stream import StreamConfig
from retention.core.subjects import TABLES
from retention.errors import UsageError
from retention.ports import UnopenedTable
from retention.stores.layout import Layout, StoreSettings

if TYPE_CHECKING:
    from retention.stores.table_format import TableFormat

__all__ = ["StoreSettings", "format_of", "store_settings", "stream_table"]


def store_settings(config: StreamConfig) -> StoreSettings:
    """The store settings in a stream's configuration."""
    return StoreSettings(
        format=config.format,
        grace_ns=config.grace_ns,
        exclusive=config.exclusive,
        quiet=config.quiet,
        vectors=config.vectors,
        spark_writes=config.spark_writes,
        partitions=config.partitions,
        first_seq=config.lowest_seq,
    )


def format_of(stream: str, name: str) -> TableFormat:
    """The format of a stream's table, by its name in the configuration.

    Raises:
        UsageError: there is no format of that name.
    """
    if name == "delta":
        # Load deltalake only if a Delta table is used.
        from retention.stores.delta.format import DeltaFormat

        return DeltaFormat()
    if name == "parquet":
        from retention.stores.parquet.format import ParquetFormat

        return ParquetFormat()
    raise UsageError(f"stream {stream}: format {name!r} does not exist; use delta or parquet")


def stream_table(
    root: str, stream: str, settings: StoreSettings, clock: Callable[[], int]
) -> UnopenedTable:
    """The table of one stream; no file is touched until one of its methods is called.

    Args:
        root: `<warehouse>/streams/<percent-encoded name>`, a local path or an `s3://` location.
        stream: the stream's name.
        settings: the stream's storage settings, from its configuration.
        clock: the wall clock, nanoseconds since the epoch; stamps tombstones and log entries.

    Raises:
        UsageError: the format does not exist, or is not safe at that location.
    """
    if stream == TABLES:
        raise UsageError(
            f"stream {stream}: the name is taken by a directory of the engine's own; give the stream another name"
        )
    layout = Layout(root.rstrip("/"), stream, settings.partitions, settings.first_seq)
    return format_of(stream, settings.format).table(layout, settings, clock)
