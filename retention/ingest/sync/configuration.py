"""The configuration of a server's stream beside its copy, and where the copy's own differs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from retention.config import StreamConfig
from retention.config.load import parse_stream
from retention.config.server_json import server_config
from retention.context.context import OpenedStream
from retention.errors import ConfigError, DamagedError
from retention.storage import files
from retention.storage.checksum import parse_json
from retention.storage.crash_points import Step, reached

SERVER_CONFIG = "server-config.json"
"""The file in the engine's directory of a stream with its server's configuration, in the server's JSON."""
_NOT_COMPARED = {
    *("name", "subjects", "description", "metadata", "num_replicas", "placement", "mirror"),
    *("sources", "subject_transform", "republish", "first_seq", "template_owner", "no_ack"),
    *("compression", "persist_mode", "allow_direct", "mirror_direct", "duplicate_window"),
    *("allow_atomic", "allow_batched", "max_consumers", "consumer_limits", "sealed"),
    *("allow_rollup_hdrs", "deny_delete", "deny_purge"),
}
"""Fields that keep or remove nothing in a copy that nobody publishes into."""


@dataclass(frozen=True)
class ConfigDifference:
    """A field that the copy and the server's stream have with different values; None: it is not set."""

    key: str
    here: object
    there: object

    def __str__(self) -> str:
        return f"{self.key} is {_shown(self.here)} here and {_shown(self.there)} on the server"


def keep_configuration(opened: OpenedStream, config: Mapping[str, Any]) -> None:
    """Write the server's configuration beside the stream, if it is another one than before."""
    place = _place(opened)
    content = f"{json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)}\n".encode()
    if files.read_bytes(place) != content:
        files.replace(place, content)
        reached(Step.SERVER_CONFIG_KEPT)


def kept_configuration(opened: OpenedStream) -> dict[str, Any] | None:
    """The server's configuration beside the stream; None: none was kept, or it cannot be read."""
    content = files.read_bytes(_place(opened))
    if content is None:
        return None
    try:
        config = parse_json(content)
    except (ValueError, DamagedError):
        return None
    return config if isinstance(config, dict) else None


def differences(ours: StreamConfig, config: Mapping[str, Any]) -> list[ConfigDifference]:
    """The settings that remove or keep messages, and that differ; sorted by key.

    Args:
        ours: the copy's configuration.
        config: the server's, its own JSON.

    Raises:
        ConfigError: the server's has a field that this release does not know.
    """
    theirs = server_config(parse_stream(config, "the server's configuration"))
    return list(_differing(server_config(ours), theirs))


def difference_notes(ours: StreamConfig, config: Mapping[str, Any]) -> list[str]:
    """A sentence about the settings that differ; none if they agree."""
    try:
        differing = differences(ours, config)
    except ConfigError as error:
        return [f"the server's configuration cannot be compared: {error}"]
    return [f"the configurations differ: {'; '.join(map(str, differing))}"] if differing else []


def _place(opened: OpenedStream) -> str:
    return files.join(opened.root, "_retention", SERVER_CONFIG)


def _differing(
    ours: Mapping[str, object], theirs: Mapping[str, object]
) -> Iterator[ConfigDifference]:
    for key in sorted((ours.keys() | theirs.keys()) - _NOT_COMPARED):
        if ours.get(key) != theirs.get(key):
            yield ConfigDifference(key, ours.get(key), theirs.get(key))


def _shown(value: object) -> str:
    return "not set" if value is None else json.dumps(value)
