"""The limits of a configuration for a replay, and what no replay can answer."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from retention.config import StreamConfig
from retention.core.message_rows import message_sizes
from retention.core.policy import Policy
from retention.core.units import SECOND
from retention.errors import RefusedError
from retention.rules.jetstream.delete_markers import block
from retention.rules.replay.limits import ReplayLimits


def replay_limits(config: StreamConfig) -> ReplayLimits:
    """The limits that a server with a stream of this configuration applies.

    Raises:
        RefusedError: a replay cannot answer what such a stream would hold.
    """
    _refuse_unanswerable(config)
    policy = config.policy()
    seconds = (policy.subject_delete_marker_ttl_ns or 0) // SECOND
    heading = block(seconds * SECOND)
    longest = config.max_msg_size
    return ReplayLimits(
        max_msgs=policy.max_msgs,
        max_bytes=policy.max_bytes,
        max_msgs_per_subject=policy.max_msgs_per_subject,
        max_age_ns=policy.max_age_ns,
        refuses_new=config.discard == "new",
        refuses_per_subject=config.discard_new_per_subject,
        expires=config.allow_msg_ttl,
        marker_ttl_ns=seconds * SECOND or None,
        marker_bytes=_marker_bytes(heading, config),
        refuses_markers=0 < longest < len(heading),
        duplicate_window_ns=config.duplicate_window_ns,
    )


def _refuse_unanswerable(config: StreamConfig) -> None:
    """Refuse what depends on more than publishes and limits, and what no server does.

    Raises:
        RefusedError: a setting of the configuration is of that kind.
    """
    for reason in _unanswerable(config, config.policy()):
        raise RefusedError(f"{config.name}: nothing was replayed, because {reason}")


def _unanswerable(config: StreamConfig, policy: Policy) -> Iterator[str]:
    if policy.retention != "limits" or policy.hold is not None:
        yield (
            "its consumers decide about messages, and when they acknowledged each is not stored; replay it with "
            "--set retention=limits --set hold_for_consumers=null"
        )
    if config.mirror is not None or config.sources:
        yield "it copies other streams, and when a server would have copied each message is not stored; replay those"
    if config.sealed:
        yield "a sealed stream takes no publish; replay it with --set sealed=false"
    if config.allow_msg_counter or config.allow_msg_schedules:
        yield "counters and schedules change what is published, and the published messages are not stored"
    ours = [
        name
        for name, is_set in (
            ("max_subjects", policy.max_subjects is not None),
            ("delete_retention", policy.delete_retention_ns is not None),
            ("expiry", policy.expiry == "each"),
            ("whole_segments", policy.whole_segments),
        )
        if is_set
    ]
    if ours:
        yield f"no server has {' and '.join(ours)}; replay it without, or say simulate"


def _marker_bytes(heading: bytes, config: StreamConfig) -> int:
    """The size of a marker without its subject."""
    empty, blocks = pa.chunked_array([[""]]), pa.chunked_array([pa.array([heading], pa.binary())])
    size = message_sizes(empty, blocks, pa.chunked_array([pa.array([b""])]), config.storage)
    return int(size[0].as_py())
