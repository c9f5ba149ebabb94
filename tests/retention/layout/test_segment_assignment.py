from __future__ import annotations

import pyarrow as pa

from retention.layout.segment_assignment import SegmentAssignment, segment_of_rows
from retention.schemas.bounds import MAX_SEQ


def segments_of(live: pa.Table, *bases: int, partition: int = 0) -> dict[int, int]:
    table = pa.table({"partition": [partition] * len(bases), "segment": list(bases)})
    return dict(zip(bases, segment_of_rows(live, table).tolist(), strict=True))


def test_rows_belong_where_their_segment_has_been_merged_to() -> None:
    live = pa.table({"partition": [0, 0, 1], "segment": [1, 31, 1], "max_seq": [25, 40, 99]})
    assert segments_of(live, 1, 11, 21, 26, 31) == {1: 1, 11: 1, 21: 1, 26: 26, 31: 31}
    assert segments_of(live, 41, 99) == {41: 41, 99: 99}
    assert segments_of(live, 99, 100, partition=1) == {99: 1, 100: 100}
    assert segments_of(live, 5, partition=2) == {5: 5}


def test_of_several_files_of_a_segment_the_farthest_reaching_counts() -> None:
    live = pa.table({"partition": [0] * 4, "segment": [1, 1, 1, 31], "max_seq": [25, 9, None, 35]})
    assert segments_of(live, 11, 25, 26, 32, 36) == {11: 1, 25: 1, 26: 26, 32: 31, 36: 36}


def test_of_a_table_without_files_every_segment_keeps_its_messages() -> None:
    empty = pa.table({"partition": [0], "segment": [1], "max_seq": [9]}).slice(1)
    assert segments_of(empty, 1, 11) == {1: 1, 11: 11}


def test_messages_of_a_merged_segment_are_divided_by_the_bases_that_came_back() -> None:
    live = pa.table({"partition": [0, 0, 1], "segment": [22, 31, 25], "max_seq": [30, 40, 99]})
    assignment = SegmentAssignment.of(live, [(0, 17, 22), (0, 17, 21), (1, 17, 24), (0, 35, 50)])
    assert assignment.segments == [17, 17, 17, 31]
    assert assignment.divided == [True, False, False, False]
    assert assignment.stretches(0, 17) == [(17, 21), (22, 30), (31, MAX_SEQ)]
    assert assignment.stretches(0, 31) == [(31, MAX_SEQ)]


def test_what_comes_back_together_divides_itself() -> None:
    nothing = pa.table({"partition": [0], "segment": [1], "max_seq": [9]}).slice(1)
    assignment = SegmentAssignment.of(nothing, [(0, 17, 30), (0, 22, 30)])
    assert assignment.divided == [True, False]
    assert assignment.stretches(0, 17) == [(17, 21), (22, MAX_SEQ)]
    assert SegmentAssignment.of(nothing, []).segments == []
