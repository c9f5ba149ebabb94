"""Folding runs into the evidence of their months: the new file is written whole before the old ones are deleted.

A month's evidence is the union of its files, and a run lies whole in each file that has it. So a fold that is killed
between its two steps leaves a run in two places, which is read once; the next fold of that month makes one file of
them. A rival that stood still while its lease ran out deletes only files whose rows are in the file that it wrote.
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
"""Gives the rows of a run, shape `EVIDENCE`, some at a time."""

_PREPARED = "prepared"
"""The name that stands in the place of a month."""
_MOST_REWRITTEN = 256 << 20
"""The length of a file up to which a fold of its month writes its rows again; a longer one stays, beside newer ones."""


def fold_evidence(directory: str, runs: Mapping[str, Tables]) -> None:
    """Add runs to the evidence of a stream; durable when this returns. A run that is there already stays as it is.

    Args:
        directory: that of the stream's evidence; the stream's maintenance lease is held.
        runs: run → its rows; a run without any adds nothing.

    Raises:
        BusyError: another reclaim folds the same month; what it and this one were given stays.
        DamagedError: a file of evidence that is to be written anew is not what was written; it stays as it is.
    """
    listed = month_files(directory)
    for month in sorted({month_of(run) for run in runs}):
        new = _some(runs[run]() for run in sorted(runs) if month_of(run) == month)
        if new is not None:
            _rewrite(directory, month, _short(directory, listed.get(month, [])), new)


class Prepared:
    """Evidence of runs whose files a reclaim is about to delete; a kill leaves it to the next one.

    Nothing but a fold reads it: until then the records of those runs are there.
    """

    def __init__(self, directory: str) -> None:
        """Look at what is there; `directory` is that of the stream's evidence."""
        self._directory = directory
        names = (name for name in files.names(directory) if name.startswith(f"{_PREPARED}."))
        self._files = [MonthFile(files.join(directory, name)) for name in names]

    def runs(self) -> set[str]:
        """The runs that are prepared.

        Raises:
            DamagedError: a file is not what was written; so do all methods.
        """
        return {run for file in self._files for run in file.runs()}

    def add(self, runs: Iterable[Iterable[pa.Table]]) -> None:
        """Write the rows of runs, in order of runs; durable when this returns.

        Raises:
            StorageError: the storage failed.
        """
        tables = _some(runs)
        if tables is not None:
            write_month_file(self._directory, _PREPARED, tables, Step.EVIDENCE_PREPARED)

    def of_run(self, run: str) -> Iterator[pa.Table]:
        """The rows of a run that is prepared, some at a time.

        Raises:
            DamagedError: as `runs`.
        """
        file = next(file for file in self._files if run in file.runs())
        return file.of_run(run)

    def drop(self, folded: set[str]) -> None:
        """Delete the files of which every run is folded."""
        spent = [file.location for file in self._files if folded >= file.runs()]
        files.delete(spent)
        reached(Step.EVIDENCE_REPLACED)


def forget_evidence(directory: str, runs: Collection[str]) -> None:
    """Delete the rows of runs from the evidence of a stream, because the run history forgets them.

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
    """The locations of the files that are there and not too long to be written again."""
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
    """Put one file with the rows of several and with new ones in their place, without the runs that leave."""
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
    """The rows of runs, one after the other; None: there are none."""
    tables = (table for run in runs for table in run if table.num_rows)
    first = next(tables, None)
    return None if first is None else chain([first], tables)


def _merged(sources: list[Iterator[pa.Table]], leaving: Collection[str]) -> Iterator[pa.Table]:
    """Rows of several sources, each in order of runs, in order of runs; the first source that has a run gives it."""
    pieces = (_pieces(tables, source) for source, tables in enumerate(sources))
    latest, giver = "", -1
    for run, source, piece in heapq.merge(*pieces, key=itemgetter(0, 1)):
        if run != latest:
            latest, giver = run, source
        if source == giver and run not in leaving:
            yield piece


def _pieces(tables: Iterable[pa.Table], source: int) -> Iterator[tuple[str, int, pa.Table]]:
    """The rows of a source, cut where another run begins."""
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
