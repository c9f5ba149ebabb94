"""Compaction on every store and engine: the same messages in fewer files, despite concurrent writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from retention.api.stream import Stream
from retention.apply.compact import CompactionLimits, compact_now, plan_compaction
from retention.apply.merge_batch import merge_batch
from retention.context.context import OpenedStream
from retention.core.units import DAY
from retention.datafile import merge as merge_module
from retention.datafile.copied_groups import write_parts
from retention.datafile.parquet import describe, stats_table, write_messages
from retention.engines.select import EngineName, Engines
from retention.errors import DamagedError, VerificationError
from retention.history.kinds import Compacted
from retention.history.runs import history_of
from retention.ports import Swap
from retention.schemas.files import LOGGED_FILES
from tests.contract.test_engines import FILES
from tests.support.laying import (
    SECOND,
    START,
    File,
    Laid,
    held,
    lay,
    rows_of,
    warehouse_with,
)

NOW = START + 1_000 * SECOND
LOCAL = Engines("local")
EAGER = {"min_files": 2, "dead_share": "1%", "min_segment": 0}
Make = Callable[..., Stream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream with maximal merges."""

    def made(files: list[File] | None = None, **settings: Any) -> Stream:
        wanted = {"compact": EAGER, "segment_span": "off"} | settings
        stream = warehouse_with(tmp_path, request.param, NOW, **wanted).stream("ORDERS")
        if files and not stream.opened.store.exists():
            lay(stream.opened, files)
        return stream

    return made


def content(stream: Stream) -> pa.Table:
    """Every message with all columns except the segment, which a merge may change."""
    return pa.concat_tables(stream.messages()).drop_columns(["segment"])


def bases(stream: Stream) -> list[int]:
    return stream.opened.store.snapshot().files["segment"].to_pylist()


def files_on_disk(stream: Stream) -> set[str]:
    folder = Path(stream.opened.root)
    return {str(path) for path in folder.rglob("*.parquet") if "subjects" not in path.parts}


@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=[pytest.mark.spark])])
@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_the_same_messages_lie_in_fewer_files(
    format_: str, engine: EngineName, tmp_path: Path
) -> None:
    warehouse = warehouse_with(tmp_path, format_, NOW, engine, compact=EAGER, segment_size=8_000)
    stream = warehouse.stream("ORDERS")
    lay(stream.opened, FILES)
    before, state = held(warehouse), stream.state()
    [outcome] = warehouse.compact().apply()
    assert outcome.value is not None, outcome.sentence
    report = outcome.value
    assert (report.files_before, report.files_after) == (8, 4)
    assert report.amplification == 1 + report.bytes_written / report.bytes_read
    assert held(warehouse).equals(before)
    after = stream.state()
    assert (after.messages, after.bytes, after.segments) == (
        state.messages,
        state.bytes,
        state.segments,
    )
    record = history_of(stream.opened.warehouse, "ORDERS").done(report.runs[0])
    assert isinstance(record, Compacted)
    assert (record.status, record.files_before) == ("done", 8)
    assert warehouse.compact().apply()[0].value.merges == 0  # type: ignore[union-attr]
    if format_ == "delta":
        table = DeltaTable(f"{stream.opened.root}/messages")
        assert table.to_pyarrow_table(columns=["seq"]).num_rows == before.num_rows
        last = table.history(1)[0]
        assert json.loads(last["userMetadata"])["run"] == report.runs[0]


HOLLOW = [File(base, [Laid(base), Laid(base + 1)]) for base in (1, 11, 21)]
"""Segments of ten sequences with two remaining; the last one is open."""


def test_bytes_that_were_merged_before_came_once(make: Make) -> None:
    stream = make([File(1, [Laid(seq)]) for seq in (1, 2, 3)])
    first = compact_now(stream.opened, LOCAL, CompactionLimits())
    for seq in (4, 5, 6, 7):
        stream.publish([json.dumps({"subject": "s.0", "data": str(seq)}).encode()])
    merged = first.bytes_written
    second = compact_now(stream.opened, LOCAL, CompactionLimits())
    assert (second.files_before, second.files_after) == (5, 1)
    came = first.bytes_read + second.bytes_read - merged
    assert second.amplification == 1 + (merged + second.bytes_written) / came


def test_hollow_neighbours_become_one_segment_and_appends_go_on(make: Make) -> None:
    stream = make(HOLLOW)
    before = content(stream)
    assert stream.compact().apply().merges == 1
    assert content(stream).equals(before)
    assert sorted(bases(stream)) == [1, 21]
    stream.publish([json.dumps({"subject": "s.2", "data": "y"})])
    assert content(stream)["seq"].to_pylist() == [1, 2, 11, 12, 21, 22, 23]
    assert sorted(bases(stream)) == [1, 21, 21]


def test_what_comes_between_plan_and_commit_is_left_to_the_next_time(make: Make) -> None:
    stream = make(HOLLOW)
    opened = stream.opened
    plan = plan_compaction(opened, opened.store.snapshot())
    assert [merge.segments for merge in plan.merges] == [2]
    stream.delete(2).apply()
    before = content(stream)
    assert merge_batch(opened, plan, plan.merges, LOCAL).merged == ()
    assert content(stream).equals(before)


