"""Answers of tasks: large results are stored in files, if the location is writable."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow as pa
import pytest

from retention.core.read_count import ReadCount
from retention.plan.remaining import InventoryRow, StoredDigest, digest_in
from retention.planners.interest import InterestAnswer
from retention.planners.probe import ResultSpill
from retention.rules.row_verdicts import Answer
from retention.schemas.files import SUBJECT_COUNTS
from retention.schemas.plan import REMOVED_RANGES
from retention.storage import scratch_files
from retention.storage.errors import storage_error

RANGES = pa.table(
    {"file": [3, 3], "rule": [2, 2], "first_seq": [5, 8], "last_seq": [6, 8]}
    | {"messages": [2, 1], "bytes": [20, 10]}
).cast(REMOVED_RANGES)
COUNTS = pa.table({"subject": ["a", "b"], "messages": [1, 2], "last_seq": [4, 9]}).cast(
    SUBJECT_COUNTS
)


def answers() -> tuple[Answer, InterestAnswer]:
    digests = {InventoryRow(at): COUNTS.slice(at - 3) for at in (3, 4, 5)}
    return Answer(7, RANGES, None, ReadCount()), InterestAnswer(RANGES, {}, digests, ReadCount(), 7)


def test_much_stays_where_it_is_and_little_comes(tmp_path: Path) -> None:
    for answer in answers():
        left = ResultSpill(str(tmp_path), 1).of(answer)
        assert left.removed.num_rows == 0
        assert left.stored is not None
        assert left.counts["messages"].to_pylist() == [3]
        assert ResultSpill(str(tmp_path), 3).of(answer) == answer
    released = ResultSpill(str(tmp_path), 1).of(answers()[1])
    assert all(isinstance(digest, StoredDigest) for digest in released.digests.values())
    for number, digest in released.digests.items():
        assert digest_in(digest).equals(COUNTS.slice(number - 3))


def test_where_nothing_may_be_written_everything_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(location: str, content: object) -> None:
        del content
        raise storage_error(location, PermissionError(errno.EACCES, "Access Denied"))

    for name in ("write_table", "write_tables"):
        monkeypatch.setattr(scratch_files, name, refused)
    for answer in answers():
        assert ResultSpill(str(tmp_path), 1).of(answer) is answer
