"""A stream's evidence by month: a month is the union of its files, and each file with a run has the whole run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.run_names import started_ns
from retention.core.subjects import path_name
from retention.core.units import format_instant
from retention.evidence.month_file import SUFFIX, MonthFile
from retention.storage import files

Answer = TypeVar("Answer")

_NAME = re.compile(rf"(\d{{4}}-\d\d)\.[0-9a-f]+{re.escape(SUFFIX)}")
_MOST_LOOKS = 5
"""The maximum number of listings for one query; folds may replace files meanwhile."""


def evidence_directory(warehouse: str, stream: str) -> str:
    """The directory of a stream's evidence, beside its run history and kept as long."""
    return files.join(warehouse, "runs", path_name(stream), "evidence")


def month_of(run: str) -> str:
    """The month, in UTC, of a run's start according to its name, as in `2026-11`."""
    return format_instant(started_ns(run, 0))[: len("2026-11")]


def month_files(directory: str) -> dict[str, list[str]]:
    """Month → the names of its files, oldest month first."""
    months: dict[str, list[str]] = {}
    for name in files.names(directory):
        named = _NAME.fullmatch(name)
        if named is not None:
            months.setdefault(named[1], []).append(name)
    return months


class RemovalEvidence:
    """The evidence of a stream, read on demand; a query opens only the files that may answer it."""

    def __init__(self, directory: str) -> None:
        """Name the directory of a stream's evidence; nothing is read yet."""
        self._directory = directory
        self._months: dict[str, list[MonthFile]] | None = None

    def of_run(self, run: str) -> Iterator[pa.Table]:
        """The rows of a run, in the order of its record, some at a time; none if the run is unknown.

        Raises:
            DamagedError: a file is damaged.
        """
        given = 0
        for look in range(_MOST_LOOKS):
            try:
                for table in self._after(run, given):
                    given += table.num_rows
                    yield table
            except FileNotFoundError:
                # A fold replaced the file; its replacement has the same rows of this run in the same order.
                if look + 1 == _MOST_LOOKS:
                    raise
                self._months = None
            else:
                return

    def covering(self, month: str, partition: int, seq: int) -> dict[str, pa.Table]:
        """Run → its rows with a range that includes a sequence, for the runs of a month; shape `EVIDENCE`.

        Raises:
            DamagedError: a file is damaged.
        """
        return self._answered(partial(self._covering, month, partition, seq))

    def _after(self, run: str, given: int) -> Iterator[pa.Table]:
        """The rows of a run after the first `given` rows."""
        for file in self._files(month_of(run)):
            passed = 0
            for table in file.of_run(run):
                if passed + table.num_rows > given:
                    yield table.slice(max(given - passed, 0))
                passed += table.num_rows
            if passed:
                return

    def _covering(self, month: str, partition: int, seq: int) -> dict[str, pa.Table]:
        rows: dict[str, pa.Table] = {}
        for file in self._files(month):
            of_file: dict[str, list[pa.Table]] = {}
            for table in file.covering(partition, seq):
                for run in table["run"].unique().to_pylist():
                    of_file.setdefault(run, []).append(table.filter(pc.equal(table["run"], run)))
            rows = {run: pa.concat_tables(parts) for run, parts in of_file.items()} | rows
        return rows

    def _answered(self, question: Callable[[], Answer]) -> Answer:
        for _ in range(_MOST_LOOKS - 1):
            try:
                return question()
            except FileNotFoundError:
                self._months = None
        return question()

    def _files(self, month: str) -> list[MonthFile]:
        if self._months is None:
            self._months = {
                of: [MonthFile(files.join(self._directory, name)) for name in names]
                for of, names in month_files(self._directory).items()
            }
        return self._months.get(month, [])
