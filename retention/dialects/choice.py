"""The dialect that a stream or topic speaks."""

from __future__ import annotations

from retention.config import StreamConfig
from retention.dialects.dialect import Dialect
from retention.dialects.iggy import Iggy
from retention.dialects.jetstream import JetStream


def dialect_of(config: StreamConfig) -> Dialect:
    """The dialect of a stream or topic."""
    if config.topic is None:
        return JetStream.of(config)
    return Iggy(config.name, config.topic.policy())
