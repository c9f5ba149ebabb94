"""The records on which the account of a run rests: their locations, and the digests of their content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from retention.context.context import OpenedStream
from retention.context.run_files import RANGES, undo_location
from retention.evidence.months import evidence_directory, month_files, month_of
from retention.history.runs import History, history_of
from retention.storage import files
from retention.tables.evidence import evidence_location
from retention.tables.opened import OpenedTable
from retention.tables.records import location_of


@dataclass(frozen=True)
class BasisFile:
    """A file that a run's account rests on."""

    location: str
    sha256: str
    """The digest of its bytes, in hexadecimal."""


@dataclass(frozen=True)
class RunBasis:
    """The records of one run."""

    policy: Mapping[str, Any] | None
    """The policy at that time, as the record has it; None: the run applied none."""
    files: tuple[BasisFile, ...]


def basis_of(opened: OpenedStream, run: str) -> RunBasis:
    """The records of a run of a stream: intent, outcome, and the ranges that it removed or their month of evidence.

    Raises:
        DamagedError: its record differs from what was written.
    """
    directory = evidence_directory(opened.warehouse, opened.name)
    months = month_files(directory).get(month_of(run), [])
    ranges = undo_location(opened, run, RANGES)
    evidence = [files.join(directory, name) for name in months]
    return _basis(history_of(opened.warehouse, opened.name), run, [ranges], evidence)


def basis_of_table(table: OpenedTable, run: str) -> RunBasis:
    """The records of a run on a table: intent, outcome, the changed files, and the evidence of their rows.

    Raises:
        DamagedError: its record differs from what was written.
    """
    return _basis(table.history, run, [location_of(table, run), evidence_location(table, run)], [])


def _basis(
    history: History, run: str, recorded: Iterable[str], otherwise: Iterable[str]
) -> RunBasis:
    """The records of a run, with those of `otherwise` if none of `recorded` is there."""
    record = history.done(run) or history.begun(run)
    digests = [*_digests(history.begun_location(run), history.done_location(run))]
    digests += [*_digests(*recorded)] or [*_digests(*otherwise)]
    return RunBasis(None if record is None else record.policy, tuple(digests))


def _digests(*locations: str) -> Iterable[BasisFile]:
    for location in locations:
        content = files.read_bytes(location)
        if content is not None:
            yield BasisFile(location, hashlib.sha256(content).hexdigest())
