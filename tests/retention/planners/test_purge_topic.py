from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from retention.api.topic import Topic
from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.requested import remove_now
from retention.core.message_rows import complete_rows
from retention.core.table_requirements import AssertEpoch
from retention.core.table_updates import SetBatch, SetEpoch, SetNextSeq
from retention.datafile.parquet import describe, stats_table, write_messages
from retention.datafile.segment_writer import with_sequences
from retention.engines.select import Engines
from retention.errors import BusyError, RefusedError, StalePlanError, UsageError
from retention.formats.nats.backup import RAW_ROWS
from retention.history.runs import history_of
from retention.plan.planfile import load_plans
from retention.ports import Swap
from retention.rules.requests import Purge
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage.crash_points import Step, watched_by
from retention.stores.offset_table import OffsetTable
from retention.stores.parquet.log import LIST_EVERY
from tests.support.topic_crashes import NAME, import_logs, with_logs

NOW = 1_800_000_000 * 10**9


@pytest.fixture(params=["delta", "parquet"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    """Partition 0 has segments 0, 10 and the active 20, read up to 12 by consumer 7; partition 1 has 0 and 5."""
    with_logs(tmp_path, request.param)
    place = tmp_path / "retention.yaml"
    config = json.loads(place.read_text())
    config["topics"][0]["message_expiry"] = "never"
    place.write_text(json.dumps(config))
    warehouse = open_warehouse(place, engine="local", clock=lambda: NOW)
    import_logs(warehouse, tmp_path)
    return warehouse


@pytest.fixture
def topic(warehouse: Warehouse) -> Topic:
    return warehouse.topic(NAME)


@pytest.fixture
def again(warehouse: Warehouse) -> Callable[[], None]:
    """Import the same directory again."""
    return lambda: import_logs(warehouse, Path(warehouse.location))


def held(topic: Topic) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["seq"])
        for table in topic.messages()
        for row in table.select(["partition", "seq"]).to_pylist()
    ]


def counted(topic: Topic) -> tuple[dict[int, int], dict[int, int]]:
    counters = topic.opened.store.snapshot().counters
    return (
        {part: counters.next_seq[part] for part in (0, 1) if part in counters.next_seq},
        {part: counters.open_base[part] for part in (0, 1) if part in counters.open_base},
    )


def purge_run(topic: Topic) -> str:
    return next(str(one["run"]) for one in topic.history() if one["kind"] == "purge")


def test_everything_goes_and_offsets_begin_at_0_again(topic: Topic) -> None:
    before = held(topic)
    asked = topic.purge()
    assert "offsets begin at 0 again" in repr(asked)
    report = asked.apply()
    assert (report.removed_messages, report.by_rule) == (len(before), {"purge": len(before)})
    assert (report.files_read, report.bytes_written) == (0, 0)
    assert held(topic) == []
    assert topic.offsets() == []
    assert counted(topic) == ({}, {0: 0, 1: 0})
    parts = topic.state().as_json()["partitions"]
    assert [
        (one["first_seq"], one["last_seq"], one["segments"], one["active"]) for one in parts
    ] == [(0, -1, 1, 0)] * 2
    with pytest.raises(UsageError, match="never had a message"):
        topic.store_offset(0, "consumer", "7", 12)


def test_the_same_logs_can_be_imported_again(topic: Topic, again: Callable[[], None]) -> None:
    before, counters = held(topic), counted(topic)
    topic.purge().apply()
    again()
    assert (held(topic), counted(topic)) == (before, counters)
    assert [one.offset for one in topic.offsets()] == [12]
    again()
    assert held(topic) == before


def test_an_empty_topic_is_not_purged_again(topic: Topic) -> None:
    topic.purge().apply()
    version = topic.opened.store.snapshot().version
    assert topic.purge().plan.is_empty
    assert topic.purge().apply().removed_messages == 0
    assert topic.opened.store.snapshot().version == version


def test_what_is_asked_has_to_be_everything(topic: Topic) -> None:
    for some in ({"subject": "a"}, {"seq": 5}, {"keep": 5}):
        with pytest.raises(RefusedError, match="removes everything"):
            topic.purge(**some)


def test_it_is_explained_and_recorded(topic: Topic) -> None:
    asked = topic.purge()
    assert asked.explain(25).sentence == (
        "clicks 25 of partition 0 is removed with its segment: purge."
    )
    asked.apply()
    [record] = [one for one in topic.history() if one["kind"] == "purge"]
    assert record["ends_epoch"] == 0
    assert record["epoch"] == topic.opened.store.snapshot().counters.epoch > 0
    history = history_of(topic.opened.warehouse, NAME)
    assert history.next_seq(0, record["epoch"]) == 0
    assert history.next_seq(0, 0) in (0, 30)


