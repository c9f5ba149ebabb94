"""One stream's configuration: every server field that concerns storage or retention, and ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from retention.config.checks.consumer import consumers_refusals
from retention.config.checks.origins import origin_refusals
from retention.config.checks.stream import stream_refusals
from retention.config.consumer import ConsumerConfig, resolved
from retention.config.locations import Location
from retention.config.nested import (
    ConsumerHold,
    ConsumerLimits,
    Described,
    Placement,
    Republish,
    StreamSource,
    SubjectTransform,
)
from retention.config.types import (
    UNLIMITED,
    Budget,
    ByteLimit,
    Count,
    Duration,
    Flag,
    Grace,
    Limit,
    Part,
    Sequence,
    Share,
    Size,
    SmallByteLimit,
    Span,
    refused,
)
from retention.core.policy import Discard, Policy, Retention, Unmatched
from retention.core.units import DAY, MINUTE

if TYPE_CHECKING:
    from retention.config.topic import TopicConfig

DEFAULT_DUPLICATE_WINDOW_NS = 2 * MINUTE
MOST_FILES = 16
"""With `layout: deadline`, an append or a rewrite divides what goes into one segment among at most so many files."""


class KeepingSettings(Part):
    """How streams and topics are kept here."""

    format: Literal["delta", "parquet"] = "delta"
    grace: Grace = 7 * DAY
    engine: Literal["auto", "spark", "local"] = "auto"
    local_limit: Budget = 64 * 2**20
    archive: Location | None = None
    """Where files are copied to before a run removes them; None: nowhere."""

    @property
    def grace_ns(self) -> int:
        """How long removed files stay, nanoseconds."""
        return self.grace


class StorageSettings(KeepingSettings):
    """How a stream is kept here; each of these can also stand under `defaults`."""

    segment_size: Size = 256 * 2**20
    segment_span: Span = DAY
    layout: Literal["sequence", "deadline"] = "sequence"

    @property
    def segment_span_ns(self) -> int | None:
        """How much younger than a segment's first message a message may be; None: any."""
        return self.segment_span or None


class StreamConfig(StorageSettings, Described):
    """A stream as STREAM.UPDATE would take it, normalised as the server normalises it.

    Durations are nanoseconds (0: off), sizes bytes, limits -1 where there is none.
    """

    name: str
    subjects: tuple[str, ...] = ()
    retention: Retention = "limits"
    max_age: Duration = 0
    max_msgs: Limit = UNLIMITED
    max_bytes: ByteLimit = UNLIMITED
    max_msgs_per_subject: Limit = UNLIMITED
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

    whole_segments: Flag = False
    exclusive: Flag = False
    quiet: Flag = False
    unmatched: Unmatched = "keep"
    release_share: Share = 0
    hold_for_consumers: ConsumerHold | None = None
    consumers: tuple[ConsumerConfig, ...] = ()

    @model_validator(mode="after")
    def _check_and_normalise(self) -> Self:
        refusals = [*stream_refusals(self), *origin_refusals(self)]
        for changes in (_derived(self), _implied(self), _sealed(self)):
            self.__dict__.update(changes)
        refusals += consumers_refusals(self, self.consumers)
        if refusals:
            raise refused(refusals)
        self.__dict__["consumers"] = tuple(resolved(one, self) for one in self.consumers)
        return self

    @property
    def topic(self) -> TopicConfig | None:
        """The topic that is kept as this stream; None: it is no topic."""
        return None

    @property
    def partitions(self) -> int:
        """How many a topic has; streams have one."""
        return 1 if self.topic is None else self.topic.partitions

    @property
    def lowest_seq(self) -> int:
        """The lowest sequence that a message can have: offsets of topics begin at 0."""
        return 1 if self.topic is None else 0

    @property
    def most_files(self) -> int:
        """Among how many files an append or a rewrite may divide a segment's messages, apart by deadline."""
        return 1 if self.layout == "sequence" or self.whole_segments else MOST_FILES

    @property
    def max_age_ns(self) -> int | None:
        """The age at which a message goes; None: never."""
        return self.max_age or None

    @property
    def duplicate_window_ns(self) -> int:
        """How long a message id is remembered; 0: not at all."""
        return self.duplicate_window

    @property
    def subject_delete_marker_ttl_ns(self) -> int | None:
        """How long a delete marker stays; None: none are written."""
        return self.subject_delete_marker_ttl or None

    def policy(self) -> Policy:
        """What the rules see."""
        return Policy(
            max_age_ns=self.max_age_ns,
            max_msgs=_none_if_unlimited(self.max_msgs),
            max_bytes=_none_if_unlimited(self.max_bytes),
            max_msgs_per_subject=_none_if_unlimited(self.max_msgs_per_subject),
            discard=self.discard,
            whole_segments=self.whole_segments,
            retention=self.retention,
            allow_msg_ttl=self.allow_msg_ttl,
            subject_delete_marker_ttl_ns=self.subject_delete_marker_ttl_ns,
            unmatched=self.unmatched,
            release_share=self.release_share or None,
            hold=None if self.hold_for_consumers is None else self.hold_for_consumers.rule(),
            archive=self.archive,
            **self._for_markers(),
        )

    def _for_markers(self) -> dict[str, Any]:
        """What a pass that stores markers must know of the stream besides its limits."""
        if self.subject_delete_marker_ttl_ns is None:
            return {}
        longest = _none_if_unlimited(self.max_msg_size)
        return {"storage": self.storage, "max_msg_size": longest, "sealed": self.sealed}


def _none_if_unlimited(limit: int) -> int | None:
    return None if limit == UNLIMITED else limit


def _derived(stream: StreamConfig) -> dict[str, Any]:
    """Defaults that depend on other fields (STREAM.CREATE)."""
    if stream.mirror is not None or stream.sources:
        return {"num_replicas": stream.num_replicas or 1}
    window = stream.duplicate_window or DEFAULT_DUPLICATE_WINDOW_NS
    return {
        "num_replicas": stream.num_replicas or 1,
        "subjects": stream.subjects or (stream.name,),
        "duplicate_window": min(window, stream.max_age or window),
    }


def _implied(stream: StreamConfig) -> dict[str, Any]:
    """What delete markers and schedules switch on (ADR-43, ADR-51)."""
    changes: dict[str, Any] = {}
    if stream.subject_delete_marker_ttl:
        changes["allow_msg_ttl"] = True
    needs_rollup = stream.subject_delete_marker_ttl or stream.allow_msg_schedules
    if needs_rollup and not stream.allow_rollup_hdrs:
        changes |= {"allow_rollup_hdrs": True, "deny_purge": False}
    return changes


def _sealed(stream: StreamConfig) -> dict[str, Any]:
    """What sealing forces (STREAM.UPDATE)."""
    if not stream.sealed:
        return {}
    return {
        "max_age": 0,
        "discard": "new",
        "deny_delete": True,
        "deny_purge": True,
        "allow_rollup_hdrs": False,
    }
