"""The fields of a stream's configuration: every server field that concerns storage or retention, and ours."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import WithJsonSchema

from retention.config.consumer import ConsumerConfig
from retention.config.holds import StreamHold
from retention.config.keeping import Selected, StorageSettings
from retention.config.nested import (
    ConsumerHold,
    ConsumerLimits,
    DescriptiveFields,
    Placement,
    Republish,
    StreamSource,
    SubjectTransform,
    SyncSource,
)
from retention.config.types import (
    UNLIMITED,
    ByteLimit,
    Count,
    Duration,
    Flag,
    Limit,
    Sequence,
    Share,
    SmallByteLimit,
)
from retention.core.policy import Discard, Expiry, Mode, Retention, Unmatched


class StreamFields(StorageSettings, Selected, DescriptiveFields):
    """A stream's configuration, field by field.

    Durations are nanoseconds (0: off), sizes bytes, limits -1 for unlimited.
    """

    name: str
    subjects: tuple[str, ...] = ()
    retention: Retention = "limits"
    max_age: Duration = 0
    expiry: Expiry = "head"
    max_msgs: Limit = UNLIMITED
    max_bytes: ByteLimit = UNLIMITED
    max_msgs_per_subject: Limit = UNLIMITED
    max_subjects: Limit = UNLIMITED
    delete_retention: Duration = 0
    max_msg_size: SmallByteLimit = UNLIMITED
    max_consumers: Limit = UNLIMITED
    discard: Discard = "old"
    discard_new_per_subject: Flag = False
    storage: Literal["file", "memory"] = "file"
    num_replicas: Count = 1
    no_ack: Flag = False
    duplicate_window: Duration = 0
    first_seq: Sequence = 0
    sealed: Flag = False
    deny_delete: Flag = False
    deny_purge: Flag = False
    allow_rollup_hdrs: Flag = False
    allow_msg_ttl: Flag = False
    subject_delete_marker_ttl: Duration = 0
    allow_direct: Flag = False
    mirror_direct: Flag = False
    compression: Literal["none", "s2"] = "none"
    persist_mode: Literal["default", "async"] = "default"
    mirror: StreamSource | None = None
    sources: tuple[StreamSource, ...] = ()
    subject_transform: SubjectTransform | None = None
    republish: Republish | None = None
    allow_msg_counter: Flag = False
    allow_atomic: Flag = False
    allow_msg_schedules: Flag = False
    allow_batched: Flag = False
    consumer_limits: ConsumerLimits = ConsumerLimits()
    placement: Placement | None = None

    mode: Mode = "update"
    whole_segments: Flag = False
    exclusive: Flag = False
    quiet: Flag = False
    unmatched: Unmatched = "keep"
    release_share: Annotated[Share, WithJsonSchema({"const": 0})] = 0
    hold_for_consumers: ConsumerHold | None = None
    sync: SyncSource | None = None
    holds: tuple[StreamHold, ...] = ()
    consumers: tuple[ConsumerConfig, ...] = ()
