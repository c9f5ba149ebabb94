"""The table formats: opens the `Store` of a stream in the format that its configuration names."""

from __future__ import annotations

from collections.abc import Callable

from retention.config.stream import StreamConfig
from retention.core.subjects import TABLES
from retention.errors import UsageError
from retention.ports import Store
from retention.storage import files
from retention.stores.layout import Layout, StoreSettings

__all__ = ["StoreSettings", "open_store", "store_settings"]


def store_settings(config: StreamConfig) -> StoreSettings:
    """The store settings in a stream's configuration."""
    return StoreSettings(
        format=config.format,
        grace_ns=config.grace_ns,
        exclusive=config.exclusive,
        quiet=config.quiet,
        spark_writes=config.spark_writes,
        partitions=config.partitions,
        first_seq=config.lowest_seq,
    )


def open_store(root: str, stream: str, settings: StoreSettings, clock: Callable[[], int]) -> Store:
    """Open the store of one stream; no file is touched until one of its methods is called.

    Args:
        root: `<warehouse>/streams/<percent-encoded name>`, a local path or an `s3://` location.
        stream: the stream's name.
        settings: the stream's storage settings, from its configuration.
        clock: the wall clock, nanoseconds since the epoch; stamps tombstones and log entries.

    Raises:
        UsageError: the format does not exist, or is not safe at that location.
    """
    if files.is_remote(root) and "%" in root:
        raise UsageError(
            f"stream {stream}: {root} has a percent sign, which deltalake reads as an escape and so cannot open on an "
            "object store; give the stream a name of A-Z a-z 0-9 _ -"
        )
    if stream == TABLES:
        raise UsageError(
            f"stream {stream}: the name is taken by a directory of the engine's own; give the stream another name"
        )
    layout = Layout(root.rstrip("/"), stream, settings.partitions, settings.first_seq)
    if settings.format == "delta":
        # Load deltalake only if a Delta table is used.
        from retention.stores.delta.store import DeltaStore

        return DeltaStore(layout, settings, clock)
    if settings.format != "parquet":
        raise UsageError(
            f"stream {stream}: format {settings.format!r} does not exist; use delta or parquet"
        )
    if files.is_remote(root):
        raise UsageError(
            f"stream {stream}: format parquet is not possible at {root}: an object store cannot "
            "rename, so a plain reader of the directory could see half a run; use format: delta"
        )
    from retention.stores.parquet.store import ParquetStore

    return ParquetStore(layout, settings, clock)
