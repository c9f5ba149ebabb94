"""One stream's configuration: checked, and normalised as the server normalises it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import model_validator

from retention.config.checks.consumer import listed_consumers_refusals
from retention.config.checks.origins import origin_refusals
from retention.config.checks.replay import replay_refusals
from retention.config.checks.stream import stream_refusals
from retention.config.checks.sync import sync_refusals
from retention.config.consumer_defaults import with_server_defaults
from retention.config.stream_fields import StreamFields
from retention.config.types import (
    UNLIMITED,
    refusals_error,
)
from retention.core.policy import Policy
from retention.core.units import MINUTE

if TYPE_CHECKING:
    from retention.config.holds import TopicHold
    from retention.config.topic import TopicConfig

DEFAULT_DUPLICATE_WINDOW_NS = 2 * MINUTE
MOST_FILES = 16
"""The maximum number of files into which an append or a rewrite splits one segment with `layout: deadline`."""


class StreamConfig(StreamFields):
    """A stream as STREAM.UPDATE would take it, normalised as the server normalises it.

    Durations are nanoseconds (0: off), sizes bytes, limits -1 for unlimited.
    """

    @model_validator(mode="after")
    def _check_and_normalise(self) -> Self:
        refusals = [
            *stream_refusals(self),
            *origin_refusals(self),
            *sync_refusals(self),
            *replay_refusals(self),
        ]
        for changes in (_derived(self), _implied(self), _sealed(self)):
            self.__dict__.update(changes)
        refusals += listed_consumers_refusals(self, self.consumers)
        if refusals:
            raise refusals_error(refusals)
        self.__dict__["consumers"] = tuple(
            with_server_defaults(consumer, self) for consumer in self.consumers
        )
        return self

    @property
    def topic(self) -> TopicConfig | None:
        """The topic that this stream implements; None: the stream is not a topic."""
        return None

    @property
    def written_holds(self) -> tuple[TopicHold, ...]:
        """The legal holds that the file has."""
        return self.holds

    @property
    def partitions(self) -> int:
        """The number of partitions; a stream has one."""
        return 1

    @property
    def lowest_seq(self) -> int:
        """The lowest sequence that a message can have."""
        return 1

    @property
    def most_files(self) -> int:
        """The maximum number of files into which an append or a rewrite may split a segment by deadline."""
        return 1 if self.layout == "sequence" or self.whole_segments else MOST_FILES

    @property
    def max_age_ns(self) -> int | None:
        """The age at which a message is removed, nanoseconds; None: never."""
        return self.max_age or None

    @property
    def duplicate_window_ns(self) -> int:
        """The time for which a message id is remembered, nanoseconds; 0: not at all."""
        return self.duplicate_window

    @property
    def subject_delete_marker_ttl_ns(self) -> int | None:
        """The lifetime of a delete marker, nanoseconds; None: no markers are written."""
        return self.subject_delete_marker_ttl or None

    def policy(self) -> Policy:
        """The limits as used by the rules; None: no limit."""
        return Policy(
            max_age_ns=self.max_age_ns,
            expiry="head" if self.max_age_ns is None else self.expiry,
            max_msgs=_none_if_unlimited(self.max_msgs),
            max_bytes=_none_if_unlimited(self.max_bytes),
            max_msgs_per_subject=_none_if_unlimited(self.max_msgs_per_subject),
            max_subjects=_none_if_unlimited(self.max_subjects),
            delete_retention_ns=self.delete_retention or None,
            discard=self.discard,
            whole_segments=self.whole_segments,
            retention=self.retention,
            allow_msg_ttl=self.allow_msg_ttl,
            subject_delete_marker_ttl_ns=self.subject_delete_marker_ttl_ns,
            unmatched=self.unmatched,
            hold=None if self.hold_for_consumers is None else self.hold_for_consumers.rule(),
            archive=self.archive,
            mode=self.mode,
            **self._for_markers(),
        )

    def _for_markers(self) -> dict[str, Any]:
        """The fields of a policy that are needed only by runs that store delete markers."""
        if self.subject_delete_marker_ttl_ns is None:
            return {}
        longest = _none_if_unlimited(self.max_msg_size)
        return {"storage": self.storage, "max_msg_size": longest, "sealed": self.sealed}


def _none_if_unlimited(limit: int) -> int | None:
    return None if limit == UNLIMITED else limit


def _derived(stream: StreamConfig) -> dict[str, object]:
    """Defaults that depend on other fields (STREAM.CREATE)."""
    if stream.mirror is not None or stream.sources or stream.sync is not None:
        return {"num_replicas": stream.num_replicas or 1}
    window = stream.duplicate_window or DEFAULT_DUPLICATE_WINDOW_NS
    return {
        "num_replicas": stream.num_replicas or 1,
        "subjects": stream.subjects or (stream.name,),
        "duplicate_window": min(window, stream.max_age or window),
    }


def _implied(stream: StreamConfig) -> dict[str, object]:
    """The fields that delete markers and schedules enable (ADR-43, ADR-51)."""
    changes: dict[str, object] = {}
    if stream.subject_delete_marker_ttl:
        changes["allow_msg_ttl"] = True
    needs_rollup = stream.subject_delete_marker_ttl or stream.allow_msg_schedules
    if needs_rollup and not stream.allow_rollup_hdrs:
        changes |= {"allow_rollup_hdrs": True, "deny_purge": False}
    return changes


def _sealed(stream: StreamConfig) -> dict[str, object]:
    """The fields that sealing forces (STREAM.UPDATE)."""
    if not stream.sealed:
        return {}
    return {
        "max_age": 0,
        "discard": "new",
        "deny_delete": True,
        "deny_purge": True,
        "allow_rollup_hdrs": False,
    }
