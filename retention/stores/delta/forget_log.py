"""Forgetting a Delta log: a checkpoint replaces the older entries, whose statistics may repeat removed values."""

from __future__ import annotations

from retention.errors import StalePlanError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.delta import commit_tokens, internals
from retention.stores.delta import log as delta_history
from retention.stores.delta.table import write_checkpoint
from retention.stores.layout import Layout


def forget_log(layout: Layout) -> list[str]:
    """Delete entries, checkpoints, checksums, sidecars and second names before the newest version; their locations.

    Readers of earlier versions, clones and streaming readers that are behind lose them.

    Raises:
        StalePlanError: another program deletes or replaces the table meanwhile.
    """
    table = layout.messages
    newest = max(delta_history.versions(layout)[0], default=-1)
    if newest not in internals.log_files(table)[1]:
        write_checkpoint(layout)
        newest = max(internals.log_files(table)[1], default=-1)
    if newest < 0:
        raise StalePlanError(
            f"stream {layout.stream}: another program deletes or replaces the table; its log was not changed; run again"
        )
    old = [
        *internals.log_places(table, newest),
        *_checksums(table),
        *_unused_sidecars(table, newest),
    ]
    if old:
        files.delete(old)
    commit_tokens.forget_before(layout, newest)
    reached(Step.ERASED_LOG_FORGOTTEN)
    return old


def _checksums(table: str) -> list[str]:
    """Checksums of log files: Hadoop's, and those of versions, which may list all files with their statistics."""
    directory = internals.log_directory(table)
    return [files.join(directory, name) for name in internals.log_names(table) if ".crc" in name]


def _unused_sidecars(table: str, version: int) -> list[str]:
    """The sidecar files that the checkpoint of a version does not name."""
    directory = files.join(internals.log_directory(table), "_sidecars")
    used = {
        name.rpartition("/")[2]
        for _, places in internals.whole_checkpoints(table, version)
        for place in places
        for name in internals.sidecars_of(place)
    }
    return [files.join(directory, name) for name in files.names(directory) if name not in used]
