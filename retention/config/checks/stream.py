"""Refusals of a stream's own fields: the server's, and our own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from retention.config.types import (
    INVALID_CONFIG,
    MAX_DESCRIPTION_BYTES,
    MAX_METADATA_BYTES,
    ConfigRefusal,
    refusal,
)
from retention.core.subjects import (
    MAX_NAME_LENGTH,
    is_subset,
    is_valid_filter,
    is_valid_name,
    overlap,
)
from retention.core.units import MILLISECOND, SECOND, format_duration
from retention.schemas.bounds import MAX_SEQ

if TYPE_CHECKING:
    from retention.config.nested import ConsumerHold
    from retention.config.stream_fields import StreamFields

PATH_SEPARATOR_IN_NAME = 10128
MAX_REPLICAS = 5
SHORTEST_NS = 100 * MILLISECOND
"""The shortest age and duplicate window that the server accepts."""


def stream_refusals(stream: StreamFields) -> Iterator[ConfigRefusal]:
    """The refusals of a stream by itself, without its origins (server: checkStreamCfg)."""
    yield from _names(stream)
    yield from _durations(stream)
    yield from _replicas(stream)
    yield from _discard(stream)
    yield from _markers(stream)
    yield from _counters(stream)
    yield from _schedules(stream)
    yield from _persistence(stream)
    yield from _subjects(stream)
    yield from _ours(stream)
    yield from _writers(stream)


def _names(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if not is_valid_name(stream.name):
        yield refusal(
            "name",
            f"{stream.name!r} is not a name: write 1 to {MAX_NAME_LENGTH} bytes without whitespace"
            " and without any of . * > / \\",
            PATH_SEPARATOR_IN_NAME if {"/", "\\"} & set(stream.name) else INVALID_CONFIG,
        )
    if len(stream.description.encode()) > MAX_DESCRIPTION_BYTES:
        yield refusal("description", f"is longer than {MAX_DESCRIPTION_BYTES} bytes; shorten it")
    length = sum(len(f"{key}{value}".encode()) for key, value in stream.metadata.items())
    if length > MAX_METADATA_BYTES:
        yield refusal("metadata", f"is longer than {MAX_METADATA_BYTES} bytes; shorten it")


def _durations(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if stream.max_age < 0 or 0 < stream.max_age < SHORTEST_NS:
        yield refusal(
            "max_age",
            f"{format_duration(stream.max_age)} is too short; write at least 100ms, or 0 for"
            " no limit",
        )
    window = stream.duplicate_window
    if window < 0 or 0 < window < SHORTEST_NS:
        yield refusal(
            "duplicate_window", f"{format_duration(window)} is too short; write at least 100ms"
        )
    if stream.max_age >= SHORTEST_NS and window > stream.max_age:
        yield refusal(
            "duplicate_window max_age",
            f"{format_duration(window)} is longer than max_age; write at most"
            f" {format_duration(stream.max_age)}, or leave it out",
        )


def _replicas(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if stream.num_replicas > MAX_REPLICAS:
        yield refusal(
            "num_replicas", f"{stream.num_replicas} is too many; write at most {MAX_REPLICAS}"
        )
    if stream.num_replicas < 0:
        yield refusal("num_replicas", "must not be negative; write 1", 10133)
    if stream.placement is not None and stream.placement.preferred:
        yield refusal("placement", "a preferred server cannot be configured; leave it out")


def _discard(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if not stream.discard_new_per_subject:
        return
    if stream.discard != "new":
        yield refusal("discard_new_per_subject discard", "works only with discard: new; add that")
    if stream.max_msgs_per_subject <= 0:
        yield refusal(
            "discard_new_per_subject max_msgs_per_subject",
            "works only with a limit per subject; add max_msgs_per_subject: 1 or more",
        )


def _markers(stream: StreamFields) -> Iterator[ConfigRefusal]:
    marker_ttl = stream.subject_delete_marker_ttl
    if marker_ttl < 0 or 0 < marker_ttl < SECOND:
        least = "be at least 1 second" if marker_ttl > 0 else "not be negative"
        yield refusal(
            "subject_delete_marker_ttl",
            f"{format_duration(marker_ttl)}: subject delete marker TTL must {least}; write at least"
            " 1s, or 0 for no markers",
        )
    if stream.deny_purge and stream.allow_rollup_hdrs:
        yield refusal(
            "deny_purge allow_rollup_hdrs",
            "roll-ups require the purge permission, so this excludes allow_rollup_hdrs; choose one"
            " of the two",
        )


def _counters(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if not stream.allow_msg_counter:
        return
    if stream.discard == "new":
        yield refusal("allow_msg_counter discard", "counters exclude discard: new; write old")
    if stream.allow_msg_ttl:
        yield refusal(
            "allow_msg_counter allow_msg_ttl",
            "a counter stream cannot use message TTLs; leave out one of the two",
        )
    if stream.allow_msg_schedules:
        yield refusal(
            "allow_msg_counter allow_msg_schedules", "counters exclude allow_msg_schedules"
        )
    if stream.retention != "limits":
        yield refusal(
            "allow_msg_counter retention", "counters work only with retention: limits; write that"
        )
    if stream.sealed and stream.subject_delete_marker_ttl:
        yield refusal(
            "allow_msg_counter subject_delete_marker_ttl sealed",
            "a stream of counters with delete markers cannot be sealed, since markers switch on"
            " allow_msg_ttl; leave one of the three out",
        )


def _schedules(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if stream.allow_msg_schedules and stream.discard == "new":
        yield refusal("allow_msg_schedules discard", "schedules exclude discard: new; write old")


def _persistence(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if stream.persist_mode != "async":
        return
    if stream.storage != "file":
        yield refusal("persist_mode storage", "async works only with storage: file")
    if stream.num_replicas > 1:
        yield refusal("persist_mode num_replicas", "async works only with one replica")
    if stream.allow_atomic:
        yield refusal("persist_mode allow_atomic", "async excludes allow_atomic")


def _subjects(stream: StreamFields) -> Iterator[ConfigRefusal]:
    valid = [subject for subject in stream.subjects if is_valid_filter(subject)]
    for subject in stream.subjects:
        if subject not in valid:
            yield refusal(
                "subjects",
                f"{subject!r} is not a subject: tokens between dots must not be empty or have"
                " whitespace, and > is allowed only at the end",
            )
    for first, second in combinations(valid, 2):
        if overlap(first, second):
            yield refusal("subjects", f"{first!r} overlaps with {second!r}; remove one")
    if ">" in valid and stream.num_replicas > 1:
        yield refusal("subjects num_replicas", "'>' works only with one replica")
    if not stream.no_ack:
        yield from _reserved_subjects(valid)


def _reserved_subjects(subjects: list[str]) -> Iterator[ConfigRefusal]:
    for subject in subjects:
        if subject == ">":
            yield refusal("subjects no_ack", "'>' captures everything: that needs no_ack: true")
            continue
        for reserved in ("$JS.>", "$JSC.>", "$NRG.>", "$SYS.>"):
            exempt = "$SYS.ACCOUNT.>" if reserved == "$SYS.>" else "$JS.EVENT.>"
            if overlap(subject, reserved) and not is_subset(subject, exempt):
                yield refusal(
                    "subjects no_ack",
                    f"{subject!r} overlaps with the server's own {reserved}: that needs"
                    " no_ack: true",
                )


def _writers(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if stream.exclusive and stream.spark_writes:
        yield refusal(
            "exclusive spark_writes",
            "exclusive says that no other program writes the table, spark_writes that Spark does; remove one of the"
            " two",
            None,
        )


def _ours(stream: StreamFields) -> Iterator[ConfigRefusal]:
    if stream.first_seq > MAX_SEQ:
        yield refusal(
            "first_seq", f"{stream.first_seq} is too high: sequences end at 2^62; write less", None
        )
    if stream.expiry == "each" and not stream.max_age:
        yield refusal(
            "expiry max_age",
            "each decides which old messages are removed, and without max_age none is too old; add max_age, or remove "
            "expiry (a message's own Nats-TTL counts anywhere)",
            None,
        )
    if stream.whole_segments and stream.subject_delete_marker_ttl:
        yield refusal(
            "whole_segments subject_delete_marker_ttl",
            "whole segments are removed without reading a message, so no delete marker can be written;"
            " remove whole_segments or subject_delete_marker_ttl",
            None,
        )
    if stream.whole_segments and stream.layout == "deadline":
        yield refusal(
            "layout whole_segments",
            "deadline divides segments so that parts of them can be removed, and with whole_segments"
            " none ever is; write layout: sequence, or remove whole_segments",
            None,
        )
    if stream.release_share:
        yield refusal(
            "release_share",
            "files are rewritten as soon as consumers release messages in them, so no share can wait; delete this line",
            None,
        )
    yield from _delete_retention(stream)
    yield from _max_subjects(stream)
    if stream.hold_for_consumers is not None:
        yield from _hold(stream, stream.hold_for_consumers)


def _delete_retention(stream: StreamFields) -> Iterator[ConfigRefusal]:
    """The refusals of `delete_retention` with settings under which subjects cannot be removed as a whole."""
    if stream.delete_retention < 0:
        yield refusal(
            "delete_retention",
            f"{format_duration(stream.delete_retention)} must not be negative; write how long deletions are kept, or 0 "
            "for as long as other messages",
            None,
        )
    if stream.delete_retention <= 0:
        return
    denied = "sealed" if stream.sealed else "deny_purge" if stream.deny_purge else None
    if denied is not None:
        yield refusal(
            f"delete_retention {denied}",
            f"purges the subjects of old deletions, and {denied} forbids purging; remove one of the two",
            None,
        )
    if stream.whole_segments:
        yield refusal(
            "delete_retention whole_segments",
            "a deletion removed with its segment would restore the value in an older segment that is kept;"
            " remove one of the two",
            None,
        )
    if stream.hold_for_consumers is not None and stream.hold_for_consumers.action == "hold":
        yield refusal(
            "delete_retention hold_for_consumers",
            "a deletion removed while an older value of its subject is held for a consumer would restore that value;"
            " remove one of the two, or write action: warn",
            None,
        )


def _max_subjects(stream: StreamFields) -> Iterator[ConfigRefusal]:
    """The refusals of `max_subjects` with settings under which subjects cannot be removed as a whole."""
    if stream.max_subjects < 0:
        return
    if stream.sealed:
        yield refusal(
            "max_subjects sealed",
            "removes whole subjects, and sealed keeps every message; remove one of the two",
            None,
        )
    if stream.whole_segments:
        yield refusal(
            "max_subjects whole_segments",
            "removes subjects wherever their messages are, and with whole_segments only whole segments are removed;"
            " remove one of the two",
            None,
        )
    if stream.hold_for_consumers is not None and stream.hold_for_consumers.action == "hold":
        yield refusal(
            "max_subjects hold_for_consumers",
            "a subject's last message would be removed while an older one is held for a consumer, which would become"
            " its value; remove one of the two, or write action: warn",
            None,
        )


def _hold(stream: StreamFields, hold: ConsumerHold) -> Iterator[ConfigRefusal]:
    """The refusals of consumer protection (`hold_for_consumers`) with settings that exclude it."""
    if stream.retention != "limits":
        yield refusal(
            "hold_for_consumers retention",
            f"{stream.retention} itself keeps the messages that consumers need, and there limits apply at once, as on "
            "a server; remove hold_for_consumers, or write retention: limits",
            None,
        )
    if stream.subject_delete_marker_ttl:
        yield refusal(
            "hold_for_consumers subject_delete_marker_ttl",
            "a delete marker announces that a subject's last message was removed, and can evict held messages;"
            " remove one of the two",
            None,
        )
    if stream.whole_segments:
        yield refusal(
            "hold_for_consumers whole_segments",
            "whole segments are removed without reading a message, and only reading shows which are held;"
            " remove one of the two",
            None,
        )
    if hold.action == "hold" and not (hold.max_age or hold.max_bytes):
        yield refusal(
            "hold_for_consumers",
            "has no bound, so an abandoned consumer would keep everything;"
            " add max_age, max_bytes or both, or write action: warn",
            None,
        )