def test_a_plan_of_before_never_acts_behind_it(
    topic: Topic, again: Callable[[], None], tmp_path: Path
) -> None:
    topic.store_offset(0, "consumer", "7", 4)
    plans = {"held": topic.delete_segments(0, 2), "whole": topic.delete_segments(1, 1)}
    plans |= {"purge": topic.purge(), "pass": topic.plan()}
    assert plans["held"].plan.is_empty
    for name, plan in plans.items():
        plan.save(tmp_path / f"{name}.json")
    topic.purge().apply()
    again()
    before = held(topic)
    for name, plan in plans.items():
        [loaded] = load_plans(str(tmp_path / f"{name}.json"))
        assert loaded.plan_id == plan.plan.plan_id
        with pytest.raises(StalePlanError):
            plan.apply()
    assert held(topic) == before
    assert OffsetTable(topic.opened.root).read().watermarks == {}


def test_a_plan_that_takes_nothing_yet_never_asks_behind_it(topic: Topic) -> None:
    """Its request would be cached, and nothing else shows that the topic has changed."""
    topic.store_offset(0, "consumer", "7", 4)
    asked = topic.delete_segments(0, 2)
    assert asked.plan.is_empty
    topic.purge().apply()
    with pytest.raises(StalePlanError, match="was purged or dropped since"):
        asked.apply()
    assert OffsetTable(topic.opened.root).read().watermarks == {}


def test_a_plan_says_in_which_epoch_it_was_made(topic: Topic, again: Callable[[], None]) -> None:
    topic.purge().apply()
    again()
    asked = topic.delete_segments(1, 1)
    assert asked.plan.header.epoch == topic.opened.store.snapshot().counters.epoch
    assert asked.apply().removed_messages == 5


def test_undoing_it_brings_everything_back(warehouse: Warehouse, topic: Topic) -> None:
    before, counters, stored = held(topic), counted(topic), topic.offsets()
    topic.purge().apply()
    warehouse.undo(purge_run(topic))
    assert (held(topic), counted(topic), topic.offsets()) == (before, counters, stored)
    assert topic.opened.store.snapshot().counters.epoch == 0
    with pytest.raises(UsageError, match="undone already"):
        warehouse.undo(purge_run(topic))
    topic.purge().apply()
    assert held(topic) == []


def test_messages_in_between_are_in_the_way_of_undoing_it(
    warehouse: Warehouse, topic: Topic, again: Callable[[], None]
) -> None:
    topic.purge().apply()
    again()
    before = held(topic)
    with pytest.raises(RefusedError, match="messages stored since run"):
        warehouse.undo(purge_run(topic))
    assert held(topic) == before


def test_an_older_run_is_not_undone_behind_it(
    warehouse: Warehouse, topic: Topic, again: Callable[[], None]
) -> None:
    older = topic.delete_segments(1, 1).apply().run
    topic.purge().apply()
    with pytest.raises(RefusedError, match="undo that one first"):
        warehouse.undo(older)
    warehouse.undo(purge_run(topic))
    warehouse.undo(older)
    assert (1, 0) in held(topic)
    topic.purge().apply()
    again()
    with pytest.raises(RefusedError, match="messages stored since run"):
        warehouse.undo(purge_run(topic))


def test_what_an_import_left_does_not_cost_the_offsets_of_before(
    warehouse: Warehouse, topic: Topic, again: Callable[[], None]
) -> None:
    """An import killed before its commit has already written its offsets."""
    stored = topic.offsets()
    topic.purge().apply()

    def die(step: Step) -> None:
        if step is Step.OFFSETS_KEPT:
            raise KeyboardInterrupt

    with watched_by(die), pytest.raises(KeyboardInterrupt):
        again()
    assert topic.offsets() == []
    warehouse.undo(purge_run(topic))
    assert topic.offsets() == stored


def test_an_offset_that_was_on_its_way_is_forgotten(topic: Topic) -> None:
    """An offset read before a purge and stored after it counts only in the epoch that was read."""
    table = OffsetTable(topic.opened.root)
    old = topic.opened.store.snapshot().counters
    topic.purge().apply()
    table.update(lambda before: before.counting(old))
    assert topic.offsets() == []
    assert table.live(old).barriers == {0: 12}


