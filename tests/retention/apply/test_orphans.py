from __future__ import annotations

from pathlib import Path

import pytest

from retention.apply.orphans import orphans
from retention.context.context import OpenedStream
from retention.history.runs import history_of
from retention.storage import files
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with
from tests.support.run_records import run_record


@pytest.fixture(params=["delta", "parquet"])
def orders(request: pytest.FixtureRequest, warehouse: Path) -> OpenedStream:
    streams = warehouse_with(
        warehouse, request.param, START + 100 * SECOND, max_age="60s", max_msgs_per_subject=9
    )
    opened = streams.stream("ORDERS").opened
    lay(opened, even_segments(4, 10))
    [outcome] = streams.apply(as_of=START + 75 * SECOND)
    assert outcome.value is not None
    assert outcome.value.removed_messages
    return opened


def whats(opened: OpenedStream) -> dict[str, str]:
    return {orphan.location: orphan.what for orphan in orphans(opened)}


def test_an_orderly_stream_has_no_orphans(orders: OpenedStream) -> None:
    assert orphans(orders) == []


def test_a_staged_file_that_no_commit_names_is_one(orders: OpenedStream) -> None:
    [staged] = orders.store.stage(0, 1)
    Path(staged.location).write_bytes(b"PAR1")
    [orphan] = orphans(orders)
    assert Path(orphan.location) == Path(staged.location)
    assert orphan.what == "data file that no commit names"
    assert orphan.since_ns > START


def test_a_write_that_never_ended_is_one(orders: OpenedStream) -> None:
    for place in ("messages", "_retention/stats"):
        directory = Path(orders.root, place)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ".x.parquet.0123.tmp").write_bytes(b"")
    assert list(whats(orders).values()) == ["write that never ended"] * 2


def test_counts_without_their_data_file_are_one(orders: OpenedStream) -> None:
    lost = files.join(orders.root, "_retention/subjects/partition=0/segment=1/gone.parquet")
    files.replace(lost, b"PAR1")
    assert whats(orders) == {lost: "subject counts of no data file"}


def test_undo_records_of_a_run_that_never_began_and_runs_without_outcome_are_some(
    orders: OpenedStream,
) -> None:
    history = history_of(orders.warehouse, orders.name)
    kept = files.join(orders.root, "_retention/reports/20260101T000000.000000000Z-x.removed.arrow")
    files.replace(kept, b"")
    history.begin(run_record("20270101T000000.000000000Z-y"))
    found = whats(orders)
    assert found[kept] == "undo record of a run that committed nothing"
    assert any("without an outcome" in what for what in found.values())
    assert len(found) == 2
