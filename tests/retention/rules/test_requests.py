"""The messages of a purge in every span, compared with a plain model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core.read_count import ReadCount
from retention.core.spans import spans_of
from retention.core.subjects import matching_mask
from retention.datafile.parquet import stats_table
from retention.errors import UsageError
from retention.rules import requests
from retention.rules.fold import fold
from retention.rules.requests import (
    Delete,
    NamedRows,
    Purge,
    Request,
    Rollup,
    delete_request,
    purge_request,
)
from retention.rules.row_verdicts import SpanRows, answer_question

LOG = "abcabcabc"


def asked_of_log(request: Purge, cuts: list[int]) -> list[int]:
    """The sequences of a purge on `LOG`, stored in files that end after these messages."""
    edges = sorted({0, *cuts, len(LOG)})
    files = list(pairwise(edges))
    spans = spans_of(stats_table([described(first + 1, end) for first, end in files]))
    matched = spans.messages
    if request.subject is not None:
        counts = [
            (number, subject, LOG[first:end].count(subject))
            for number, (first, end) in enumerate(files)
            for subject in sorted(set(LOG[first:end]))
        ]
        columns = zip(("file", "subject", "messages"), zip(*counts, strict=True), strict=True)
        table = pa.table(dict(columns))
        matches = matching_mask(table["subject"], (request.subject,))
        matched = requests.counted_in(table, matches, spans.span_of_file, len(spans))
    decided = fold(spans, [requests.purge(spans, request, matched)])
    whole = decided.whole(None)
    gone = [seq for at in np.flatnonzero(whole) for seq in seqs_of(files[at])]
    for span in np.flatnonzero(decided.ask):
        own = seqs_of(files[span])
        ranges = answer_question(span_of(own), decided.question(int(span))).removed
        assert ranges.num_rows or request.seq, "a span was asked that loses nothing"
        pairs = zip(ranges["first_seq"].to_pylist(), ranges["last_seq"].to_pylist(), strict=True)
        gone += [seq for first, last in pairs for seq in range(first, last + 1)]
    assert decided.by_rule(None).sum() == sum(
        len(seqs_of(files[at])) for at in np.flatnonzero(whole)
    )
    return sorted(gone)


def described(first: int, last: int) -> dict[str, object]:
    """Statistics of a file with these sequences."""
    count = last - first + 1
    return {
        "path": f"{first}.parquet",
        "partition": 0,
        "segment": 1,
        "file_bytes": 1,
        "modified_ms": 1,
        "messages": count,
        "bytes": count,
        "min_seq": first,
        "max_seq": last,
        "min_ts_ns": 0,
        "max_ts_ns": 0,
        "first_ts_ns": 0,
        "last_ts_ns": 0,
        "never": 0,
        "deadlines": 0,
        "markers": 0,
        "in_time_order": True,
    }


def seqs_of(file: tuple[int, int]) -> list[int]:
    return list(range(file[0] + 1, file[1] + 1))


def span_of(seqs: list[int]) -> SpanRows:
    rows = pa.table(
        {"seq": seqs, "size": [1] * len(seqs), "subject": [LOG[seq - 1] for seq in seqs]}
    )
    return SpanRows(rows, np.zeros(len(seqs), np.int64), ReadCount())


@given(
    st.sampled_from([None, "a", "c", "*", "d"]),
    st.integers(0, 12),
    st.integers(0, 12),
    st.lists(st.integers(1, 8)),
)
def test_a_purge_means_what_the_server_says_however_the_log_lies_in_files(
    subject: str | None, seq: int, keep: int, cuts: list[int]
) -> None:
    matching = [n for n, own in enumerate(LOG, 1) if subject in {None, "*", own}]
    assert asked_of_log(purge_request(subject), cuts) == matching
    below = [n for n in matching if n < seq or not seq]
    assert asked_of_log(purge_request(subject, seq=seq), cuts) == below
    lowest = matching[: max(len(matching) - keep, 0)]
    assert asked_of_log(purge_request(subject, keep=keep), cuts) == lowest


def test_nothing_given_and_everything_matched_are_the_same_purge() -> None:
    for given_ in ((None, None, None), (">", 0, 0), ("", None, 0)):
        assert purge_request(*given_) == Purge()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a", 5, 2), "error code 10003"),
        ((None, 5, 2), "exclude each other"),
        (("a..b", None, None), "no subject filter"),
        (("a b", None, None), "no subject filter"),
        (("a.>.b", None, None), "no subject filter"),
        ((None, -1, None), "out of range"),
        ((None, None, 2**63), "out of range"),
    ],
)
def test_a_request_that_means_nothing_is_refused(arguments: tuple, said: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(UsageError, match=said):
        purge_request(*arguments)


def test_a_delete_names_its_messages_once_and_in_order() -> None:
    assert delete_request([5, 3, 5]) == Delete((3, 5))
    with pytest.raises(UsageError, match="no message is named"):
        delete_request([])
    with pytest.raises(UsageError, match="out of range"):
        delete_request([3, -1])


def test_a_delete_asks_only_spans_that_can_hold_what_it_names() -> None:
    spans = spans_of(stats_table([described(1, 3), described(4, 6), described(8, 9)]))
    decided = requests.delete(spans, Delete((2, 3, 7, 9)))
    assert decided.parts == {
        0: NamedRows("delete", seqs=(2, 3)),
        2: NamedRows("delete", seqs=(9,)),
    }


def test_what_no_answer_has_is_absent() -> None:
    found = pa.table({"first_seq": [5, 2], "last_seq": [5, 2]})
    assert requests.absent(Delete((2, 3, 5, 8)), found) == (3, 8)
    nothing = pa.table({name: pa.array([], pa.int64()) for name in found.column_names})
    assert requests.absent(Delete((2,)), nothing) == (2,)


@pytest.mark.parametrize(
    ("request_", "moves"),
    [
        (Purge(seq=15), (10, 15)),
        (Purge(seq=10), None),
        (Purge("a", seq=15), None),
        (Purge(keep=15), None),
        (Purge(), None),
        (Delete((15,)), None),
    ],
)
def test_only_a_purge_beyond_the_end_moves_the_next_sequence(
    request_: Purge | Delete, moves: tuple[int, int] | None
) -> None:
    assert requests.moved(request_, 10) == moves


@pytest.mark.parametrize(
    "asked", [Purge("a.>", keep=3), Purge(seq=4), Delete((1, 9), erase=True), Rollup(("a", "b"))]
)
def test_a_request_survives_its_json(asked: Request) -> None:
    assert requests.from_json(requests.as_json(asked)) == asked
