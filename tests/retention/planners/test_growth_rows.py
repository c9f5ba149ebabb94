from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from retention import open_warehouse
from retention.api.stream import Stream
from retention.context.context import OpenedStream
from retention.core.inventory import Inventory
from retention.core.spans import spans_of
from retention.core.units import DAY, HOUR
from retention.engines.select import Engines
from retention.plan.remaining import RemainingRow, all_remaining
from retention.planners.growth_rows import GrownRows
from retention.planners.probe import UnopenedRows
from retention.stores.file_store import FileStore

NOW = 20_000 * DAY
CONFIG = """\
streams:
  - name: ORDERS
    subjects: [orders.>]
    format: parquet
    segment_span: 1h
    max_age: 3d
    max_msgs_per_subject: 2
    allow_msg_ttl: true
"""


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """Ten segments with three subjects each."""
    directory = tmp_path_factory.mktemp("orders")
    (directory / "retention.yaml").write_text(CONFIG)
    stream = open_warehouse(directory, clock=lambda: NOW).stream("ORDERS")
    for hour in range(10):
        subjects = [f"orders.{number % 4}" for number in range(hour, hour + 3)]
        rows = {"subject": subjects, "ts_ns": pa.array([NOW + hour * HOUR] * 3, pa.int64())}
        stream.publish(pa.table(rows | {"payload": [b"x"] * 3}))
    return stream


@pytest.fixture
def engines() -> Iterator[Engines]:
    with Engines("local") as made:
        yield made


@pytest.mark.parametrize("most", [1 << 30, 0])
def test_digests_held_are_those_stored(
    stream: Stream, engines: Engines, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("retention.planners.growth_rows.HELD_BYTES", most)
    files = _inventory(stream.opened).files
    rows = GrownRows(stream.opened, engines, files)
    plain = UnopenedRows(stream.opened, engines)
    parts = [files, files.slice(3, 4), files.slice(9), files.slice(0, 0), files.take([7, 2, 3])]
    for part in parts * 2:
        assert rows.subject_counts(part).equals(plain.subject_counts(part))


def test_excess_of_each_limit_is_that_without_memory(stream: Stream, engines: Engines) -> None:
    inventory = _inventory(stream.opened)
    rows = GrownRows(stream.opened, engines, inventory.files)
    plain, remaining = UnopenedRows(stream.opened, engines), all_remaining(inventory)
    spans = spans_of(inventory.files)
    for limit in (2, 2, 5, 2, 1):
        expected = plain.excess(remaining, spans, limit).messages
        assert rows.excess(remaining, spans, limit).messages.tolist() == expected.tolist()


def test_deletions_of_some_files_are_those_without_memory(stream: Stream, engines: Engines) -> None:
    inventory = _inventory(stream.opened)
    rows = GrownRows(stream.opened, engines, inventory.files)
    plain = UnopenedRows(stream.opened, engines)
    for wanted in ([0, 1, 2], [1, 5], [], [5, 6, 9]):
        numbers = [RemainingRow(row) for row in wanted]
        remaining = all_remaining(inventory)
        assert rows.deletions(remaining, numbers) == plain.deletions(remaining, numbers)


def test_simulation_reads_each_digest_once(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = FileStore.subject_counts

    def counting(self: FileStore, files: pa.Table) -> pa.Table:
        read.append(files.num_rows)
        return original(self, files)

    monkeypatch.setattr(FileStore, "subject_counts", counting)
    stream.simulate(at=["now", "now+1d", "now+2d", "now+30d"], growth="none")
    assert read == [10]


def _inventory(opened: OpenedStream) -> Inventory:
    return opened.store.inventory(opened.store.snapshot())