def append_one(topic: Topic) -> None:
    """Append a message to partition 0."""
    opened = topic.opened
    snapshot = opened.store.snapshot()
    seq = snapshot.counters.next_seq.get(0, 0)
    [file] = opened.store.stage(0, snapshot.counters.open_base.get(0, 0))
    columns = {"subject": [NAME], "ts_ns": [NOW], "headers": [None], "payload": [b"x"]}
    rows = pa.table(columns, schema=RAW_ROWS.remove(RAW_ROWS.get_field_index("seq")))
    write_messages(file.location, with_sequences([complete_rows(rows, "file")], seq))
    added = stats_table([describe(file).stats])
    said = {"run": f"append-{seq}"}
    swap = Swap(
        LOGGED_FILES.empty_table(),
        added,
        said,
        updates=[SetNextSeq(0, seq + 1), SetBatch("app", 1)],
    )
    opened.store.commit(swap, snapshot)


@pytest.mark.parametrize("step", [Step.UNDO_KEPT, Step.HISTORY_BEGUN, Step.HISTORY_DONE])
def test_an_append_at_the_same_time_comes_before_or_behind(topic: Topic, step: Step) -> None:
    """Before the purge, it is removed with everything else. After it, it gets the first offset."""
    done: list[Step] = []

    def rival(reached: Step) -> None:
        if reached is step and not done:
            done.append(step)
            append_one(topic)

    with watched_by(rival), Engines("local") as engines:
        remove_now(topic.opened, Purge(), engines)
    assert done
    behind = step is Step.HISTORY_DONE
    assert held(topic) == ([(0, 0)] if behind else [])
    assert topic.opened.store.snapshot().counters.batches.get("app") == (1 if behind else None)


def test_a_saved_purge_is_refused_when_messages_came(topic: Topic) -> None:
    asked = topic.purge()
    append_one(topic)
    with pytest.raises(StalePlanError, match="added meanwhile"):
        asked.apply()
    assert (0, 30) in held(topic)


def test_a_purge_is_not_undone_over_a_message_that_comes_at_the_same_time(
    warehouse: Warehouse, topic: Topic
) -> None:
    topic.purge().apply()
    done: list[Step] = []

    def rival(reached: Step) -> None:
        if reached is Step.HISTORY_BEGUN and not done:
            done.append(reached)
            append_one(topic)

    with watched_by(rival), pytest.raises(BusyError):
        warehouse.undo(purge_run(topic))
    assert held(topic) == [(0, 0)]
    with pytest.raises(RefusedError, match="messages stored since run"):
        warehouse.undo(purge_run(topic))


def test_an_offset_in_the_new_epoch_leaves_the_old_ones_be(topic: Topic) -> None:
    old = topic.opened.store.snapshot().counters
    topic.purge().apply()
    append_one(topic)
    topic.store_offset(0, "group", 3, 0)
    assert [(one.kind, one.offset) for one in topic.offsets()] == [("group", 0)]
    assert OffsetTable(topic.opened.root).live(old).barriers == {0: 12}


def test_a_purge_between_the_looks_and_the_commit_of_an_import_refuses_it(
    topic: Topic, again: Callable[[], None]
) -> None:
    topic.purge().apply()
    again()
    topic.purge().apply()

    def rival(step: Step) -> None:
        if step is Step.OFFSETS_KEPT:
            with watched_by(lambda _: None):
                opened = topic.opened
                snapshot = opened.store.snapshot()
                nothing = (LOGGED_FILES.empty_table(), FILE_STATS.empty_table())
                epoch = snapshot.counters.epoch
                begins = [AssertEpoch(epoch)], [SetEpoch(snapshot.version + 1)]
                swap = Swap(*nothing, {"run": "rival"}, *begins)
                opened.store.commit(swap, snapshot)

    with watched_by(rival), pytest.raises(BusyError):
        again()
    assert (held(topic), topic.offsets()) == ([], [])
    again()
    assert [one.offset for one in topic.offsets()] == [12]


def test_a_list_of_the_log_knows_the_epochs_that_ended(warehouse: Warehouse, topic: Topic) -> None:
    if topic.opened.config.format != "parquet":
        pytest.skip("a Delta log keeps its transactions by itself")
    before = counted(topic)
    topic.purge().apply()
    opened = topic.opened
    while opened.store.snapshot().version < LIST_EVERY + 1:
        nothing = Swap(LOGGED_FILES.empty_table(), FILE_STATS.empty_table(), {"run": "nothing"})
        opened.store.commit(nothing, opened.store.snapshot())
    entries = Path(opened.root, "_retention", "log")
    kept = entries.parent.parent / "kept"
    kept.mkdir()
    for entry in sorted(entries.glob("*.json"))[1:LIST_EVERY]:
        shutil.move(entry, kept)
    assert counted(topic) == ({}, {0: 0, 1: 0})
    warehouse.undo(purge_run(topic))
    assert counted(topic) == before
