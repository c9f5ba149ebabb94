"""The messages of keys visible to a reader at an instant: those that a pass at that instant would keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core.policy import Policy
from retention.core.spans import Array
from retention.rules.jetstream.max_age import EachOld
from retention.rules.jetstream.msg_ttl import Passed
from retention.schemas.deadlines import NEVER


@dataclass(frozen=True)
class KeyView:
    """A policy's limit per key and its expiry, at an instant (docs/buckets.md).

    The view does not depend on past passes, except for their delete markers. Age hides each old message, anywhere.
    """

    keep_last: int | None
    """The maximum number of messages of a key; None: unlimited."""
    cutoff_ns: int | None
    """The latest time of an expired message, nanoseconds since the epoch; None: age is unlimited."""
    due_ns: int | None
    """The latest passed deadline, nanoseconds since the epoch; None: messages have no deadlines."""

    @classmethod
    def of(cls, policy: Policy, now_ns: int) -> Self:
        """The view under a policy at an instant, nanoseconds since the epoch."""
        cutoff_ns = None if policy.max_age_ns is None else now_ns - policy.max_age_ns
        due_ns = now_ns if policy.allow_msg_ttl else None
        return cls(policy.max_msgs_per_subject, cutoff_ns, due_ns)

    def shown(self, rows: pa.Table) -> Array:
        """Mask the visible messages: the limit of a key hides its oldest messages first, then time hides due ones.

        A limit of 2 messages and of one minute:

            seq      1     2     3     4
            key      a     a     b     a
            age      70s   65s   5s    1s
            shown    -     -     yes   yes

        Args:
            rows: all messages of some keys, ascending by `seq`: `seq`, `subject`, `ts_ns`, `deadline_ns`.
        """
        shown = np.ones(rows.num_rows, dtype=bool)
        if self.keep_last is not None:
            shown &= _newest(rows["subject"], self.keep_last)
        return shown & ~self.expired(rows)

    def expired(self, rows: pa.Table) -> Array:
        """Mask the expired messages; columns `ts_ns`, `deadline_ns`."""
        over = np.zeros(rows.num_rows, dtype=bool)
        if self.cutoff_ns is not None:
            over |= EachOld(self.cutoff_ns).takes(rows)
        if self.due_ns is not None:
            over |= Passed(self.due_ns).takes(rows)
        return over

    def may_expire(self, files: pa.Table) -> Array:
        """Mask the files, shape `FILE_STATS`, that may have an expired message."""
        some = np.zeros(files.num_rows, dtype=bool)
        if self.cutoff_ns is not None:
            some |= files["min_ts_ns"].to_numpy() <= self.cutoff_ns
        if self.due_ns is not None:
            some |= pc.fill_null(files["min_deadline_ns"], NEVER).to_numpy() <= self.due_ns
        return some


def _newest(keys: pa.ChunkedArray, count: int) -> Array:
    """A mask of the last `count` rows of each key."""
    codes = keys.combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(codes[order])) + 1, len(codes))
    behind = np.repeat(ends, np.diff(ends, prepend=0)) - np.arange(len(codes))
    newest = np.empty(len(codes), dtype=bool)
    newest[order] = behind <= count
    return newest
