"""Choice of the dialect of a stream or topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from retention.config import StreamConfig
    from retention.dialects.dialect import Dialect


def dialect_of(config: StreamConfig) -> Dialect:
    """The dialect of a stream or topic; only its own modules are loaded."""
    if config.topic is None:
        from retention.dialects.jetstream import JetStream

        return JetStream.of(config)
    from retention.dialects.iggy import Iggy

    return Iggy(config.name, config.topic.policy())
