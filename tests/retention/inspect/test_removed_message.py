"""Explanation of a removed message: its run and reason, or a sentence that no record is left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply.reclaim.survey import survey
from retention.context.run_files import undo_location
from retention.core.units import DAY
from retention.errors import MissingMessageError
from retention.history.runs import history_of
from retention.storage import files
from retention.storage.checksum import with_checksum
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with
from tests.support.topics import World, line

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
Make = Callable[..., Warehouse]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of four segments of ten messages on s.0, s.1 and s.2 in turn, a second apart."""

    def made(**settings: Any) -> Warehouse:
        warehouse = warehouse_with(tmp_path, request.param, NOW, **settings)
        opened = warehouse.stream("ORDERS").opened
        if not opened.store.exists():
            lay(opened, even_segments(4, 10))
        return warehouse

    return made


def passed(warehouse: Warehouse) -> str:
    [outcome] = warehouse.apply(as_of=AS_OF)
    assert outcome.value is not None, outcome.sentence
    return outcome.value.run


def test_the_run_the_rule_and_its_numbers_are_named(make: Make) -> None:
    warehouse = make(max_age="60s")
    orders = warehouse.stream("ORDERS")
    run = passed(warehouse)
    for seq, rewritten in ((3, False), (12, True)):
        told = orders.explain(seq)
        assert (told.rule, told.goes, told.subject) == ("max_age", False, f"s.{seq % 3}")
        assert told.sentence == (
            f"ORDERS {seq} (s.{seq % 3}) was removed by run {run} of 2023-11-14T22:15:00Z: max_age 1m, stored by "
            f"2023-11-14T22:13:35Z; `retention undo {run}` can restore it until 2023-11-21T22:15:00Z at least."
        )
        assert f"and 1m{15 - seq if seq != 15 else 0}s old then" in told.arithmetic[0]
        assert f"it was in segment {11 if rewritten else 1} (partition=0/segment=" in "".join(
            told.arithmetic
        )
        removed = told.as_json()["removed"]
        assert (removed["run"], removed["certain"], removed["rules"]) == (run, True, ["max_age"])
        assert removed["who"]["pid"]
        assert removed["recovery"]["possible"]
    stays = orders.explain(30).as_json()
    assert "removed" not in stays


def test_a_request_is_named_as_it_was_made(make: Make) -> None:
    orders = make().stream("ORDERS")
    run = orders.delete(17).apply().run
    assert f"removed by run {run} of 2023-11-14T22:15:00Z: delete; " in orders.explain(17).sentence


def test_what_statistics_shared_out_is_not_guessed_at(make: Make) -> None:
    warehouse = make(max_msgs=33, max_bytes=900, max_msgs_per_subject=8)
    passed(warehouse)
    told = warehouse.stream("ORDERS").explain(3)
    assert told.rule is None
    assert " or max_bytes " in told.sentence
    assert any("the number by rule is on record (" in each for each in told.arithmetic)


def test_the_newest_run_that_was_not_undone_answers(make: Make) -> None:
    warehouse = make(max_age="60s")
    first = passed(warehouse)
    undo = warehouse.undo(first)["run"]
    assert warehouse.stream("ORDERS").explain(3).goes
    second = passed(warehouse)
    told = warehouse.stream("ORDERS").explain(3)
    assert second in told.sentence
    assert first not in told.sentence
    assert undo not in told.sentence


def test_a_later_run_across_whose_range_it_lay_did_not_take_it(make: Make, tmp_path: Path) -> None:
    orders = make().stream("ORDERS")
    first = orders.delete(5).apply().run
    second = orders.purge().apply().run
    told = {seq: orders.explain(seq).as_json()["removed"] for seq in (5, 6)}
    assert {seq: one["run"] for seq, one in told.items()} == {5: first, 6: second}
    for file in tmp_path.rglob("segment=1/*.parquet"):
        file.unlink()
    assert orders.explain(5).as_json()["removed"]["run"] == first
    unsure = orders.explain(6)
    assert f"by run {second} of 2023-11-14T22:15:00.000000001Z or an earlier one: purge" in (
        unsure.sentence
    )
    assert not unsure.as_json()["removed"]["certain"]


def test_a_removal_before_a_restore_is_not_the_last_for_certain(make: Make, tmp_path: Path) -> None:
    orders = make(archive=str(tmp_path / "archive")).stream("ORDERS")
    first = orders.delete(5, 7, 9).apply().run
    orders.restore()
    orders.delete(7).apply()
    last = orders.purge().apply().run
    assert orders.explain(5).as_json()["removed"]["run"] == last
    for file in (tmp_path / "streams").rglob("segment=1/*.parquet"):
        file.unlink()
    unsure = orders.explain(5).as_json()["removed"]
    assert (unsure["run"], unsure["certain"]) == (last, False)
    assert first not in orders.explain(5).sentence


def test_a_message_that_was_never_stored_is_none_that_is_gone(make: Make) -> None:
    with pytest.raises(
        MissingMessageError, match="ORDERS 500 was never stored: the next message gets 41"
    ):
        make().stream("ORDERS").explain(500)


