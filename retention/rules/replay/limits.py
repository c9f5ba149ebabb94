"""The limits that a replay applies at each publish and each expiry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReplayLimits:
    """A server's limits: nanoseconds and bytes; None: unlimited or off."""

    max_msgs: int | None = None
    max_bytes: int | None = None
    max_msgs_per_subject: int | None = None
    max_age_ns: int | None = None
    refuses_new: bool = False
    """`discard: new`: a full stream refuses publishes instead of removing its head."""
    refuses_per_subject: bool = False
    """`discard_new_per_subject`: so does a full subject."""
    expires: bool = False
    """`allow_msg_ttl`: messages expire by their own TTL."""
    marker_ttl_ns: int | None = None
    """The lifetime of a delete marker, in whole seconds; None: none are written."""
    marker_bytes: int = 0
    """The size of a marker without its subject."""
    refuses_markers: bool = False
    """Whether `max_msg_size` is below the length of a marker."""
    duplicate_window_ns: int = 0
    """The time for which an id is remembered; 0: not at all."""

    @property
    def trims_head(self) -> bool:
        """Whether a store may remove the lowest sequences."""
        return not self.refuses_new and not (self.max_msgs is None and self.max_bytes is None)

    @property
    def may_refuse(self) -> bool:
        """Whether a publish may be refused because the stream, or its subject, is full."""
        limited = not (self.max_msgs is None and self.max_bytes is None)
        return self.refuses_new and (limited or self.refuses_per_subject)
