"""The arguments of a legal hold, checked before it is placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from retention.context.context import OpenedStream
from retention.context.holds import place_hold
from retention.core.seq_ranges import merged_ranges
from retention.core.subjects import is_valid_filter
from retention.core.units import parse_as_of
from retention.errors import RefusedError, UsageError
from retention.history.initiator import initiator
from retention.schemas.bounds import MAX_SEQ
from retention.stores.holds import Hold, new_id

if TYPE_CHECKING:
    from retention.api.repairs import Instant
    from retention.api.table import Table

Ranges = Sequence[tuple[int, int]] | np.ndarray
"""Pairs of a lowest and a highest sequence, both inclusive."""


def checked_hold(  # noqa: PLR0913  (each is a field of the record)
    name: str,
    now_ns: int,
    *,
    reason: str,
    subject: str | None,
    ranges: np.ndarray | None,
    times: tuple[Instant, Instant, Instant],
    owner: str | None,
) -> Hold:
    """A legal hold to place.

    Args:
        name: the stream or table.
        now_ns: the wall clock.
        reason: kept with it.
        subject: a subject filter.
        ranges: ranges of sequences; None: every sequence.
        times: the instants from which and before which messages were stored, and the one at which it ends.
        owner: the person or case to ask about it.

    Raises:
        UsageError: a field is not valid, or nothing can match.
    """
    from_ns, to_ns, until_ns = (_instant(instant, now_ns) for instant in times)
    hold = Hold(
        name,
        new_id(now_ns),
        checked_text(reason, "reason"),
        subject,
        ranges,
        from_ns,
        to_ns,
        until_ns,
        None if owner is None else checked_text(owner, "owner"),
        now_ns,
        initiator(),
    )
    _check(hold, now_ns)
    return hold


def place_on_stream(opened: OpenedStream, hold: Hold, key: Mapping[str, object] | None) -> Hold:
    """Place a legal hold on messages of a stream."""
    _refuse_unfit(opened, hold, key)
    place_hold(opened, hold)
    return hold


def _refuse_unfit(opened: OpenedStream, hold: Hold, key: Mapping[str, object] | None) -> None:
    """Refuse a legal hold that a stream cannot have."""
    if key is not None:
        raise RefusedError(
            f"{opened.name}: messages have no columns, so a key cannot name them; nothing was changed; hold them by "
            "subject, sequences or times"
        )
    if hold.subject is not None and opened.config.topic is not None:
        raise RefusedError(
            f"{opened.name}: a topic takes legal holds by offsets and times only, because it has no subjects; nothing "
            "was changed"
        )


def place_on_table(table: Table, hold: Hold, key: Mapping[str, object] | None) -> Hold:
    """Place a legal hold on rows of a table."""
    from retention.tables.holds import hold_of_rows, place_hold

    return place_hold(table.opened, hold_of_rows(table.opened, hold, key))


def _check(hold: Hold, now_ns: int) -> None:
    """Refuse a legal hold that covers nothing, or that is not valid."""
    if hold.subject is not None and not is_valid_filter(hold.subject):
        raise UsageError(f"{hold.subject!r} is not a subject filter; nothing was changed")
    if None not in (hold.from_ns, hold.to_ns) and hold.messages.from_ns >= hold.messages.to_ns:
        raise UsageError("a legal hold ends before it begins: no message is stored in that time")
    if hold.is_due(now_ns):
        raise UsageError(
            "until is past, so the legal hold would expire at once; nothing was changed"
        )


def checked_text(text: str, what: str) -> str:
    """A text that a record keeps; empty is refused."""
    if not text.strip():
        raise UsageError(
            f"a legal hold needs text as its {what}, which is kept; nothing was changed"
        )
    return text


def _instant(instant: Instant, now_ns: int) -> int | None:
    return None if instant is None else parse_as_of(instant, now_ns)


def checked_ranges(
    from_seq: int | None, to_seq: int | None, ranges: Ranges | None
) -> np.ndarray | None:
    """The ranges of a legal hold, merged; None: every sequence.

    Raises:
        UsageError: they are not ranges of sequences, or are given twice.
    """
    if ranges is None:
        if from_seq is None and to_seq is None:
            return None
        ranges = [(0 if from_seq is None else from_seq, MAX_SEQ if to_seq is None else to_seq)]
    elif from_seq is not None or to_seq is not None:
        raise UsageError("ranges and from_seq or to_seq exclude each other; nothing was changed")
    try:
        pairs = np.array(ranges)
    except ValueError:
        pairs = np.array([])
    if pairs.dtype.kind not in "iu" or pairs.shape[1:] != (len(("first", "last")),):
        raise UsageError("ranges are pairs of a lowest and a highest sequence; nothing was changed")
    if (pairs < 0).any() or (pairs > MAX_SEQ).any() or (pairs[:, 0] > pairs[:, 1]).any():
        raise UsageError(
            f"a range of sequences goes from a lowest to a highest one, from 0 to {MAX_SEQ:,}; nothing was changed"
        )
    return merged_ranges(pairs.astype(np.int64))
