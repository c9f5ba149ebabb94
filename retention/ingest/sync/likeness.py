"""The comparison of messages that a stream holds with those of its server: whether they are of one origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from retention.context.context import OpenedStream
from retention.inspect.latest import pick_latest

if TYPE_CHECKING:
    from retention.nats.stream import RemoteStream

SAMPLES = 8
"""The most messages that are compared if the server's stream may be another one."""
_COLUMNS = ("seq", "subject", "ts_ns", "headers", "payload")


@dataclass(frozen=True)
class Likeness:
    """The outcome of a comparison; messages that only one side still holds do not count."""

    equal: int
    differing: int | None = None
    """The sequence of a message that differs; None: none does."""


def likeness_of(opened: OpenedStream, files: pa.Table, remote: RemoteStream, most: int) -> Likeness:
    """Compare the newest message of a stream, and others spread over its files, with the server's.

    Args:
        opened: the stream.
        files: its files, shape `FILE_STATS`.
        remote: the server's stream.
        most: the most messages to compare, at least 1.
    """
    equal = 0
    for row in _samples(opened, files, most):
        theirs = remote.message(row["seq"])
        if theirs is None:
            continue
        ours = (row["subject"], row["ts_ns"], row["headers"] or b"", row["payload"] or b"")
        if ours != (theirs.subject, theirs.ts_ns, theirs.headers or b"", theirs.payload):
            return Likeness(equal, row["seq"])
        equal += 1
    return Likeness(equal)


def _samples(opened: OpenedStream, files: pa.Table, most: int) -> Iterator[dict[str, Any]]:
    """The last messages of some files, the newest file among them, ascending; one span is in memory at a time."""
    newest_first = np.unique(files["max_seq"].to_numpy())[::-1]
    places = np.linspace(0, max(len(newest_first) - 1, 0), most).astype(int)
    wanted = np.unique(newest_first[places[: len(newest_first)]])
    for rows in pick_latest(opened.store, files, wanted, _COLUMNS):
        yield from rows.to_pylist()
