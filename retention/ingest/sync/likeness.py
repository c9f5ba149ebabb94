"""The comparison of messages that a stream holds with those of its server: whether they are of one origin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.context import OpenedStream
from retention.datafile.parquet import read_columns
from retention.inspect.latest import pick_latest

if TYPE_CHECKING:
    from retention.nats.stream import RemoteStream, StreamInfo

SAMPLES = 8
"""The most messages that are compared if the server's stream may be another one."""
_COLUMNS = ("seq", "subject", "ts_ns", "headers", "payload")


@dataclass(frozen=True)
class Likeness:
    """The outcome of a comparison; messages that only one side still holds do not count."""

    equal: int
    differing: int | None = None
    """The sequence of a message that differs; None: none does."""


def likeness_of(
    opened: OpenedStream, files: pa.Table, remote: RemoteStream, info: StreamInfo, most: int
) -> Likeness:
    """Compare the newest message of a stream, and others that the server may still have, with the server's.

    Args:
        opened: the stream.
        files: its files, shape `FILE_STATS`.
        remote: the server's stream.
        info: its state.
        most: about how many messages to compare, at least 1.
    """
    equal = 0
    wanted = _sampled(
        opened, files.filter(pc.greater_equal(files["max_seq"], info.first_seq)), most
    )
    for row in _rows(opened, files, wanted[wanted >= info.first_seq]):
        theirs = remote.message(row["seq"])
        if theirs is None:
            continue
        ours = (row["subject"], row["ts_ns"], row["headers"] or b"", row["payload"] or b"")
        if ours != (theirs.subject, theirs.ts_ns, theirs.headers or b"", theirs.payload):
            return Likeness(equal, row["seq"])
        equal += 1
    return Likeness(equal)


def _sampled(opened: OpenedStream, files: pa.Table, most: int) -> np.ndarray:
    """About `most` ascending sequences of messages in files: the newest one, and others spread over all files."""
    if most == 1 or not files.num_rows:
        return np.unique(files["max_seq"].to_numpy())[-most:]
    ordered = files.sort_by([("max_seq", "descending")])
    some = ordered.take(pa.array(_spread(ordered.num_rows, most)))
    each = -(-most // some.num_rows)
    seqs = [
        np.sort(read_columns(file, ("seq",))[0]["seq"].to_numpy())[::-1]
        for file in opened.store.data_files(some)
    ]
    return np.unique(np.concatenate([inside[_spread(len(inside), each)] for inside in seqs]))


def _spread(length: int, most: int) -> np.ndarray:
    """At most `most` distinct places in a sequence of some length, the first among them.

    >>> _spread(10, 4).tolist(), _spread(2, 4).tolist()
    ([0, 3, 6, 9], [0, 1])
    """
    return np.unique(np.linspace(0, length - 1, min(most, length)).astype(int))


def _rows(opened: OpenedStream, files: pa.Table, seqs: np.ndarray) -> Iterator[dict[str, Any]]:
    """The messages with these sequences, ascending; those of one span of files are in memory at a time."""
    for rows in pick_latest(opened.store, files, seqs, _COLUMNS):
        yield from rows.to_pylist()
