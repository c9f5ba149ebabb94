"""Adding a bucket to `retention.yaml`: a new list entry, with every other byte of the file unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from retention.config.bucket import bucket_key, stream_values, with_stream_keys
from retention.config.discovery import CONFIG_NAME
from retention.config.list_entry import ListEntry, add_entry
from retention.config.load import Config, load_config
from retention.core.bucket_names import stream_of
from retention.errors import ConfigError
from retention.storage import files

_KEY = "buckets"


def add_bucket(config: Config, values: Mapping[str, object]) -> str | None:
    """Add a bucket to a warehouse's configuration, which is created if missing.

    Args:
        config: the current configuration.
        values: the bucket's keys, including `name`.

    Returns:
        The location of the file; None: the bucket is already listed with exactly these settings.

    Raises:
        ConfigError: the bucket is listed with other settings, or is not valid, or the file has a form that only a
            person can edit.
        BusyError: another process changed the file at the same time.
    """
    listed = config.stream(stream_of(str(values["name"])))
    if listed is not None:
        _refuse_other_settings(config, values)
        return None
    place = config.file or files.join(config.warehouse, CONFIG_NAME)
    add_entry(place, _entry(values))
    return place


def _refuse_other_settings(config: Config, values: Mapping[str, object]) -> None:
    name = str(values["name"])
    wanted = load_config("-", f"{_KEY}:\n{_entry(values).text(0)}".encode()).stream(stream_of(name))
    there = config.stream(stream_of(name))
    keys = stream_values(with_stream_keys(values)).keys()
    other = [bucket_key(key) for key in sorted(keys) if getattr(wanted, key) != getattr(there, key)]
    if other:
        raise ConfigError(
            f"{config.file}: bucket {name} is listed already, with another {', '.join(other)}; nothing was changed; "
            "edit it there"
        )


def _entry(values: Mapping[str, object]) -> ListEntry:
    given = {key: value for key, value in values.items() if value is not None}
    return ListEntry(_KEY, "a bucket", given)
