"""The settings of a topic from its creation or latest update, as a small file in the topic's own directory."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from retention.config import StreamConfig
from retention.errors import DamagedError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached

if TYPE_CHECKING:
    from retention.config.topic_settings import TopicSettings


def kept_settings(root: str) -> TopicSettings | None:
    """The stored settings of the topic below `root`; None if it does not exist yet, or predates stored settings.

    Raises:
        DamagedError: the file is damaged.
    """
    from retention.config.topic_settings import TopicSettings
    from retention.core.documents import judge
    from retention.core.stored_documents import KeptTopic

    location = _place(root)
    content = files.read_bytes(location)
    if content is None:
        return None
    try:
        fields = verified(parse_json(content))
        judge(KeptTopic, fields)
        return TopicSettings(**fields | {"defaulted": tuple(fields["defaulted"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedError(
            f"{location}: the settings that this topic keeps cannot be read ({error}); nothing was changed; restore the"
            " file from a copy, or delete it: then those of the configuration count, and its server defaults of now"
        ) from error


def settled(root: str, config: StreamConfig) -> StreamConfig:
    """Fill the gaps in a topic's configuration from its stored settings; a stream's configuration is unchanged.

    Raises:
        ConfigError: the configuration changes an immutable setting.
        DamagedError: as `kept_settings`.
    """
    if config.topic is None:
        return config
    from retention.config.topic_stream import TopicStream

    return config.with_kept(kept_settings(root)) if isinstance(config, TopicStream) else config


def keep_settings(root: str, config: StreamConfig) -> None:
    """Store the settings of a topic at its creation or update; write nothing for unchanged settings or for a stream.

    Args:
        root: the topic's directory.
        config: the topic's current configuration.

    Raises:
        DamagedError: as `kept_settings`.
    """
    if config.topic is None:
        return
    from retention.config.topic_stream import TopicStream

    if isinstance(config, TopicStream) and kept_settings(root) != config.settings:
        files.replace(_place(root), json.dumps(with_checksum(asdict(config.settings))).encode())
        reached(Step.TOPIC_KEPT)


def _place(root: str) -> str:
    return files.join(root, "_retention", "topic.json")
