"""The messages that a run removed, from its undo records, in the shape of evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from retention.apply.undo_records import find_ranges, read_record
from retention.context.context import OpenedStream
from retention.errors import RefusedError
from retention.schemas.evidence import EVIDENCE
from retention.schemas.runs import RUN_RANGES

TAKEN = pa.schema([EVIDENCE.field(name) for name in RUN_RANGES.names])
"""`RUN_RANGES`, or rows without rules, as `EVIDENCE` has for runs of earlier versions."""


@dataclass(frozen=True)
class TakenByRun:
    """The known facts about the messages that a run removed."""

    is_exact: bool
    """Whether the exact messages are known; False: only the files that the run removed and wrote are."""
    tables: Callable[[], Iterator[pa.Table]]
    """Reads the rows, some at a time; shape `TAKEN`."""


def recorded(opened: OpenedStream, run: str) -> TakenByRun | None:
    """The messages that a run removed, by its records; None: the records are gone.

    Raises:
        DamagedError: a record differs from what was written.
    """
    ranges = find_ranges(opened, run)
    if ranges is not None:
        return TakenByRun(is_exact=True, tables=ranges.tables)
    with suppress(RefusedError):
        removed = read_record(opened, run, "removed")
        return TakenByRun(is_exact=False, tables=partial(_of_files, opened, run, removed))
    return None


def _of_files(opened: OpenedStream, run: str, removed: pa.Table) -> Iterator[pa.Table]:
    """The files that a run of an earlier version removed, and, with negative numbers, those that it wrote."""
    files = [_signed(removed, 1)]
    with suppress(RefusedError):
        files.append(_signed(read_record(opened, run, "added"), -1))
    yield pa.concat_tables(files)


def _signed(files: pa.Table, sign: int) -> pa.Table:
    nothing = pa.array([[]] * files.num_rows, pa.list_(pa.int64()))
    columns = {
        **{name: files[name] for name in ("path", "partition", "segment")},
        "first_seq": files["min_seq"],
        "last_seq": files["max_seq"],
        **{name: pc.multiply(files[name], sign) for name in ("messages", "bytes")},
        "rules": pa.nulls(files.num_rows, pa.list_(pa.string())),
        **dict.fromkeys(("counts", "except_firsts", "except_lasts"), nothing),
    }
    return pa.table(columns).cast(TAKEN)
