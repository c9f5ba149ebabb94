"""One file of evidence: Parquet in order of runs, with the digest of its footer in its name."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.errors import DamagedError, StorageError
from retention.schemas.evidence import EVIDENCE
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import first_line, is_of_storage, storage_error
from retention.storage.tables import delta_encodings, row_groups

SUFFIX = ".parquet"
MOST_ROWS = 1 << 16
"""The maximum rows of a row group; a group is read and written at once."""
_MOST_EXCEPTED = 1 << 18
"""The maximum exceptions in a row group; a single row may have more."""
_SPOOLED_BYTES = 8 << 20
_TAIL_BYTES = 8
"""The size of the tail after a Parquet footer: the footer's length and the magic bytes."""
_DIGITS = 32
_DICTIONARY = ["run", "reclaim_run", "reclaimed_ns", "partition", "rules.list.element"]
_FOUND_BY = ("run", "partition", "first_seq", "last_seq")
"""The columns with statistics, to select the row groups for a query."""


def write_month_file(
    directory: str,
    month: str,
    tables: Iterable[pa.Table],
    step: Step = Step.EVIDENCE_FOLDED,
) -> str | None:
    """Write evidence of a month under a new name, durable on return; returns its location, or None without rows.

    Args:
        directory: the stream's directory of evidence.
        month: the month, as in `2026-11`.
        tables: shape `EVIDENCE`, in order of runs, some rows at a time.
        step: the crash point after the write.
    """
    with SpooledTemporaryFile(_SPOOLED_BYTES) as spool:
        rows = _write(spool, tables)
        if not rows:
            return None
        spool.seek(0)
        length = spool.seek(0, 2)
        spool.seek(max(length - _TAIL_BYTES, 0))
        spool.seek(length - _TAIL_BYTES - _footer_length(spool.read(_TAIL_BYTES)))
        name = f"{month}.{_digest(spool.read()[:-_TAIL_BYTES])}{SUFFIX}"
        files.replace_all(directory, {name: _pieces(spool)})
        reached(step)
    return files.join(directory, name)


def _write(spool: IO[bytes], tables: Iterable[pa.Table]) -> int:
    """Write tables as Parquet; returns the number of rows."""
    rows = 0
    with pq.ParquetWriter(
        spool,
        EVIDENCE,
        compression="zstd",
        use_dictionary=_DICTIONARY,
        # Adjacent values differ little: measured, these encodings take a third less than plain ones after compression.
        column_encoding=delta_encodings(EVIDENCE, _DICTIONARY),
        write_statistics=list(_FOUND_BY),
        write_page_checksum=True,
    ) as writer:
        # No two files have the same footer, so none has the same name.
        writer.add_key_value_metadata({"retention.fold": uuid.uuid4().hex})
        pieces = (table.select(EVIDENCE.names).cast(EVIDENCE) for table in tables)
        for group in row_groups(pieces, EVIDENCE, MOST_ROWS, _MOST_EXCEPTED):
            writer.write_table(group)
            rows += group.num_rows
    return rows


def _pieces(spool: IO[bytes]) -> Iterator[bytes]:
    spool.seek(0)
    while piece := spool.read(_SPOOLED_BYTES):
        yield piece


