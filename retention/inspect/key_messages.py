"""Messages of keys as visible to a reader at an instant, found by digests and read from their files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from retention.context.digest_index import DigestIndex
from retention.core.inventory import DataFile
from retention.core.subjects import matching_mask
from retention.datafile.parquet import read_columns
from retention.inspect.latest import last_seqs, pick_latest
from retention.inspect.messages import columns_in_order
from retention.ports import Store
from retention.rules.jetstream.key_view import KeyView
from retention.schemas.messages import FILE_COLUMNS

_NARROW = ("seq", "subject", "ts_ns", "deadline_ns")
_ROWS = pa.schema([FILE_COLUMNS.field(name) for name in _NARROW])


@dataclass(frozen=True)
class KeyMessages:
    """The messages of single keys at one version of a stream; reads are lazy."""

    store: Store
    files: pa.Table
    """The files of the inventory, shape `FILE_STATS`."""
    view: KeyView
    index: DigestIndex = field(default_factory=DigestIndex)

    def last(self, subject: str, columns: Sequence[str]) -> pa.Table:
        """The last visible message on a subject; an empty table if there is none.

        Args:
            subject: not a filter.
            columns: of `FILE_COLUMNS`.

        Raises:
            DamagedError: a required file is damaged.
        """
        counts = self._counts(subject)
        newest = self._picked(counts.slice(0, 1), counts["last_seq"][:1], columns)
        if not newest.num_rows or not self.view.expired(newest)[0]:
            return newest.select(columns)
        # An expired message may uncover an older one.
        shown = self._shown(counts, subject)
        return self._picked(counts, shown["seq"][-1:], columns).select(columns)

    def history(self, subject: str, columns: Sequence[str]) -> pa.Table:
        """The visible messages on a subject, ascending by sequence.

        Raises:
            DamagedError: a required file is damaged.
        """
        counts = self._counts(subject)
        return self._picked(counts, self._shown(counts, subject)["seq"], columns).select(columns)

    def last_seqs(self, filters: Collection[str]) -> np.ndarray:
        """The sequence of the last visible message of each subject that a filter matches, ascending.

        Raises:
            DamagedError: a required file is damaged.
        """
        return self._instead_of_expired(last_seqs(self.store, self.files, filters))

    def shown_seqs(self, filters: Collection[str]) -> np.ndarray:
        """The sequences of all visible messages on subjects that a filter matches, ascending.

        Raises:
            DamagedError: a required file is damaged.
        """
        rows = self._narrow(self.files, filters, 0)
        shown: np.ndarray = rows["seq"].to_numpy()[self.view.shown(rows)]
        return shown

    def seqs_after(self, seq: int, filters: Collection[str]) -> np.ndarray:
        """The sequences of unexpired messages after a given sequence, including messages replaced since.

        Raises:
            DamagedError: a required file is damaged.
        """
        newer = self.files.filter(pc.greater(self.files["max_seq"], seq))
        rows = self._narrow(newer, filters, seq)
        left: np.ndarray = rows["seq"].to_numpy()[~self.view.expired(rows)]
        return left

    def rows_at(self, seqs: np.ndarray, columns: Sequence[str]) -> Iterator[pa.Table]:
        """The rows with these ascending sequences, in order, one table per span of files that has some.

        Raises:
            DamagedError: a required file is damaged.
        """
        return pick_latest(self.store, self.files, seqs, columns)

    def _narrow(self, files: pa.Table, filters: Collection[str], after: int) -> pa.Table:
        """Narrow rows after a sequence, on subjects that a filter matches, in order."""
        parts = [_ROWS.empty_table()]
        for rows in columns_in_order(self.store, files, _NARROW):
            wanted = pc.and_(
                matching_mask(rows["subject"], filters), pc.greater(rows["seq"], after)
            )
            parts.append(rows.filter(wanted).cast(_ROWS))
        return pa.concat_tables(parts)

    def _instead_of_expired(self, seqs: np.ndarray) -> np.ndarray:
        """The last sequences of subjects; an expired one is replaced by the one that it uncovers, if any."""
        old = self.files.filter(pa.array(self.view.may_expire(self.files)))
        if not old.num_rows:
            return seqs
        tables = pick_latest(self.store, old, seqs, _NARROW)
        over = pa.concat_tables(
            [
                _ROWS.empty_table(),
                *(rows.filter(pa.array(self.view.expired(rows))).cast(_ROWS) for rows in tables),
            ]
        )
        seqs = np.setdiff1d(seqs, over["seq"].to_numpy())
        if self.view.keep_last == 1 or not over.num_rows:
            return seqs
        uncovered = shown_last_seqs(
            self.store, self.files, self.view, pc.unique(over["subject"]).to_pylist(), self.index
        )
        return np.union1d(seqs, np.fromiter(uncovered.values(), np.int64))

    def _counts(self, subject: str) -> pa.Table:
        """The digests' rows of a subject, the file with its newest message first."""
        counts = self.index.counts_of(self.store, self.files, [subject])
        return counts.sort_by([("last_seq", "descending")])

    def _shown(self, counts: pa.Table, subject: str) -> pa.Table:
        """Narrow rows of the visible messages on a subject, from only the files that can have one."""
        keep, parts = self.view.keep_last, [_ROWS.empty_table()]
        for number, highest in zip(
            *(counts[name].to_pylist() for name in ("file", "last_seq")), strict=True
        ):
            newest = np.sort(pa.concat_tables(parts)["seq"].to_numpy())[::-1]
            if keep is not None and len(newest) >= keep and newest[keep - 1] > highest:
                break
            parts.append(_rows_of(self._opened([number])[0], pa.array([subject])))
        rows = pa.concat_tables(parts).sort_by("seq")
        return rows.filter(pa.array(self.view.shown(rows)))

    def _picked(self, counts: pa.Table, seqs: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table:
        """The rows with some sequences, ascending, and the columns that a view needs besides the requested ones."""
        names = [*columns, *(name for name in _NARROW if name not in columns)]
        files = self.files.take(counts["file"].combine_chunks().sort())
        picked = pick_latest(self.store, files, np.sort(seqs.to_numpy()), names)
        return pa.concat_tables([_shape(names).empty_table(), *picked])

    def _opened(self, numbers: Sequence[int]) -> list[DataFile]:
        return self.store.data_files(self.files.take(pa.array(numbers, pa.int64())))


def shown_last_seqs(
    store: Store,
    files: pa.Table,
    view: KeyView | None,
    wanted: Collection[str],
    index: DigestIndex,
) -> dict[str, int]:
    """Subject → the sequence of its last message, of the subjects that match one of some filters.

    Args:
        store: the stream's table.
        files: its files, shape `FILE_STATS`.
        view: the messages that count; None: all stored messages.
        wanted: filters, with `*` for one token and a last `>` for one or more.
        index: the digests of the files, as far as they are cached.

    Raises:
        DamagedError: a required file is damaged.
    """
    counts = index.counts_of(store, files, wanted).combine_chunks()
    last = _last_of(counts, "last_seq")
    if view is None:
        return last
    doubtful = counts.filter(pa.array(view.may_expire(files)[counts["file"].to_numpy()]))
    last_of_each = pa.array(
        [last[subject] for subject in doubtful["subject"].to_pylist()], pa.int64()
    )
    subjects = pc.unique(doubtful.filter(pc.equal(doubtful["last_seq"], last_of_each))["subject"])
    if not len(subjects):
        return last
    concerned = counts.filter(pc.is_in(counts["subject"], value_set=subjects))
    opened = store.data_files(files.take(pc.unique(concerned["file"])))
    rows = pa.concat_tables([_ROWS.empty_table(), *(_rows_of(file, subjects) for file in opened)])
    rows = rows.sort_by("seq")
    left = _last_of(rows.filter(pa.array(view.shown(rows))), "seq")
    unseen = set(subjects.to_pylist()) - left.keys()
    return {subject: seq for subject, seq in (last | left).items() if subject not in unseen}


def _last_of(rows: pa.Table, column: str) -> dict[str, int]:
    last = rows.group_by("subject").aggregate([(column, "max")])
    return dict(zip(last["subject"].to_pylist(), last[f"{column}_max"].to_pylist(), strict=True))


def _rows_of(file: DataFile, subjects: pa.Array) -> pa.Table:
    """Narrow rows of some subjects in a file."""
    rows, _ = read_columns(file, _NARROW)
    return rows.filter(pc.is_in(rows["subject"], value_set=subjects)).cast(_ROWS)


def _shape(names: Sequence[str]) -> pa.Schema:
    return pa.schema([FILE_COLUMNS.field(name).with_nullable(nullable=True) for name in names])
