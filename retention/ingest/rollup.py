"""Roll-ups (`Nats-Rollup`): the messages of the batch and of the stream that a batch's roll-ups replace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.core import headers
from retention.core.inventory import DataFile
from retention.core.neighbours import runs_within
from retention.datafile.parquet import read_columns
from retention.datafile.rewrite import RewriteTask, copy_remaining
from retention.datafile.segment_writer import Removal, Staging
from retention.datafile.subject_digest import MESSAGES_AT_ONCE
from retention.errors import VerificationError
from retention.ports import Store
from retention.rules import ROLLUP

NONE, SUBJECT, EVERYTHING = range(3)
"""The roll-up that a message requests: none, or one that replaces all older messages of its subject or of the stream.
"""
_COLUMNS = ("seq", "subject")
_LOST = pa.schema([pa.field("file", pa.int64()), pa.field("messages", pa.int64())])


@dataclass(frozen=True)
class RolledUp:
    """Everything that the roll-ups of a batch replace together; only this is carried out."""

    superseded: np.ndarray
    """bool: messages of the batch that a later one in it replaces; they are never written."""
    subjects: pa.Array
    """string: the subjects whose stored messages are all removed."""
    everything: bool
    """Whether all stored messages are removed."""

    @classmethod
    def of(cls, subjects: pa.ChunkedArray, kinds: np.ndarray) -> RolledUp:
        """Combine the roll-ups of messages in order.

        Subjects a, b, a with the kinds `NONE`, `NONE`, `SUBJECT`: the third replaces the first, and all stored messages
        on a.

        Args:
            subjects: each message's subject, as it is stored.
            kinds: the roll-up that each requests; `NONE` also for a message that is not stored.
        """
        encoded = subjects.combine_chunks().dictionary_encode()
        codes, rows = encoded.indices.to_numpy(), np.arange(len(kinds))
        asking = np.flatnonzero(kinds == SUBJECT)
        last = np.full(len(encoded.dictionary), -1)
        np.maximum.at(last, codes[asking], asking)
        everywhere = np.flatnonzero(kinds == EVERYTHING)
        replaced = (rows < last[codes]) | (rows < everywhere.max(initial=-1))
        named = encoded.dictionary.filter(pa.array(last >= 0))
        return cls(replaced, named, bool(len(everywhere)))


def asks_to_roll_up(blocks: pa.ChunkedArray) -> bool:
    """Whether one of some header blocks requests a roll-up."""
    return bool(pc.any(pc.match_substring(blocks, f"\r\n{headers.ROLLUP}:")).as_py())


def remove_older(
    store: Store, files: pa.Table, rolled_up: RolledUp, staging: Staging, run: tuple[str, int]
) -> Removal | None:
    """Stage copies of a stream's files without the replaced messages; None: nothing is replaced.

    Args:
        store: the stream's table.
        files: its files, shape `FILE_STATS`.
        rolled_up: the replaced messages.
        staging: where copies are written.
        run: the name and the instant under which the removal is recorded.

    Raises:
        DamagedError: a file that loses some of its messages cannot be read.
        VerificationError: a copy differs from the expected remainder; nothing was committed.
    """
    if not rolled_up.everything and not len(rolled_up.subjects):
        return None
    touched, copies, going = files, list[dict[str, Any]](), dict[str, np.ndarray]()
    if not rolled_up.everything:
        touched, lost = _losses(store, files, rolled_up.subjects)
        rewritten = touched.filter(pc.less(lost, touched["messages"]))
        sources = zip(store.data_files(rewritten), rewritten["messages"].to_pylist(), strict=True)
        for source, messages in sources:
            copy, going[source.path] = _copied(source, messages, rolled_up.subjects, staging)
            copies.append(copy)
    return Removal(*run, ROLLUP, touched, copies, going) if touched.num_rows else None


def _losses(store: Store, files: pa.Table, subjects: pa.Array) -> tuple[pa.Table, pa.ChunkedArray]:
    """The files that hold messages on some subjects, and their number in each."""
    tables = [_LOST.empty_table()]
    for first, end in runs_within(files["messages"].to_pylist(), MESSAGES_AT_ONCE):
        counts = store.subject_counts(files.slice(first, end - first))
        counts = counts.filter(pc.is_in(counts["subject"], value_set=subjects))
        lost = counts.group_by("file").aggregate([("messages", "sum")]).sort_by("file")
        tables.append(pa.table([pc.add(lost["file"], first), lost["messages_sum"]], schema=_LOST))
    lost = pa.concat_tables(tables)
    return files.take(lost["file"]), lost["messages"]


def _copied(
    source: DataFile, messages: int, subjects: pa.Array, staging: Staging
) -> tuple[dict[str, Any], np.ndarray]:
    """Copy a file without the messages on some subjects; the copy's row of `FILE_STATS`, and the removed ranges."""
    rows, _ = read_columns(source, (*_COLUMNS, "size"))
    goes = pc.is_in(rows["subject"], value_set=subjects)
    ranges = np.array(list(_ranges(rows.filter(goes)["seq"].to_numpy())))
    left = rows.filter(pc.invert(goes))
    [copy] = copy_remaining(RewriteTask(source, (staging.copy_of(source),), ranges)).stats
    expected = {"messages": left.num_rows, "bytes": pc.sum(left["size"]).as_py()}
    if rows.num_rows != messages or any(copy[name] != number for name, number in expected.items()):
        raise VerificationError(
            f"{source.location}: the copy without what a roll-up replaces holds {copy['messages']:,} messages, "
            f"{left.num_rows:,} of {messages:,} should be left; nothing was published; restore the file from a copy"
        )
    return copy, ranges


def _ranges(seqs: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ascending sequences as first and last of each run of neighbours: [3 4 5 9] → (3, 5), (9, 9)."""
    ends = np.flatnonzero(np.diff(seqs) != 1)
    firsts, lasts = np.append(0, ends + 1), np.append(ends, len(seqs) - 1)
    yield from zip(seqs[firsts].tolist(), seqs[lasts].tolist(), strict=True)
