from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from retention.api.topic import Topic
from retention.api.warehouse import open_warehouse
from retention.apply.carry_out import carry_out
from retention.apply.execution import ExecutionTerms
from retention.engines.select import Engines
from retention.errors import DamagedError, StalePlanError, UsageError
from retention.history.runs import history_of
from retention.interest.commit_offsets import store_offset
from retention.planners.cached import plan_pass
from retention.stores.offset_table import Offsets, OffsetTable, StoredOffset, reader_of
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = 1_800_000_000 * 10**9
BILLING = 1_795_796_488
"""The consumer's number on real servers of both eras."""


@pytest.fixture(params=["delta", "parquet"])
def topic(request: pytest.FixtureRequest, tmp_path: Path) -> Topic:
    """Partition 0 has segments 0, 10 and the active 20, read up to 12 by consumer 7; partition 1 has 0 and 5."""
    with_logs(tmp_path, request.param)
    warehouse = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: NOW)
    import_logs(warehouse, tmp_path)
    return warehouse.topic(NAME)


def stored(topic: Topic) -> dict[tuple[int, str, str], int]:
    return {(row.partition, row.kind, row.name): row.offset for row in topic.offsets()}


def dropped(topic: Topic) -> list[tuple[int, int]]:
    drops = topic.plan().plan.actions.drop.files
    return list(zip(drops["partition"].to_pylist(), drops["segment"].to_pylist(), strict=True))


def test_a_named_consumer_is_known_by_the_number_that_servers_give_it(topic: Topic) -> None:
    offset = topic.store_offset(0, "consumer", "billing", 19)
    assert (offset.name, offset.offset, offset.lag) == (str(BILLING), 19, 10)
    assert topic.get_offset(0, "consumer", BILLING) == offset
    assert stored(topic) == {(0, "consumer", "7"): 12, (0, "consumer", str(BILLING)): 19}


def test_what_everybody_has_read_goes_and_nothing_else(topic: Topic) -> None:
    assert dropped(topic) == [(0, 0), (1, 0)]
    topic.store_offset(0, "consumer", "7", 19)
    assert dropped(topic) == [(0, 0), (0, 10), (1, 0)]
    topic.store_offset(0, "group", 1, 8)
    assert dropped(topic) == [(1, 0)]
    topic.delete_offset(0, "group", 1)
    assert dropped(topic) == [(0, 0), (0, 10), (1, 0)]


def test_a_pass_counts_on_a_barrier_that_nobody_lowers(topic: Topic, tmp_path: Path) -> None:
    plan = topic.plan()
    plan.save(tmp_path / "before.json")
    topic.store_offset(0, "consumer", "7", 29)
    topic.delete_offset(0, "consumer", "7")
    topic.store_offset(0, "group", "3", 4)
    with pytest.raises(StalePlanError) as refused:
        plan.apply()
    assert refused.value.exit_code == 75
    assert topic.plan().apply().removed_messages == 5


@pytest.mark.parametrize("offset", [13, 29])
def test_reading_on_leaves_a_plan_as_it_is(topic: Topic, offset: int) -> None:
    plan = topic.plan()
    counted = topic.opened.store.snapshot().counters.consumers
    topic.store_offset(0, "consumer", "7", offset)
    assert topic.opened.store.snapshot().counters.consumers == counted
    assert plan.apply().removed_messages == 15


def test_an_offset_that_goes_back_while_a_pass_is_carried_out_stops_it(topic: Topic) -> None:
    """After the read of the offsets, the log's own counter decides."""
    opened = topic.opened
    with Engines("local") as engines:
        planned = plan_pass(opened, NOW, engines)
        store_offset(opened, reader_of(0, "consumer", 7), 3)
        history = history_of(opened.warehouse, NAME)
        with pytest.raises(StalePlanError):
            carry_out(opened, planned, ExecutionTerms(engines), history, history.name_run(NOW), NOW)
    assert dropped(topic) == [(1, 0)]


def test_what_no_table_counts_yet_is_counted_by_whoever_comes_next(topic: Topic) -> None:
    table = OffsetTable(topic.opened.root)
    before = topic.opened.store.snapshot().counters.consumers
    reader = reader_of(0, "consumer", 7)
    store_offset(topic.opened, reader, 2)
    assert table.read().counted
    assert topic.opened.store.snapshot().counters.consumers == before + 1
    store_offset(topic.opened, reader, 2)
    assert topic.opened.store.snapshot().counters.consumers == before + 1


def test_of_rivals_none_loses_its_offset(topic: Topic) -> None:
    readers = [reader_of(0, "group", number) for number in range(6)]

    def store(number: int) -> None:
        store_offset(topic.opened, readers[number], number)

    threads = [threading.Thread(target=store, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    offsets = OffsetTable(topic.opened.root).read()
    assert {offsets.of[reader].offset for reader in readers} == set(range(6))
    assert offsets.counted


@pytest.mark.parametrize(
    ("partition", "kind", "name", "offset", "message"),
    [
        (0, "consumer", "7", 30, "ends at 29"),
        (0, "consumer", "7", -1, "ends at 29"),
        (2, "consumer", "7", 0, "there is no partition 2"),
        (0, "group", "billing", 0, "does not follow from its name"),
        (0, "consumer", "", 0, "1 to 255 bytes"),
        (0, "consumer", str(2**32), 0, "out of range"),
        (0, "reader", "7", 0, "must be 'consumer' or 'group'"),
    ],
)
def test_what_cannot_be_stored(
    topic: Topic, partition: int, kind: str, name: str, offset: int, message: str
) -> None:
    before = OffsetTable(topic.opened.root).read()
    with pytest.raises(UsageError, match=message):
        topic.store_offset(partition, kind, name, offset)  # type: ignore[arg-type]
    assert OffsetTable(topic.opened.root).read() == before


def test_nobody_has_read_a_topic_that_never_held_anything(tmp_path: Path) -> None:
    with_logs(tmp_path, "delta")
    topic = open_warehouse(tmp_path / "retention.yaml", engine="local").topic(NAME)
    assert topic.offsets() == []
    with pytest.raises(UsageError, match="never had a message"):
        topic.store_offset(0, "consumer", "7", 0)
    with pytest.raises(UsageError, match="has stored no offset"):
        topic.delete_offset(0, "consumer", "7")


def test_without_offsets_that_the_table_has_counted_nothing_goes(topic: Topic) -> None:
    topic.store_offset(0, "group", 1, 8)
    assert dropped(topic) == [(1, 0)]
    shutil.rmtree(Path(topic.opened.root) / "offsets")
    for act in (topic.plan, topic.offsets):
        with pytest.raises(DamagedError, match=r"counts edits of them \(1\)"):
            act()
    topic.store_offset(0, "group", 1, 8)
    assert dropped(topic) == [(1, 0)]


def test_what_a_failed_import_left_is_not_taken_for_stored(topic: Topic) -> None:
    table = OffsetTable(topic.opened.root)
    orphan = reader_of(1, "consumer", 9)

    def left(before: Offsets) -> Offsets:
        return replace(before, of={orphan: StoredOffset(0, 0)}, origin="iggy-log/never committed")

    table.update(left)
    assert topic.offsets() == []
    topic.store_offset(0, "consumer", "7", 12)
    assert stored(topic) == {(0, "consumer", "7"): 12}
