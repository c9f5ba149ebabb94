"""Checks of single data files, as tasks: bytes against their digest, rows against the statistics of log and cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from retention.core.inventory import NO_RANGES, DataFile
from retention.core.seq_ranges import in_ranges
from retention.core.spoken_commands import command, given_up
from retention.core.vector_paths import vector_place
from retention.core.wording import counted
from retention.datafile.parquet import open_messages, read_columns, unreadable_error
from retention.datafile.row_stats import row_stats
from retention.datafile.subject_digest import SubjectDigest, count_subjects, digest_at
from retention.delta.vectors import read_stored
from retention.errors import DamagedError, ForeignRowsError
from retention.schemas.files import RowStats
from retention.schemas.messages import RULE_COLUMNS
from retention.storage import files
from retention.storage.digesting import digest_of_file
from retention.stores.layout import is_ours
from retention.verify.finding import Damage, Unverified


@dataclass(frozen=True)
class FileToVerify:
    """A live data file with everything that is known about it."""

    file: DataFile
    """The file, at its location, without expected statistics: they are compared one by one."""
    bytes: int
    """The length that the log has."""
    logged: Mapping[str, int | None]
    """The statistics that the log has, by name (`EXPECTED_COLUMNS`)."""
    cached: Mapping[str, Any] | None
    """The full statistics of the statistics cache, `FILE_STATS`; None: they are not cached."""
    hidden: int | None = None
    """The rows that its deletion vector hides, by the log; None: it has no vector."""
    removed: np.ndarray = field(default_factory=lambda: NO_RANGES, compare=False)
    """Sequences within its bounds that runs removed and nothing restored; ranges, shape (n, 2)."""


@dataclass(frozen=True)
class VerifyTask:
    """Files to verify together."""

    files: tuple[FileToVerify, ...]
    records: bool = False
    """Whether to record the digest of a file that has none and is otherwise intact."""

    @property
    def weight(self) -> int:
        """The bytes to read."""
        return sum(each.bytes for each in self.files)


@dataclass(frozen=True)
class VerifiedFile:
    """The result of one file."""

    path: str
    bytes: int
    """The bytes read; 0: its length was wrong."""
    damages: tuple[Damage, ...] = ()
    unverified: Unverified | None = None
    is_recorded: bool = False


class ReadFile:
    """A file whose content is read as its checks ask for it."""

    def __init__(self, wanted: FileToVerify) -> None:
        """Name the file; nothing is read yet."""
        self.wanted = wanted
        self.file = wanted.file
        self._place = digest_at(wanted.file.digest_location)

    @cached_property
    def record(self) -> SubjectDigest | None:
        """The file's record beside the table; None: it is missing or damaged."""
        return self._place.load()

    @cached_property
    def sha256(self) -> str:
        """The digest of its bytes as they are now."""
        return digest_of_file(self.file.location)

    @cached_property
    def rows(self) -> pa.Table:
        """Its narrow columns, ascending by sequence, without hidden rows."""
        return read_columns(self.file, RULE_COLUMNS)[0]

    @cached_property
    def stats(self) -> RowStats:
        """The statistics of its rows.

        Raises:
            DamagedError: it has none.
        """
        if not self.rows.num_rows:
            raise DamagedError(
                f"{self.file.location}: it has no rows; restore the file from a copy"
            )
        return row_stats(self.rows)

    def damage(self, check: str, detail: str, remedy: str = "") -> Damage:
        """A damage of the file; by default, a copy restores it."""
        return Damage(check, self.file.location, detail, remedy or restored(self.file))

    def keep_digest(self) -> bool:
        """Record the digest of the present bytes beside the file; False: it has no record, and none can be written."""
        record = self.record or SubjectDigest(count_subjects(self.rows))
        return self._place.save(replace(record, sha256=self.sha256))


def restored(file: DataFile) -> str:
    """The remedy for a damaged data file."""
    return f"restore the file from a copy{given_up(file.stream, file.path)}"


def verify_files(task: VerifyTask) -> list[VerifiedFile]:
    """Verify the files of a task, one after the other."""
    return [_verified(ReadFile(wanted), records=task.records) for wanted in task.files]


def _verified(read: ReadFile, *, records: bool) -> VerifiedFile:
    path = read.file.path
    wrong = tuple(check_size(read))
    if wrong:
        return VerifiedFile(path, 0, wrong)
    damages: list[Damage] = []
    for name, check in FILE_CHECKS:
        try:
            damages += check(read)
        except (DamagedError, ForeignRowsError) as error:
            text = str(error).partition("; ")[0]
            damages.append(read.damage(name, text.removeprefix(f"{read.file.location}: ")))
            # The checks after it would fail for the same cause.
            break
    if damages:
        # One cause shows in several checks: bytes that differ explain rows that cannot be read.
        return VerifiedFile(path, read.wanted.bytes, tuple(_by_cause(damages)))
    reason = why_unverified(read)
    if reason is None:
        return VerifiedFile(path, read.wanted.bytes)
    if records and read.keep_digest():
        return VerifiedFile(path, read.wanted.bytes, is_recorded=True)
    return VerifiedFile(path, read.wanted.bytes, (), Unverified(read.file.location, reason))


def _by_cause(damages: list[Damage]) -> list[Damage]:
    """The damages without consequences of changed bytes."""
    changed = [each for each in damages if each.check == "content"]
    return changed or damages


