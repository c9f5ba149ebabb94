"""Subject-delete markers: the subjects that get one after expiry of their last message, and its content."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.headers import MARKER_REASON, ROLLUP, TTL, build
from retention.core.message_rows import accounted_sizes
from retention.core.policy import Policy
from retention.core.spans import Array
from retention.core.units import SECOND, go_duration
from retention.schemas.plan import PLANNED_MARKERS

DEATHS = pa.schema(
    [
        pa.field("subject", pa.string(), nullable=False),
        pa.field("scan", pa.int8(), nullable=False),
        pa.field("last_seq", pa.int64(), nullable=False),
        pa.field("silent", pa.bool_(), nullable=False),
    ]
)
"""Messages expired in one range of the stream, by subject and scan (0: the first rule that expires
messages; the scans run in order): the highest sequence, and whether that message is removed without
a marker (it is a marker itself, or a KV purge)."""


@dataclass(frozen=True)
class LimitTotals:
    """The messages and bytes of a stream after the limits and before expiry."""

    messages: int
    bytes: int


def block(ttl_ns: int) -> bytes:
    """The header block of a marker, byte for byte (ADR-43; docs/semantics/ttl.md).

    Args:
        ttl_ns: `subject_delete_marker_ttl`; truncated to seconds.
    """
    return build(
        [
            (MARKER_REASON, "MaxAge"),
            (TTL, go_duration(ttl_ns // SECOND * SECOND)),
            (ROLLUP, "sub"),
        ]
    )


def sizes(subjects: pa.Array, policy: Policy) -> Array:
    """The size of a marker on each subject, bytes by the broker's accounting."""
    ttl_ns = policy.subject_delete_marker_ttl_ns or 0
    headings = pa.array(np.full(len(subjects), len(block(ttl_ns))), pa.int64())
    nothing = pa.array(np.zeros(len(subjects)), pa.int64())
    counted = accounted_sizes(pc.binary_length(subjects), headings, nothing, policy.storage)
    return counted.to_numpy(zero_copy_only=False)


def candidates(deaths: pa.Table, staying: pa.Array) -> pa.Table:
    """The messages that need a marker to be removed, in the order of the scans.

    A subject has at most one: its last message in the order of the scans, if none is kept and that
    message needs a marker (NATS STREAM.UPDATE order, step 5c).

    Args:
        deaths: shape `DEATHS`, from every range of the stream.
        staying: subjects with a kept message.

    Returns:
        `DEATHS` without `silent`.
    """
    dying = deaths.filter(pc.invert(pc.is_in(deaths["subject"], value_set=staying)))
    encoded = pc.dictionary_encode(dying["subject"].combine_chunks())
    order = np.lexsort((dying["last_seq"].to_numpy(), dying["scan"].to_numpy()))
    last = np.zeros(len(encoded.dictionary), dtype=np.int64)
    # Later assignments overwrite earlier ones, so each subject gets its last position in the order of the scans.
    last[encoded.indices.to_numpy()[order]] = np.arange(len(order))
    chosen = dying.take(pa.array(order[np.sort(last)]))
    return chosen.filter(pc.invert(chosen["silent"])).drop_columns(["silent"])


def all_fit(dying: pa.Table, policy: Policy, left: LimitTotals) -> bool:
    """Whether every marker can be stored without a refusal and without an eviction.

    Args:
        dying: the messages of `candidates`; each needs a marker.
        policy: the limits.
        left: the stream's messages and bytes before the first marker.
    """
    if not dying.num_rows:
        return True
    return have_room(int(sizes(dying["subject"].combine_chunks(), policy).sum()), policy, left)


def have_room(taken: int, policy: Policy, left: LimitTotals) -> bool:
    """Whether markers of this total size, at least one, can be stored as in `all_fit`."""
    if refuses_all(policy):
        return False
    replaces_itself = policy.discard == "old" and policy.max_msgs_per_subject == 1
    one_more = left.messages + (0 if replaces_itself else 1)
    if policy.max_msgs is not None and one_more > policy.max_msgs:
        return False
    return policy.max_bytes is None or left.bytes + taken <= policy.max_bytes


def most_bytes(messages: int, total_bytes: int, policy: Policy) -> int:
    """The upper bound of the bytes of markers for a number of messages of a total size.

    Args:
        messages: the maximum number of expired messages.
        total_bytes: the total size of the messages, including their subjects.
        policy: says how long markers live.
    """
    return messages * int(sizes(pa.array([""]), policy)[0]) + total_bytes


def refuses_all(policy: Policy) -> bool:
    """Whether the stream never stores a marker, for any content."""
    return policy.sealed or _is_too_long(policy)


def numbered(dying: pa.Table, next_seq: int) -> pa.Table:
    """Assign sequences to the markers of these messages, in order; shape `PLANNED_MARKERS`."""
    seqs = np.arange(next_seq, next_seq + dying.num_rows)
    columns = [pa.array(seqs), dying["subject"], dying["last_seq"]]
    return pa.table(columns, names=PLANNED_MARKERS.names).cast(PLANNED_MARKERS)


def rows(markers: pa.Table, policy: Policy, as_of_ns: int) -> pa.Table:
    """The markers as raw messages, for completion; `seq`, `subject`, `ts_ns`, `headers`, `payload`.

    Args:
        markers: shape `PLANNED_MARKERS`.
        policy: says how long they live.
        as_of_ns: the pass's instant, the time of the markers.
    """
    heading = block(policy.subject_delete_marker_ttl_ns or 0)
    count = markers.num_rows
    return pa.table(
        {
            "seq": markers["seq"],
            "subject": markers["subject"],
            "ts_ns": pa.array(np.full(count, as_of_ns), pa.int64()),
            "headers": pa.array([heading], pa.binary()).take(pa.array(np.zeros(count, np.int64))),
            "payload": pa.array([b""], pa.binary()).take(pa.array(np.zeros(count, np.int64))),
        }
    )


def _is_too_long(policy: Policy) -> bool:
    longest = policy.max_msg_size
    return longest is not None and len(block(policy.subject_delete_marker_ttl_ns or 0)) > longest
