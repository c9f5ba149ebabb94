"""A stream's configuration in the form of a server's API: without our own fields, and without empty ones."""

from __future__ import annotations

from retention.config.keeping import Selected, StorageSettings
from retention.config.stream import StreamConfig

_OURS = {
    *StorageSettings.model_fields,
    *Selected.model_fields,
    "delete_retention",
    "max_subjects",
    "expiry",
    "mode",
    "whole_segments",
    "exclusive",
    "quiet",
    "unmatched",
    "release_share",
    "hold_for_consumers",
    "sync",
    "consumers",
    "holds",
}
"""Fields of a stream that servers do not have; its consumers have requests of their own."""


def server_config(stream: StreamConfig) -> dict[str, object]:
    """The configuration that STREAM.CREATE, STREAM.UPDATE and STREAM.RESTORE take, as JSON values."""
    ours = _OURS & StreamConfig.model_fields.keys()
    given = stream.model_dump(mode="json", exclude=ours, exclude_none=True)
    return {name: value for name, value in given.items() if value not in ("", [], {})}