class MonthFile:
    """An existing file of evidence; its footer is read once, and its row groups on demand."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._footer: pq.FileMetaData | None = None
        self._latest: tuple[int, pa.Table] | None = None

    def tables(self) -> Iterator[pa.Table]:
        """All rows, in order of runs; shape `EVIDENCE`.

        Raises:
            FileNotFoundError: a fold replaced the file.
            DamagedError: the file is damaged; so do all methods.
        """
        for group in range(self._metadata().num_row_groups):
            yield self._rows(group)

    def runs(self) -> set[str]:
        """The runs with rows in the file.

        Raises:
            FileNotFoundError, DamagedError: as `tables`.
        """
        groups = range(self._metadata().num_row_groups)
        return {run for at in groups for run in self._read(at, ["run"])["run"].unique().to_pylist()}

    def of_run(self, run: str) -> Iterator[pa.Table]:
        """The rows of one run, shape `EVIDENCE`; none if it is not in the file.

        Raises:
            FileNotFoundError, DamagedError: as `tables`.
        """
        for group in self._groups_with("run", "run", run):
            rows = self._rows(group)
            of_run = rows.filter(pc.equal(rows["run"], run))
            if of_run.num_rows:
                yield of_run

    def covering(self, partition: int, seq: int) -> Iterator[pa.Table]:
        """The rows with a range that includes a sequence; shape `EVIDENCE`.

        Raises:
            FileNotFoundError, DamagedError: as `tables`.
        """
        around = set(self._groups_with("first_seq", "last_seq", seq))
        for group in self._groups_with("partition", "partition", partition):
            if group not in around:
                continue
            narrow = self._read(group, ["partition", "first_seq", "last_seq"])
            inside = pc.and_(
                pc.and_(
                    pc.less_equal(narrow["first_seq"], seq),
                    pc.greater_equal(narrow["last_seq"], seq),
                ),
                pc.equal(narrow["partition"], partition),
            )
            if pc.any(inside).as_py():
                yield self._rows(group).filter(inside)

    def _groups_with(self, low: str, high: str, value: int | str) -> Iterator[int]:
        """The row groups with a value between the least `low` and the greatest `high`."""
        metadata = self._metadata()
        lows, highs = (EVIDENCE.names.index(name) for name in (low, high))
        for group in range(metadata.num_row_groups):
            columns = metadata.row_group(group)
            least, most = (columns.column(at).statistics for at in (lows, highs))
            if least.min <= value <= most.max:
                yield group

    def _metadata(self) -> pq.FileMetaData:
        if self._footer is None:
            with self._refusing_damage(), files.open_input(self.location) as source:
                self._footer = _verified_footer(source, self.location)
        return self._footer

    def _rows(self, group: int) -> pa.Table:
        """A row group; the latest one is cached, because consecutive requests for runs share it."""
        if self._latest is None or self._latest[0] != group:
            self._latest = (group, self._read(group, EVIDENCE.names).cast(EVIDENCE))
        return self._latest[1]

    def _read(self, group: int, columns: list[str]) -> pa.Table:
        metadata = self._metadata()
        with self._refusing_damage(), files.open_input(self.location) as source:
            opened = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True)
            return opened.read_row_group(group, columns)

    @contextmanager
    def _refusing_damage(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, StorageError):
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, OSError) and is_of_storage(error):
                raise storage_error(self.location, error) from error
            raise DamagedError(
                f"{self.location}: this file of evidence, the record of removed messages, is damaged "
                f"({first_line(error)}); nothing was changed; restore it from a copy, or move it away: then the "
                "messages that those runs removed are unknown"
            ) from error


def _verified_footer(source: pa.NativeFile, location: str) -> pq.FileMetaData:
    """The footer of a file, checked against its name.

    Raises:
        ValueError: the footer does not match.
    """
    length = source.size()
    source.seek(max(length - _TAIL_BYTES, 0))
    tail = source.read(_TAIL_BYTES)
    start = length - _TAIL_BYTES - _footer_length(tail)
    if start < 0:
        raise ValueError("it is truncated")
    source.seek(start)
    footer = source.read(length - _TAIL_BYTES - start)
    if location.rpartition("/")[2].split(".")[1:2] != [_digest(footer)]:
        raise ValueError("its footer is not as written")
    return pq.read_metadata(pa.BufferReader(b"PAR1" + footer + tail))


def _footer_length(tail: bytes) -> int:
    return int.from_bytes(tail[:4], "little")


def _digest(footer: bytes) -> str:
    return hashlib.sha256(footer).hexdigest()[:_DIGITS]
