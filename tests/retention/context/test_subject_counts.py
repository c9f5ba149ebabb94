from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.context import subject_counts
from retention.context.subject_counts import counts_in_pieces
from retention.inspect.consumers import stored_consumers
from retention.interest.interest import interest_of, matching_seqs
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with

NOW = START + 10_000 * SECOND
FILES, EACH = 7, 10
ALL = FILES * EACH


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    """Seven files of ten messages, on three subjects in turn, and a consumer of two of them."""
    stream = warehouse_with(tmp_path / "w", "delta", NOW).stream("ORDERS")
    lay(stream.opened, even_segments(FILES, EACH))
    stream.consumers.add({"durable_name": "two", "filter_subjects": ["s.0", "s.2"]})
    return stream


@pytest.fixture(params=[1, 3, ALL])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of files per piece."""
    monkeypatch.setattr(subject_counts, "FILES_AT_ONCE", request.param)
    return int(request.param)


def test_pieces_together_are_the_digests_of_all_files(stream: Stream, at_once: int) -> None:
    store = stream.opened.store
    files = store.inventory(store.snapshot()).files
    pieces = list(counts_in_pieces(store, files))
    assert [len(piece["file"].unique()) for piece in pieces] == [
        min(at_once, FILES - first) for first in range(0, FILES, at_once)
    ]
    assert pa.concat_tables(pieces).equals(store.subject_counts(files))


def test_no_more_messages_than_that_are_counted_in_a_piece(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stream.opened.store
    files = store.inventory(store.snapshot()).files
    monkeypatch.setattr(subject_counts, "MESSAGES_AT_ONCE", 2 * EACH + 1)
    pieces = list(counts_in_pieces(store, files))
    assert [sum(piece["messages"].to_pylist()) for piece in pieces] == [20, 20, 20, 10]


def test_what_a_filter_matches_does_not_depend_on_pieces(stream: Stream, at_once: int) -> None:
    opened = stream.opened
    wanted = [seq for seq in range(1, ALL + 1) if seq % 3 != 1]
    [record] = stored_consumers(opened)
    interest = interest_of(record, opened.config.subjects)
    matching = matching_seqs(opened, opened.store.inventory(opened.store.snapshot()), interest)
    assert matching is not None
    assert matching.tolist() == wanted
    assert stream.consumers.info("two").num_pending == len(wanted)
