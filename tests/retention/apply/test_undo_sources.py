"""Undo of runs with files rewritten since: exactly the removed messages are restored, each sequence once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.apply.undo import show_undo, undo_run
from retention.apply.undo_sources import RemovedRows, rows_of_files
from retention.errors import RefusedError, UsageError, VerificationError
from retention.schemas.runs import RUN_RANGES
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import SECOND, START, File, Laid, even_segments, lay, warehouse_with

NOW = START + 1_000 * SECOND
EAGER = {"min_files": 2, "dead_share": "1%"}
Make = Callable[..., Stream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of four segments of ten messages, with maximal merges."""

    def made(files: list[File] | None = None, **settings: Any) -> Stream:
        wanted = {"compact": EAGER, "segment_span": "off"} | settings
        stream = warehouse_with(tmp_path, request.param, NOW, **wanted).stream("ORDERS")
        if not stream.opened.store.exists():
            lay(stream.opened, files or even_segments(4, 10))
        return stream

    return made


def content(stream: Stream) -> pa.Table:
    return pa.concat_tables(stream.messages()).drop_columns(["segment"])


def seqs(stream: Stream) -> list[int]:
    found: list[int] = content(stream)["seq"].to_pylist()
    return found


def last_run(stream: Stream) -> str:
    return str(stream.history()[0]["run"])


def removed(stream: Stream, *gone: int) -> str:
    stream.delete(*gone).apply()
    return last_run(stream)


def test_a_compaction_over_a_mistake_is_no_end_of_it(make: Make) -> None:
    stream = make()
    before = content(stream)
    run = removed(stream, *range(3, 11), *range(13, 21), *range(23, 28))
    assert stream.compact().apply().files_before == 3
    stream.publish([json.dumps({"subject": "s.1", "data": "x"})])
    assert show_undo(stream.opened, run)["rewritten"]
    assert undo_run(stream.opened, run).restored_messages == 21
    assert content(stream).slice(0, 40).equals(before)
    assert seqs(make()) == list(range(1, 42))
    assert stream.compact().apply().merges
    assert seqs(make()) == list(range(1, 42))
    with pytest.raises(UsageError, match="undone already"):
        undo_run(stream.opened, run)


def test_segments_that_went_whole_come_back_between_merged_ones(make: Make) -> None:
    stream = make()
    run = removed(stream, *range(11, 21))
    removed(stream, *range(3, 11), *range(23, 31))
    assert stream.compact().apply().merges == 1
    undo_run(stream.opened, run)
    assert seqs(make()) == [1, 2, *range(11, 23), *range(31, 41)]
    stream.publish([json.dumps({"subject": "s.1", "data": "x"})])
    assert seqs(make())[-1] == 41