def test_a_file_in_a_segment_that_is_merged_away_stops_the_merge(make: Make) -> None:
    """Their ranges do not overlap; the commit would break the order of segments."""
    stream = make(HOLLOW)
    opened = stream.opened
    plan = plan_compaction(opened, opened.store.snapshot())
    assert [merge.segments for merge in plan.merges] == [2]
    late(opened, File(11, [Laid(15)]))
    before = content(stream)
    assert merge_batch(opened, plan, plan.merges, LOCAL).merged == ()
    assert content(stream).equals(before)
    assert make().compact().apply().merges == 1
    assert content(stream).equals(before)


def late(opened: OpenedStream, file: File) -> None:
    """Add a file to a sealed segment, like a late mirror."""
    [staged] = opened.store.stage(0, file.base)
    write_messages(staged.location, [rows_of(file.messages)])
    swap = Swap(
        remove=LOGGED_FILES.empty_table(),
        add=stats_table([describe(staged).stats]),
        metadata={"run": "late"},
    )
    opened.store.commit(swap, opened.store.snapshot())


def test_a_damaged_file_is_left_and_named_and_the_rest_is_merged(make: Make) -> None:
    halves = [
        File(base, [Laid(seq) for seq in range(first, first + 5)])
        for base in (1, 11)
        for first in (base, base + 5)
    ]
    stream = make([*halves, File(21, [Laid(21)])], whole_segments=True)
    opened = stream.opened
    [first, *_] = opened.store.data_files(
        opened.store.snapshot().files.filter([True, False, False, False, False])
    )
    path = Path(first.location)
    whole = path.read_bytes()
    path.write_bytes(whole[:20] + bytes(40) + whole[60:])
    with pytest.raises(
        DamagedError,
        match=r"skipped 1 merge with a damaged file, and did 1 without one; the first: ",
    ) as error:
        stream.compact().apply()
    assert path.name in str(error.value)
    path.write_bytes(whole)
    assert content(stream)["seq"].to_pylist() == list(range(1, 22))
    assert sorted(bases(stream)) == [1, 1, 11, 21]


def test_a_copy_that_differs_is_never_committed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = make([File(1, [Laid(seq, payload=b"a")]) for seq in (1, 2, 3)])

    def spoilt(rows: pa.Table) -> pa.Table:
        at = rows.schema.get_field_index("payload")
        return rows.set_column(at, rows.schema.field(at), pa.array([b"b"] * rows.num_rows))

    monkeypatch.setattr(
        merge_module, "write_parts", lambda place, parts: write_parts(place, map(spoilt, parts))
    )
    before, on_disk = content(stream), files_on_disk(stream)
    with pytest.raises(VerificationError, match="nothing was committed"):
        stream.compact().apply()
    assert content(stream).equals(before)
    assert files_on_disk(stream) == on_disk


def test_time_and_bytes_that_are_up_leave_the_rest(make: Make) -> None:
    stream = make([File(1, [Laid(seq)]) for seq in (1, 2, 3)])
    for limits in (CompactionLimits(max_bytes=10), CompactionLimits(max_time_ns=0)):
        report = compact_now(stream.opened, LOCAL, limits)
        assert (report.merges, report.pending) == (0, 1)
    assert stream.compact().apply().merges == 1


@pytest.mark.parametrize(
    "limit",
    [
        {"max_age": "90d"},
        {"max_msgs": 120},
        {"max_msgs_per_subject": 30},
        {"max_bytes": 3_000},
    ],
    ids=lambda limit: str(*limit),
)
def test_a_quiet_stream_becomes_a_few_segments_and_loses_what_it_would_have_lost(
    make: Make, limit: dict[str, Any]
) -> None:
    """A hundred days with two messages each."""
    days = [
        File(2 * day + 1, [Laid(2 * day + at, f"s.{at}", START + day * DAY) for at in (1, 2)])
        for day in range(100)
    ]
    stream = make(days, compact=True, segment_span="1d", **limit)
    before = content(stream)
    at = [START + 95 * DAY, START + 120 * DAY]
    plans = [stream.plan(as_of=as_of) for as_of in at]
    compaction = stream.compact()
    [merge] = compaction.plan.merges
    assert (merge.reason, merge.segments) == ("small_segments", 99)
    compaction.apply()
    assert sorted(bases(stream)) == [1, 199]
    assert content(stream).equals(before)
    after = [stream.plan(as_of=as_of) for as_of in at]
    assert [bound.plan.by_rule for bound in after] == [bound.plan.by_rule for bound in plans]
    goes = plans[0].plan.removed_messages
    assert 0 < goes <= plans[1].plan.removed_messages < 200
    after[0].apply(allow_future=True)
    assert content(stream)["seq"].to_pylist() == before["seq"].to_pylist()[goes:]
    stream.publish(['{"subject": "a", "data": "x"}'])
    assert content(stream)["seq"].to_pylist()[-1] == 201
