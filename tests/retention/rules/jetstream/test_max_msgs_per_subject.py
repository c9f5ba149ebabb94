from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from retention.core.policy import Policy
from retention.datafile.subject_digest import count_subjects
from retention.errors import DamagedError
from retention.rules.jetstream import max_msgs_per_subject
from retention.rules.jetstream.max_msgs_per_subject import KeepCounts, KeepLast, surplus
from tests.support.rule_cases import Case, check

TWO = Policy(max_msgs_per_subject=2)
CASES = {
    "as many as the limit stay": Case(TWO, "a b a b", "- - - -"),
    "the lowest of each subject goes": Case(
        TWO, "a b a b a b", "max_msgs_per_subject max_msgs_per_subject - - - -"
    ),
    "a limit of 1 keeps the last of each": Case(
        Policy(max_msgs_per_subject=1), "a b a c", "max_msgs_per_subject - - -"
    ),
    "newer is a higher sequence, not a later time": Case(
        Policy(max_msgs_per_subject=1), "a@90 a@10", "max_msgs_per_subject -"
    ),
    "never spares nobody": Case(Policy(max_msgs_per_subject=1), "a! a", "max_msgs_per_subject -"),
    "it holds with discard new, too": Case(
        Policy(max_msgs_per_subject=1, max_msgs=1, discard="new"),
        "a a b",
        "max_msgs_per_subject - -",
    ),
    "what a head trim took does not count": Case(
        Policy(max_msgs_per_subject=2, max_msgs=3), "a a b a", "max_msgs - - -"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_newest_of_each_subject_stay(case: Case) -> None:
    check(case)


def stream(files: int, rows: int, subjects: int, seed: int) -> list[pa.Table]:
    """Files of messages with random subjects and globally rising sequences."""
    random = np.random.default_rng(seed)
    return [
        pa.table(
            {
                "seq": np.arange(rows) + file * rows + 1,
                "subject": [f"s.{number:04}" for number in random.integers(0, subjects, rows)],
            }
        )
        for file in range(files)
    ]


def digests(files: list[pa.Table]) -> pa.Table:
    parts = [count_subjects(rows) for rows in files]
    numbered = [
        part.add_column(0, "file", pa.array(np.full(len(part), number), pa.int64()))
        for number, part in enumerate(parts)
    ]
    return pa.concat_tables(numbered)


def survivors(files: list[pa.Table], limit: int) -> set[int]:
    """A slow model: the highest sequences of each subject."""
    held: dict[str, list[int]] = {}
    for row in pa.concat_tables(files).sort_by("seq").to_pylist():
        held.setdefault(row["subject"], []).append(row["seq"])
    return {seq for seqs in held.values() for seq in seqs[-limit:]}


@pytest.mark.parametrize("limit", [1, 2, 5])
@pytest.mark.parametrize("subjects", [3, 40, 900])
@pytest.mark.parametrize("range_rows", [65_536, 64])
def test_exactly_the_highest_sequences_of_each_subject_stay(
    limit: int, subjects: int, range_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(max_msgs_per_subject, "_RANGE_ROWS", range_rows)
    files = stream(files=6, rows=200, subjects=subjects, seed=limit * subjects)
    found = surplus(limit, digests(files), np.arange(6), 6)
    left: set[int] = set()
    for span, rows in enumerate(files):
        goes = found.of_span(span).takes(rows)
        assert goes.sum() == found.messages[span]
        left |= set(rows["seq"].to_numpy()[~goes].tolist())
    assert left == survivors(files, limit)


def test_files_whose_sequences_interleave_count_as_one_span(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(max_msgs_per_subject, "_RANGE_ROWS", 64)
    files = stream(files=4, rows=200, subjects=60, seed=7)
    both = pa.concat_tables(files[1:3])
    shuffled = [files[0], both[::2], both[1::2], files[3]]
    found = surplus(1, digests(shuffled), np.array([0, 1, 1, 2]), 3)
    spans = [files[0], both, files[3]]
    goes = [found.of_span(span).takes(rows) for span, rows in enumerate(spans)]
    left = [
        set(rows["seq"].to_numpy()[~mask].tolist()) for rows, mask in zip(spans, goes, strict=True)
    ]
    assert set().union(*left) == survivors(files, 1)


def test_one_message_a_subject_is_told_by_its_sequence_and_needs_no_subjects() -> None:
    files = stream(files=2, rows=50, subjects=5, seed=1)
    share = surplus(1, digests(files), np.arange(2), 2).of_span(1)
    assert isinstance(share, KeepLast)
    assert share.takes(files[1].select(["seq"])).sum() == 45
    assert isinstance(surplus(3, digests(files), np.arange(2), 2).of_span(1), KeepCounts)


def test_a_last_message_that_the_file_does_not_have_is_refused() -> None:
    rows = pa.table({"seq": [3, 4, 6]})
    with pytest.raises(DamagedError, match="message 5 is the last of its subject"):
        KeepLast(np.array([4, 5])).takes(rows)
    with pytest.raises(DamagedError, match="message 9"):
        KeepLast(np.array([9])).takes(rows)