def test_markers_of_the_run_go_wherever_they_were_merged(make: Make) -> None:
    soon = [Laid(seq, f"s.{seq}", headers=b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n") for seq in (1, 2)]
    settings = {"allow_msg_ttl": True, "subject_delete_marker_ttl": "1h"}
    stream = make([File(1, soon), File(1, [Laid(3)])], **settings)
    stream.plan().apply()
    run = last_run(stream)
    assert seqs(stream) == [3, 4, 5]
    stream.publish([json.dumps({"subject": "s.9", "data": "x"})])
    assert stream.compact().apply().merges
    undo_run(stream.opened, run)
    assert seqs(make(**settings)) == [1, 2, 3, 6]


def test_a_merged_segment_is_divided_where_its_neighbour_came_back(make: Make) -> None:
    stream = make()
    first = removed(stream, *range(13, 21), *range(23, 31))
    assert stream.compact().apply().merges == 1
    second = removed(stream, 11, 12, 21, 22)
    undo_run(stream.opened, first)
    assert show_undo(stream.opened, second)["rewritten"]
    undo_run(stream.opened, second)
    assert seqs(make()) == list(range(1, 41))
    rows = pa.concat_tables(stream.messages())
    assert rows["segment"].to_pylist() == [base for base in (1, 11, 21, 31) for _ in range(10)]


def test_copies_of_before_and_after_a_merge_come_back_side_by_side(
    make: Make, tmp_path: Path
) -> None:
    stream = make(archive=str(tmp_path / "archive"))
    before = content(stream)
    removed(stream, *range(13, 21), *range(23, 31))
    assert stream.compact().apply().merges == 1
    removed(stream, 11, 12, 21, 22)
    assert stream.restore().messages == 20
    assert content(stream).equals(before)
    assert seqs(make()) == list(range(1, 41))


@pytest.mark.parametrize("deleted", [(4,), (4, 5)])
def test_undoing_takes_no_marker_that_went_before(make: Make, deleted: tuple[int, ...]) -> None:
    soon = [Laid(seq, f"s.{seq}", headers=b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n") for seq in (1, 2)]
    settings = {"allow_msg_ttl": True, "subject_delete_marker_ttl": "1h"}
    stream = make([File(1, soon), File(1, [Laid(3)])], **settings)
    stream.plan().apply()
    run = last_run(stream)
    earlier = removed(stream, *deleted)
    undone = undo_run(stream.opened, run).run
    assert seqs(make(**settings)) == [1, 2, 3]
    takers = {4: earlier, 5: earlier if 5 in deleted else undone}
    told = {seq: stream.explain(seq).removed or {} for seq in takers}
    assert {seq: removed["run"] for seq, removed in told.items()} == takers


def test_messages_that_are_there_again_are_not_brought_twice(make: Make, tmp_path: Path) -> None:
    stream = make(archive=str(tmp_path / "archive"))
    run = removed(stream, *range(3, 9))
    stream.compact().apply()
    removed(stream, 9)
    stream.restore()
    removed(stream, 10)
    before = content(stream)
    with pytest.raises(RefusedError, match="are in the table again"):
        undo_run(stream.opened, run)
    assert content(stream).equals(before)


def test_an_archive_brings_messages_back_to_where_their_segment_was_merged(
    make: Make, tmp_path: Path
) -> None:
    stream = make(archive=str(tmp_path / "archive"))
    before = content(stream)
    removed(stream, *range(11, 21))
    removed(stream, *range(3, 11), *range(23, 31))
    assert stream.compact().apply().merges == 1
    assert stream.restore().messages == 26
    assert content(stream).equals(before)


def test_a_file_that_a_release_and_a_limit_shared_comes_back_whole(make: Make) -> None:
    limits = {"retention": "interest", "max_age": "988s"}
    young = [Laid(seq, "s.0", START + 20 * SECOND) for seq in (11, 12)]
    stream = make([*even_segments(1, 10), File(1, young)], **limits)
    stand(stream.opened, "billing", progress(3, 7, 4, 5, 6))
    before = content(stream)
    run = stream.plan().apply()
    assert run.by_rule == {"interest": 4, "max_age": 6}
    assert run.segments == {"dropped": 0, "rewritten": 1, "kept": 0}
    removed(stream, 12)
    assert show_undo(stream.opened, run.run)["rewritten"]
    undo_run(stream.opened, run.run)
    assert content(stream).equals(before.slice(0, 11))


def test_files_that_are_gone_are_said(make: Make) -> None:
    stream = make()
    run = removed(stream, 3, 4)
    stream.compact().apply()
    removed(stream, 5)
    before = content(stream)
    for path in Path(stream.opened.root).rglob("*.parquet"):
        live = stream.opened.store.snapshot().files["path"].to_pylist()
        if not any(str(path).endswith(name) for name in live):
            path.unlink()
    for act in (show_undo, undo_run):
        with pytest.raises(
            VerificationError, match=r"1 of 1 file with removed messages no longer exist"
        ):
            act(stream.opened, run)
    assert content(stream).equals(before)


def test_what_a_dry_run_says_is_what_happens(make: Make) -> None:
    stream = make()
    run = removed(stream, *range(1, 11), 12)
    before = content(stream)
    told = show_undo(stream.opened, run)
    assert told == {
        "stream": "ORDERS",
        "undoes": run,
        "restored_messages": 11,
        "restored_bytes": told["restored_bytes"],
        "files": 2,
        "rewritten": False,
    }
    assert content(stream).equals(before)
    assert undo_run(stream.opened, run).restored_bytes == told["restored_bytes"]


def taken(*rows: dict[str, Any]) -> list[RemovedRows]:
    shape: dict[str, Any] = {"partition": 0, "segment": 1, "rules": [], "counts": []}
    nothing: dict[str, Any] = {"except_firsts": [], "except_lasts": [], "bytes": None}
    table = [shape | nothing | {"path": "a", "messages": 1} | row for row in rows]
    return list(rows_of_files([pa.Table.from_pylist(table, schema=RUN_RANGES)]))


def test_the_ranges_of_a_file_and_all_others() -> None:
    [one] = taken(
        {"first_seq": 9, "last_seq": 9},
        {
            "first_seq": 1,
            "last_seq": 7,
            "except_firsts": [3, 7],
            "except_lasts": [4, 7],
            "messages": 4,
        },
    )
    assert one.ranges.tolist() == [[1, 2], [5, 6], [9, 9]]
    assert one.messages == 5
    assert one.others[:3].tolist() == [[0, 0], [3, 4], [7, 8]]
    assert np.all(one.others[-1, 0] == 10)