def why_unverified(read: ReadFile) -> str | None:
    """The reason why the bytes of a file cannot be compared; None: they are as written."""
    if read.record is not None and read.record.sha256 is not None:
        return None
    if not is_ours(read.file.path):
        return "another program wrote it, and no digest of it is recorded"
    return "no digest is recorded: an earlier release wrote it, or its record was lost"


def check_size(read: ReadFile) -> Iterator[Damage]:
    """The file exists with the length that was committed."""
    length, wanted = files.length(read.file.location), read.wanted.bytes
    if length is None:
        yield read.damage("size", "the file is missing")
    elif length != wanted:
        yield read.damage("size", f"the file has {counted(length, 'byte')} instead of {wanted:,}")


def check_content(read: ReadFile) -> Iterator[Damage]:
    """The bytes have the digest that was taken while they were written; without one, every page is decoded."""
    recorded = None if read.record is None else read.record.sha256
    if recorded is None:
        decode(read.file)
    elif read.sha256 != recorded:
        give_up = command("repair lost", read.file.stream, read.file.path, options="--yes")
        yield read.damage(
            "content",
            f"its SHA-256 is {read.sha256}, and {recorded} was written",
            f"restore the file from a copy, or move it away and give up what it held: {give_up}",
        )


def check_vector(read: ReadFile) -> Iterator[Damage]:
    """The deletion vector is as written, and hides as many rows as the log says."""
    place = vector_place(read.file.path)
    if place is None or read.wanted.hidden is None:
        return
    table = read.file.location.removesuffix(read.file.path.partition(".dv-")[0]).rstrip("/")
    dead = read_stored(files.join(table, place.path), place.offset)
    if len(dead) != read.wanted.hidden:
        hides = (
            f"its vector hides {counted(len(dead), 'row')}, and the log says {read.wanted.hidden:,}"
        )
        yield read.damage(
            "vector", hides, "restore the table's log and the vector's file from a copy"
        )


def check_sequences(read: ReadFile) -> Iterator[Damage]:
    """Each sequence occurs once in the file, and none is below the base of its segment."""
    seqs = read.rows["seq"].to_numpy()
    twice = np.flatnonzero(seqs[1:] == seqs[:-1])
    if len(twice):
        yield read.damage("sequences", f"sequence {seqs[twice[0]]} occurs in it twice")
    if len(seqs) and seqs[0] < read.file.segment:
        yield read.damage(
            "sequences", f"sequence {seqs[0]} is below {read.file.segment}, the base of its segment"
        )


def check_logged(read: ReadFile) -> Iterator[Damage]:
    """The rows have the statistics that the log has."""
    yield from _compared(
        read,
        "log",
        "the log",
        read.wanted.logged,
        "restore the table's log, or the file, from a copy",
    )


def check_cached(read: ReadFile) -> Iterator[Damage]:
    """The rows have the statistics from which passes decide."""
    cached = read.wanted.cached
    if cached is None:
        return
    known = {name: cached[name] for name in read.stats}
    yield from _compared(
        read,
        "statistics",
        "the statistics beside the table",
        known,
        "delete the stream's directory `_retention/stats`, which the next plan makes again; of a stream of "
        "`format: parquet`, restore its log from a copy",
    )


def check_record(read: ReadFile) -> Iterator[Damage]:
    """The record beside the file is intact, and counts the subjects that the rows have."""
    place = read.file.digest_location
    remedy = f"delete {place}: it is made again from the file"
    if read.record is None:
        if files.length(place) is not None:
            yield Damage("record", place, "the record of a data file cannot be read", remedy)
    elif not read.record.counts.equals(count_subjects(read.rows)):
        yield Damage("record", place, "it counts other subjects than the file has", remedy)


def check_removed(read: ReadFile) -> Iterator[Damage]:
    """No row is one that a run removed, and that nothing restored."""
    seqs = read.rows["seq"].to_numpy()
    back = seqs[in_ranges(seqs, read.wanted.removed)]
    if len(back):
        yield read.damage(
            "history",
            f"the run history says that {counted(len(back), 'message')} of it were removed, the first of them "
            f"sequence {back[0]}",
            f"restore the table from a copy, or remove them again "
            f"({command('explain', read.file.stream, str(back[0]))} has the run)",
        )


FILE_CHECKS: list[tuple[str, Callable[[ReadFile], Iterator[Damage]]]] = [
    ("content", check_content),
    ("vector", check_vector),
    ("sequences", check_sequences),
    ("log", check_logged),
    ("statistics", check_cached),
    ("record", check_record),
    ("history", check_removed),
]
"""The checks of a file of the right length, in order."""


def _compared(
    read: ReadFile, check: str, where: str, known: Mapping[str, Any], remedy: str
) -> Iterator[Damage]:
    actual: Mapping[str, Any] = {**read.stats}
    for name, value in known.items():
        if value is not None and value != actual[name]:
            yield read.damage(
                check, f"{where} says {name} {value}, and its rows have {actual[name]}", remedy
            )
            return


def decode(file: DataFile) -> None:
    """Decode every column of a file, and check the checksums of its pages.

    Raises:
        DamagedError: a page cannot be read.
    """
    opened = open_messages(file)
    try:
        for _ in opened.iter_batches():
            pass
    except (OSError, pa.ArrowException) as error:
        raise unreadable_error(file, error) from error
