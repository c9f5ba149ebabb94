"""The mappings inside a stream's configuration, by the server's names."""

from __future__ import annotations

from pydantic import Field

from retention.config.types import (
    Budget,
    ConfigMapping,
    Count,
    Duration,
    Everyone,
    Flag,
    Grace,
    Sequence,
)
from retention.core.policy import ConsumerProtection, HoldAction


class SubjectTransform(ConfigMapping):
    """A rename of subjects on their way in: from `src` to `dest`."""

    src: str = ""
    dest: str = ""


class ExternalStream(ConfigMapping):
    """The subject prefixes through which a stream of another account or domain is reached."""

    api: str = ""
    deliver: str = ""


class SourceConsumer(ConfigMapping):
    """The durable consumer through which an origin is read."""

    name: str = ""
    deliver_subject: str = ""


class StreamSource(ConfigMapping):
    """The origin of a mirror, or one of the origins of a stream with sources."""

    name: str
    opt_start_seq: Sequence = 0
    opt_start_time: str | None = None
    filter_subject: str = ""
    subject_transforms: tuple[SubjectTransform, ...] = ()
    external: ExternalStream | None = None
    consumer: SourceConsumer | None = None


class SyncSource(ConfigMapping):
    """The stream of a live NATS server with which a stream is kept in step; neither field may hold a secret."""

    server: str = ""
    context: str = ""
    stream: str = ""
    max_missed: Sequence = 0


class TopicSyncSource(ConfigMapping):
    """The topic of a live Iggy server with which a topic is kept in step; no field may hold a secret."""

    server: str = ""
    stream: str = ""
    topic: str = ""
    max_missed: Count = 0


class Republish(ConfigMapping):
    """The republishing of stored messages: from the subjects `src` to `dest`."""

    src: str = ""
    dest: str = ""
    headers_only: Flag = False


class Placement(ConfigMapping):
    """The placement of a stream in a cluster."""

    cluster: str = ""
    tags: tuple[str, ...] = ()
    preferred: str = ""


class ConsumerLimits(ConfigMapping):
    """Bounds and defaults of the stream's consumers."""

    inactive_threshold: Duration = 0
    max_ack_pending: Count = 0


class ConsumerHold(ConfigMapping):
    """The consumers for which limits keep messages, and the bounds of this protection; 0: no bound."""

    consumers: Everyone = None
    action: HoldAction = "hold"
    max_age: Grace = 0
    max_bytes: Budget = 0

    def rule(self) -> ConsumerProtection:
        """The protection as used by the rules: None instead of 0 for no limit."""
        return ConsumerProtection(
            self.consumers, self.action, self.max_age or None, self.max_bytes or None
        )


class DescriptiveFields(ConfigMapping):
    """The fields that only people read."""

    description: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)
    template_owner: str = ""