def test_a_message_that_no_run_took_is_not_said_to_be_none(make: Make) -> None:
    warehouse = make()
    store = warehouse.stream("ORDERS").opened.store
    if warehouse.config.streams[0].format == "delta":
        DeltaTable(f"{warehouse.stream('ORDERS').opened.root}/messages").delete("seq = 17")
    else:
        pytest.skip("what another writer takes from a plain Parquet stream is damage")
    assert 17 not in store.snapshot().files["path"].to_pylist()
    with pytest.raises(MissingMessageError, match="may have existed: another program may have"):
        warehouse.stream("ORDERS").explain(17)


def test_a_message_that_came_back_and_went_elsewhere_is_told_so(make: Make) -> None:
    warehouse = make(max_age="60s")
    orders = warehouse.stream("ORDERS")
    if warehouse.config.streams[0].format != "delta":
        pytest.skip("what another writer takes from a plain Parquet stream is damage")
    run = passed(warehouse)
    undo = warehouse.undo(run)["run"]
    DeltaTable(f"{orders.opened.root}/messages").delete("seq = 3")
    with pytest.raises(MissingMessageError, match=f"run {run} did, run {undo} restored it"):
        orders.explain(3)


def older(warehouse: Warehouse, run: str) -> None:
    """Convert a run's records to those of an earlier version of this program."""
    opened = warehouse.stream("ORDERS").opened
    files.delete([undo_location(opened, run, "ranges")])
    history = history_of(opened.warehouse, opened.name)
    for read, suffix in ((history.begun, "begun"), (history.done, "done")):
        record = read(run)
        assert record is not None
        old = {name: value for name, value in record.as_json().items() if name != "who"}
        place = f"{history.directory}/{run}.{suffix}.json"
        files.replace(place, json.dumps(with_checksum(old)).encode())


def test_a_run_of_an_earlier_version_may_have_taken_it(make: Make) -> None:
    warehouse = make(max_age="60s")
    run = passed(warehouse)
    older(warehouse, run)
    told = warehouse.stream("ORDERS").explain(3)
    assert f"may have been removed by run {run} of 2023-11-14T22:15:00Z: " in told.sentence
    assert told.arithmetic == (
        "max_age 1m, stored by 2023-11-14T22:13:35Z",
        "run by an unrecorded process",
    )
    removed = told.as_json()["removed"]
    assert (removed["certain"], removed["run"], removed["who"]) == (False, run, None)


def test_where_its_files_are_gone_no_undo_is_promised(make: Make) -> None:
    warehouse = make(max_age="60s")
    run = passed(warehouse)
    orders = warehouse.stream("ORDERS")
    opened = orders.opened
    row = orders.explain(3)
    for place in ("messages", "_retention/trash"):
        shutil.rmtree(Path(opened.root) / place / "partition=0" / "segment=1", ignore_errors=True)
    told = orders.explain(3)
    assert row.subject == "s.0"
    assert told.subject is None
    assert told.rule == "max_age"
    assert (
        ": max_age 1m, stored by 2023-11-14T22:13:35Z; undo cannot restore it: files that held it were deleted"
        in told.sentence
    )
    assert run in told.sentence


def test_after_grace_nothing_is_promised(make: Make, tmp_path: Path) -> None:
    run = passed(make(max_age="60s"))
    later = open_warehouse(tmp_path / "retention.yaml", engine="local", clock=lambda: NOW + 8 * DAY)
    told = later.stream("ORDERS").explain(3, as_of=NOW)
    assert (
        f"`retention undo {run}` may still restore it: the grace period ended at 2023-11-21T22:15:00Z"
        in told.sentence
    )


def test_a_lowered_grace_ends_when_a_reclaim_says(make: Make, tmp_path: Path) -> None:
    run = passed(make(max_age="60s", grace="7d"))
    file = tmp_path / "retention.yaml"
    file.write_text(file.read_text().replace("7d", "1d"))
    warehouse = open_warehouse(file, engine="local", clock=lambda: NOW + 2 * DAY)
    grace_ns = survey(warehouse.stream("ORDERS").opened, NOW + 2 * DAY).grace_ns
    removal = warehouse.stream("ORDERS").explain(3, as_of=NOW).as_json()["removed"]
    assert removal["recovery"]["until_ns"] == removal["removed_ns"] + grace_ns
    promised = f"`retention undo {run}` can restore it until"
    assert (promised in removal["recovery"]["sentence"]) == (grace_ns > 2 * DAY)


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_offsets_of_before_a_purge_are_told_apart(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path, format_)
    world.topic.publish([line(partition=0) for _ in range(5)])
    run = world.topic.purge().apply().run
    told = world.topic.explain(3)
    assert (
        f"clicks 3 of partition 0, of the offsets that ended when run {run} purged the topic, was removed by run {run} "
    ) in told.sentence
    world.topic.publish([line(partition=0)])
    assert world.topic.explain(0).removed is None
    assert world.topic.explain(3).removed is not None
    with pytest.raises(MissingMessageError, match="clicks 9 of partition 0 was never stored"):
        world.topic.explain(9)


def test_a_roll_up_is_named(make: Make) -> None:
    orders = make(allow_rollup_hdrs=True).stream("ORDERS")
    message = {"subject": "s.1", "data": "now", "headers": {"Nats-Rollup": "sub"}}
    orders.publish([json.dumps(message)])
    told = orders.explain(4)
    assert told.rule == "rollup"
    assert ": rollup, a later message replaced them; " in told.sentence
