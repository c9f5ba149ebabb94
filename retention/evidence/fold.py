"""Folds of runs into the evidence of their months; the new file is complete before the old ones are deleted.

A month's evidence is the union of its files, and each file with a run has the whole run. So a fold that is killed
between its two steps leaves a run in two files, which is read once; the next fold of that month merges them. A rival
that was paused until its lease expired deletes only files whose rows are in the file that it wrote.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import itemgetter

import numpy as np
import pyarrow as pa

from retention.errors import BusyError
from retention.evidence.month_file import MonthFile, write_month_file
from retention.evidence.months import month_files, month_of
from retention.storage import files
from retention.storage.crash_points import Step, reached

Tables = Callable[[], Iterable[pa.Table]]
"""A function that returns the rows of a run, shape `EVIDENCE`, some at a time."""

_PREPARED = "prepared"
"""The name used in place of a month."""
_MOST_REWRITTEN = 256 << 20
"""The maximum length of a file that a fold of its month rewrites; a longer one remains beside newer ones."""


def fold_evidence(directory: str, runs: Mapping[str, Tables]) -> None:
    """Add runs to the evidence of a stream, durable on return; runs that it has already are unchanged.

    Args:
        directory: the directory of the stream's evidence; the caller holds the stream's maintenance lease.
        runs: run → its rows; a run without rows adds nothing.

    Raises:
        BusyError: another reclaim folds the same month; the runs of both are kept.
        DamagedError: an evidence file to rewrite is damaged; it is not changed.
    """
    listed = month_files(directory)
    for month in sorted({month_of(run) for run in runs}):
        new = _some(runs[run]() for run in sorted(runs) if month_of(run) == month)
        if new is not None:
            _rewrite(directory, month, _short(directory, listed.get(month, [])), new)


class Prepared:
    """Evidence of runs with files that a reclaim is about to delete; a killed reclaim leaves it to the next one.

    Only a fold reads it: until then, the records of those runs exist.
    """

    def __init__(self, directory: str) -> None:
        """Find the prepared files in `directory`, the directory of the stream's evidence."""
        self._directory = directory
        names = (name for name in files.names(directory) if name.startswith(f"{_PREPARED}."))
        self._files = [MonthFile(files.join(directory, name)) for name in names]

    def runs(self) -> set[str]:
        """The prepared runs.

        Raises:
            DamagedError: a file is damaged; so do all methods.
        """
        return {run for file in self._files for run in file.runs()}

    def add(self, runs: Iterable[Iterable[pa.Table]]) -> None:
        """Write the rows of runs, in order of runs; durable on return.

        Raises:
            StorageError: the storage failed.
        """
        tables = _some(runs)
        if tables is not None:
            write_month_file(self._directory, _PREPARED, tables, Step.EVIDENCE_PREPARED)

    def of_run(self, run: str) -> Iterator[pa.Table]:
        """The rows of a prepared run, some at a time.

        Raises:
            DamagedError: as `runs`.
        """
        file = next(file for file in self._files if run in file.runs())
        return file.of_run(run)

    def drop(self, folded: set[str]) -> None:
        """Delete the files with only folded runs."""
        spent = [file.location for file in self._files if folded >= file.runs()]
        files.delete(spent)
        reached(Step.EVIDENCE_REPLACED)


def forget_evidence(directory: str, runs: Collection[str]) -> None:
    """Delete the rows of runs from the evidence of a stream, because their history is deleted.

    Raises:
        BusyError, DamagedError: as `fold_evidence`.
    """
    listed, leaving = month_files(directory), frozenset(runs)
    for month in sorted({month_of(run) for run in runs}.intersection(listed)):
        places = [files.join(directory, name) for name in listed[month]]
        having = [place for place in places if not leaving.isdisjoint(MonthFile(place).runs())]
        if having:
            together = dict.fromkeys([*_short(directory, listed[month]), *having])
            _rewrite(directory, month, [*together], iter(()), leaving)


def _short(directory: str, names: Sequence[str]) -> list[str]:
    """The locations of the existing files that are short enough to be rewritten."""
    places = [files.join(directory, name) for name in names]
    return [
        place
        for place, length in zip(places, files.lengths(places), strict=True)
        if length is not None and length <= _MOST_REWRITTEN
    ]


def _rewrite(
    directory: str,
    month: str,
    places: list[str],
    new: Iterator[pa.Table],
    leaving: Collection[str] = (),
) -> None:
    """Replace several files with one that has their rows and new ones, without the runs in `leaving`."""
    tables = _merged([*(MonthFile(place).tables() for place in places), new], leaving)
    try:
        write_month_file(directory, month, tables)
    except FileNotFoundError as error:
        raise BusyError(
            f"{directory}: another reclaim has folded the evidence of {month} meanwhile; nothing is lost; try again"
        ) from error
    files.delete(places)
    reached(Step.EVIDENCE_REPLACED)


def _some(runs: Iterable[Iterable[pa.Table]]) -> Iterator[pa.Table] | None:
    """The rows of runs, one run after the other; None if there are none."""
    tables = (table for run in runs for table in run if table.num_rows)
    first = next(tables, None)
    return None if first is None else chain([first], tables)


def _merged(sources: list[Iterator[pa.Table]], leaving: Collection[str]) -> Iterator[pa.Table]:
    """Rows of several sources, each in order of runs, merged in that order; the first source with a run provides it."""
    pieces = (_pieces(tables, source) for source, tables in enumerate(sources))
    latest, giver = "", -1
    for run, source, piece in heapq.merge(*pieces, key=itemgetter(0, 1)):
        if run != latest:
            latest, giver = run, source
        if source == giver and run not in leaving:
            yield piece


def _pieces(tables: Iterable[pa.Table], source: int) -> Iterator[tuple[str, int, pa.Table]]:
    """The rows of a source, cut at run boundaries."""
    for table in tables:
        runs = table["run"].combine_chunks().dictionary_encode()
        codes = runs.indices.to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for start, end in pairwise(bounds):
            yield (
                runs.dictionary[int(codes[start])].as_py(),
                source,
                table.slice(start, end - start),
            )
