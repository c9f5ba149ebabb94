"""One consumer's configuration: every field of the server's JSON, and the server's default values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from retention.config.types import (
    Bytes,
    ConfigMapping,
    Count,
    Duration,
    Flag,
    Instant,
    Moment,
    Sequence,
)
from retention.core.json_object import JsonObject
from retention.core.units import MINUTE, SECOND

if TYPE_CHECKING:
    pass

AckPolicy: TypeAlias = Literal["none", "all", "explicit", "flow_control"]
DeliverPolicy: TypeAlias = Literal[
    "all", "last", "last_per_subject", "new", "by_start_sequence", "by_start_time"
]
ReplayPolicy: TypeAlias = Literal["instant", "original"]
PriorityPolicy: TypeAlias = Literal["none", "overflow", "pinned_client", "prioritized"]

UNLIMITED = -1
DEFAULT_ACK_WAIT_NS = 30 * SECOND
DEFAULT_MAX_ACK_PENDING = 1000
DEFAULT_MAX_WAITING = 512
DEFAULT_INACTIVE_THRESHOLD_NS = 5 * SECOND
"""The inactivity after which a non-durable consumer without a threshold expires."""
DEFAULT_PRIORITY_TIMEOUT_NS = 2 * MINUTE
FLOW_CONTROL_HEARTBEAT_NS = SECOND

_NEVER_NEGATIVE = (
    "max_waiting",
    "max_batch",
    "max_expires",
    "max_bytes",
    "idle_heartbeat",
    "inactive_threshold",
    "priority_timeout",
)
_ALWAYS_WRITTEN = ("ack_policy", "deliver_policy", "replay_policy", "num_replicas")


class ConsumerConfig(ConfigMapping):
    """A consumer as CONSUMER.CREATE takes it and `nats consumer info --json` shows it under `config`.

    Durations are nanoseconds, sizes bytes, instants nanoseconds since the epoch; 0 and the empty
    text stand for a field that is not set (server: ConsumerConfig).
    """

    durable_name: str = ""
    name: str = ""
    ack_policy: AckPolicy = "none"
    ack_wait: Duration = 0
    backoff: tuple[Duration, ...] = ()
    max_deliver: Count = 0
    max_ack_pending: Count = 0
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: Sequence = 0
    opt_start_time: Instant | None = None
    filter_subject: str = ""
    filter_subjects: tuple[str, ...] = ()
    inactive_threshold: Duration = 0
    pause_until: Moment = None

    deliver_subject: str = ""
    deliver_group: str = ""
    flow_control: Flag = False
    idle_heartbeat: Duration = 0
    rate_limit_bps: Sequence = 0

    max_waiting: Count = 0
    max_batch: Count = 0
    max_expires: Duration = 0
    max_bytes: Bytes = 0
    priority_policy: PriorityPolicy = "none"
    priority_groups: tuple[str, ...] = ()
    priority_timeout: Duration = 0

    replay_policy: ReplayPolicy = "instant"
    sample_freq: str = ""
    headers_only: Flag = False
    num_replicas: Count = 0
    mem_storage: Flag = False
    direct: Flag = False
    sourcing: Flag = False
    description: str = ""
    metadata: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _take_durable_name(self) -> Self:
        self.__dict__["name"] = self.name or self.durable_name
        return self

    @property
    def filters(self) -> tuple[str, ...]:
        """The filter subjects; empty: all subjects of the stream."""
        return (self.filter_subject,) if self.filter_subject else self.filter_subjects

    @property
    def is_durable(self) -> bool:
        """Whether the consumer is kept while unused."""
        return bool(self.durable_name)

    @property
    def is_internal(self) -> bool:
        """Whether another stream created the consumer to read this one; limits on consumers ignore it."""
        return self.direct or self.sourcing

    @property
    def is_push(self) -> bool:
        """Whether messages are sent to a subject instead of being pulled."""
        return bool(self.deliver_subject)

    def as_json(self) -> JsonObject:
        """The configuration as JSON values, without fields at their zero value, as the server writes it."""
        values = self.model_dump(mode="json", exclude_defaults=True)
        return values | self.model_dump(mode="json", include={*_ALWAYS_WRITTEN})
