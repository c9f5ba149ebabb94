"""Legal holds: no way to remove messages takes a held one, and a record that is lost stops every removal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply import execute
from retention.core.units import DAY
from retention.errors import ConfigError, DamagedError, RefusedError, StalePlanError, UsageError
from retention.rules.holds import HeldMessages, HoldVeto
from retention.stores.holds import Hold, HoldRecords
from retention.views.reclaim import reclaim_text
from retention.views.text_hold import holds_clause
from tests.retention.api.test_pausing import REMOVALS, ROLLED, only
from tests.retention.api.test_table import NOW as NOW_OF_TABLE
from tests.retention.api.test_table import warehouse as warehouse_of_table
from tests.support.reclaiming import TICK_S, emptied, real_warehouse
from tests.support.sandboxes import NOW, Commands, lines, opened

REFUSED = {"drop", "leftovers", "delete --erase"}
"""The removals that cannot leave held messages out."""


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = opened(tmp_path, ROLLED)
    made.stream("ORDERS").publish(lines(100))
    return made


def stored(warehouse: Warehouse) -> list[int]:
    tables = warehouse.stream("ORDERS").messages()
    return [seq for table in tables for seq in table["seq"].to_pylist()]


@pytest.mark.parametrize("name", sorted({*REMOVALS} - {"saved plan", "reclaim"}))
def test_no_removal_takes_a_held_message(warehouse: Warehouse, name: str) -> None:
    hold = warehouse.hold("ORDERS", reason="case 41", to_seq=1)
    if name in REFUSED:
        with pytest.raises(RefusedError, match=hold.id):
            REMOVALS[name](warehouse)
    else:
        REMOVALS[name](warehouse)
    assert 1 in stored(warehouse)
    assert warehouse.release_hold(hold.id, reason="closed").end is not None
    warehouse.stream("ORDERS").purge().apply()
    assert 1 not in stored(warehouse)


def test_a_plan_made_before_a_hold_is_refused(warehouse: Warehouse) -> None:
    plan = only(warehouse.plan(["ORDERS"]))
    hold = warehouse.hold("ORDERS", reason="case 41", subject="orders.>", to_seq=2)
    with pytest.raises(StalePlanError, match="a legal hold was placed or released"):
        only(warehouse.apply_plans([plan]))
    again = only(warehouse.plan(["ORDERS"]))
    assert again.kept_by_holds == {hold.id: 2}
    assert again.removed_messages == plan.removed_messages - 2
    assert again.plan_id != plan.plan_id


def test_a_hold_placed_before_the_commit_counts(
    warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = execute.prepare
    placed: list[Hold] = []

    def prepare_late(*given: Any) -> Any:
        prepared = prepare(*given)
        if not placed:
            placed.append(warehouse.hold("ORDERS", reason="late", to_seq=1))
        return prepared

    monkeypatch.setattr(execute, "prepare", prepare_late)
    report = only(warehouse.apply(["ORDERS"]))
    assert report.kept_by_holds == {placed[0].id: 1}
    assert 1 in stored(warehouse)


@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_nothing_is_removed_while_a_record_is_missing(warehouse: Warehouse, harm: str) -> None:
    hold = warehouse.hold("ORDERS", reason="case 41", to_seq=1)
    record = Path(warehouse.stream("ORDERS").opened.root, "holds", f"{hold.id}.json")
    content = record.read_bytes()
    if harm == "lost":
        record.unlink()
    else:
        record.write_bytes(content.replace(b"[0, 1]", b"[0, 0]"))
    with pytest.raises(DamagedError, match="nothing was removed; restore"):
        only(warehouse.apply(["ORDERS"]))
    record.write_bytes(content)
    assert only(warehouse.apply(["ORDERS"])).kept_by_holds == {hold.id: 1}


def test_a_hold_expires_on_record(tmp_path: Path) -> None:
    at = [NOW]
    made = opened(tmp_path, ROLLED)
    made.clock = lambda: at[0]
    made.stream("ORDERS").publish(lines(100))
    hold = made.hold("ORDERS", reason="case 41", to_seq=1, until=NOW + DAY)
    at[0] += 2 * DAY
    assert [each.id for each in made.holds()] == [hold.id]
    report = only(made.apply(["ORDERS"]))
    assert (report.expired_holds, report.kept_by_holds) == ([hold.id], None)
    assert made.holds() == []
    assert [each.end and each.end.kind for each in made.holds(ended=True)] == ["expired"]


def test_a_removal_planned_under_a_hold_that_expires_first_is_planned_again(tmp_path: Path) -> None:
    at = [NOW]
    made = opened(tmp_path, ROLLED)
    made.clock = lambda: at[0]
    stream = made.stream("ORDERS")
    stream.publish(lines(2))
    hold = made.hold("ORDERS", reason="case 41", to_seq=1, until=NOW + DAY)
    at[0] += 2 * DAY
    planned = stream.delete(1)
    assert planned.plan.kept_by_holds == {hold.id: 1}
    with pytest.raises(StalePlanError, match="placed or released since"):
        planned.apply()
    assert stream.delete(1).apply().removed_messages == 1


def test_holds_that_cannot_be_are_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    for wrong in (
        {"reason": " "},
        {"subject": "a..b"},
        {"from_seq": 5, "to_seq": 4},
        {"ranges": [[1, 2, 3]]},
        {"ranges": [[1, 2]], "to_seq": 5},
        {"until": NOW - 1},
        {"from_time": NOW, "to_time": NOW},
    ):
        with pytest.raises(UsageError):
            warehouse.hold("ORDERS", **({"reason": "x"} | wrong))
    with pytest.raises(UsageError, match="has such a legal hold"):
        warehouse.release_hold("nothing", reason="x")
    with pytest.raises(RefusedError, match="messages have no columns"):
        warehouse.hold("ORDERS", reason="x", key={"tenant": "a"})
    assert warehouse.holds() == []
    warehouse.stream("ORDERS").drop().apply()
    with pytest.raises(RefusedError, match="the stream is dropped"):
        warehouse.hold("ORDERS", reason="x")


def test_rows_of_a_table_are_held_and_explained(tmp_path: Path) -> None:
    made = warehouse_of_table(tmp_path)
    first = NOW_OF_TABLE // 10**9 - 86_400 * 99
    hold = made.hold("events", reason="case 41", key={"at": first})
    assert [each.id for each in made.holds(["events"])] == [hold.id]
    table = made.table("events")
    [row] = table.explain(file=table.plan().to_pandas()["path"][0], row=99).rows
    assert (row.limit, row.legal_holds) == (None, {hold.id: "case 41"})
    report = table.apply()
    assert f"legal hold {hold.id} keeps 1 row" in repr(report)
    assert table.state().as_json()["holds"][0]["key"] == {"at": str(first)}
    with pytest.raises(UsageError, match="ends before it begins"):
        made.hold("events", reason="x", from_time=NOW, to_time=NOW)
    with pytest.raises(RefusedError, match="neither subjects nor sequences"):
        made.hold("events", reason="x", to_seq=5)
    assert made.release_hold(hold.id, reason="closed").end is not None
    assert table.apply().removed_rows == 1
    assert made.holds() == []


def configured_with(made: Warehouse, holds: list[dict[str, Any]]) -> Warehouse:
    """The warehouse with these legal holds in its configuration."""
    assert made.config.file is not None
    file = Path(made.config.file)
    content = json.loads(file.read_text())
    for entry in [*content.get("streams", []), *content.get("tables", [])]:
        entry["holds"] = holds
    file.write_text(json.dumps(content))
    return open_warehouse(file, engine="local", clock=made.clock)


def test_a_hold_of_the_configuration_is_pending_until_a_run_removes(warehouse: Warehouse) -> None:
    line = {"reason": "case 41", "subject": "orders.>", "to_seq": 2}
    made = configured_with(warehouse, [line])
    stream = made.stream("ORDERS")
    [pending] = made.holds()
    assert (pending.line, pending.as_json()["line"]) == ("pending", "pending")
    assert "1 legal hold (1 pending)" in holds_clause(stream.state().holds)
    plan = only(made.plan(["ORDERS"]))
    assert plan.kept_by_holds == {pending.id: 2}
    assert HoldRecords(stream.opened.root, "ORDERS").all() == []
    assert only(made.apply(["ORDERS"])).kept_by_holds == {pending.id: 2}
    [placed] = made.holds()
    assert placed.line is None
    assert placed.initiator is not None
    assert "retention.yaml" in placed.initiator["configuration"]
    changed = configured_with(made, [line | {"to_seq": 3}])
    assert [hold.line for hold in changed.holds()] == ["deleted", "pending"]
    without = configured_with(made, [])
    assert [hold.line for hold in without.holds()] == ["deleted"]
    without.stream("ORDERS").purge().apply()
    assert stored(without) == [1, 2]
    without.release_hold(placed.id, reason="closed")
    again = configured_with(without, [line])
    assert again.holds() == []
    again.stream("ORDERS").purge().apply()
    assert stored(again) == []


def test_a_hold_of_a_table_s_configuration_is_pending_until_a_run_removes(tmp_path: Path) -> None:
    oldest = NOW_OF_TABLE // 10**9 - 86_400 * 99
    made = configured_with(warehouse_of_table(tmp_path), [{"reason": "x", "key": {"at": oldest}}])
    [pending] = made.holds()
    plan = made.table("events").plan()
    assert (pending.line, plan.plan.kept_by_holds) == ("pending", {pending.id: 1})
    assert plan.apply().plan.kept_by_holds == {pending.id: 1}
    assert [hold.line for hold in made.holds()] == [None]
    without = configured_with(made, [])
    assert [hold.line for hold in without.holds()] == ["deleted"]
    assert without.table("events").apply().removed_rows == 0


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ({"subject": "a"}, "reason"),
        ({"reason": " "}, "reason"),
        ({"reason": "x", "subject": "a..b"}, "is not a subject filter"),
        ({"reason": "x", "from_seq": 3, "to_seq": 2}, "covers no sequence"),
        ({"reason": "x", "key": {"a": 1}}, "key"),
        (
            {"reason": "x", "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"},
            "ends before",
        ),
    ],
)
def test_wrong_holds_of_a_configuration_are_refused(
    warehouse: Warehouse, line: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        configured_with(warehouse, [line]).stream("ORDERS")


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_a_reclaim_keeps_what_may_have_a_held_message(tmp_path: Path, format_: str) -> None:
    emptied(tmp_path, format_, max_msgs=10)
    made = real_warehouse(tmp_path, format_, max_msgs=10)
    time.sleep(TICK_S)
    [dead] = made.reclaim(["ORDERS"]).plan
    assert dead.value is not None
    removed = dead.value.going["removed"].files
    assert removed == 3
    by_seq = made.hold("ORDERS", reason="x", ranges=[(5, 5), (1_000, 1_001)])
    nothing = made.hold("ORDERS", reason="x", subject="never.seen")
    time.sleep(TICK_S)
    report = only(made.reclaim(["ORDERS"]).apply())
    assert report.kept_by_holds == {by_seq.id: 1, nothing.id: 0}
    assert (report.going["removed"].files, report.staying["held"].files) == (2, 1)
    assert f"legal hold {by_seq.id} keeps 1 file" in "\n".join(reclaim_text(report))
    record = Path(made.stream("ORDERS").opened.root, "holds", f"{by_seq.id}.json")
    content = record.read_bytes()
    record.unlink()
    with pytest.raises(DamagedError):
        only(made.reclaim(["ORDERS"]).apply())
    record.write_bytes(content)
    made.release_hold(by_seq.id, reason="closed")
    time.sleep(TICK_S)
    again = only(made.reclaim(["ORDERS"]).apply())
    assert (again.going["removed"].files, again.staying) == (1, {})


def test_a_reclaim_keeps_files_of_an_unknown_subject(tmp_path: Path) -> None:
    emptied(tmp_path, "delta", max_msgs=10)
    made = real_warehouse(tmp_path, "delta", max_msgs=10)
    digests = Path(made.stream("ORDERS").opened.root, "_retention", "subjects")
    counted = [path for path in digests.rglob("*") if path.is_file()]
    assert counted
    for path in counted:
        path.unlink()
    hold = made.hold("ORDERS", reason="x", subject="never.seen")
    time.sleep(TICK_S)
    assert only(made.reclaim(["ORDERS"]).apply()).kept_by_holds == {hold.id: 3}


def test_an_undo_holds_what_it_restores(warehouse: Warehouse) -> None:
    stream = warehouse.stream("ORDERS")
    stream.delete(7).apply()
    run = stream.purge(keep=10).apply().run
    warehouse.undo(run, hold="case 41")
    [hold] = warehouse.holds()
    assert hold.ranges is not None
    assert hold.ranges.tolist() == [[1, 6], [8, 90]]
    assert (hold.reason, (hold.initiator or {})["undoes"]) == ("case 41", run)
    stream.purge().apply()
    assert stored(warehouse) == [*range(1, 7), *range(8, 91)]
    with pytest.raises(UsageError, match="undone already"):
        warehouse.undo(run, hold="again")
    assert len(warehouse.holds()) == 1
    with pytest.raises(UsageError, match="needs text"):
        warehouse.undo(run, hold=" ")


def test_an_undo_of_a_drop_takes_no_hold(warehouse: Warehouse) -> None:
    run = warehouse.stream("ORDERS").drop().apply().run
    with pytest.raises(RefusedError, match="no record has the sequences"):
        warehouse.undo(run, hold="case 41")
    warehouse.undo(run)
    assert len(stored(warehouse)) == 100


def test_auditors_see_each_hold_with_its_end(warehouse: Warehouse, tmp_path: Path) -> None:
    ended = warehouse.hold("ORDERS", reason="case 41", to_seq=1, owner="legal")
    lasting = warehouse.hold("ORDERS", reason="<case 42>", subject="orders.>")
    warehouse.release_hold(ended.id, reason="closed")
    commands = Commands(tmp_path)
    document = json.loads(commands.run("--format", "json", "history", "export", "ORDERS").stdout)
    by_id = {hold["id"]: hold for hold in document["holds"]}
    assert by_id[ended.id]["end"]["kind"] == "released"
    assert "end" not in by_id[lasting.id]
    page = commands.run("--format", "html", "history", "export", "ORDERS").stdout
    assert "closed" in page
    assert "&lt;case 42&gt;" in page
    assert ended.was_in_effect(None, None)
    assert not ended.was_in_effect(None, NOW)
    [over] = [hold for hold in warehouse.holds(ended=True) if hold.id == ended.id]
    assert not replace(over, end=over.end and replace(over.end, at_ns=NOW)).was_in_effect(
        NOW + 1, None
    )


def test_many_ranges_are_stored_beside_the_record(warehouse: Warehouse) -> None:
    pairs = [(seq, seq) for seq in range(1, 4_001, 2)]
    warehouse.hold("ORDERS", reason="case 41", ranges=pairs)
    (hold,) = HoldRecords(warehouse.stream("ORDERS").opened.root, "ORDERS").all()
    assert hold.ranges is not None
    assert hold.ranges.tolist() == [list(pair) for pair in pairs]
    warehouse.stream("ORDERS").purge().apply()
    assert stored(warehouse) == list(range(1, 100, 2))


def covered(hold: HeldMessages, rows: pa.Table) -> list[int]:
    return rows["seq"].filter(pa.array(HoldVeto((hold,)).covers(rows)[0])).to_pylist()


def test_a_hold_covers_what_matches_all_of_its_fields() -> None:
    rows = pa.table(
        {"seq": [1, 2, 3, 4], "subject": ["a.1", "b", "a.2", "a.3"], "ts_ns": [5, 6, 7, 8]}
    )
    hold = HeldMessages("h", "a.*", np.array([[1, 3]]), 5, 8)
    by_part: dict[str, Callable[[HeldMessages], HeldMessages]] = {
        "1, 3": lambda one: one,
        "1, 2, 3": lambda one: replace(one, subject=None),
        "1": lambda one: replace(one, to_ns=7),
        "3": lambda one: replace(one, from_ns=6),
        "": lambda one: one.between(4, 9),
    }
    for seqs, part in by_part.items():
        assert ", ".join(map(str, covered(part(hold), rows))) == seqs


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_a_held_message_that_a_later_one_of_its_batch_rolls_up_is_stored(
    tmp_path: Path, format_: str
) -> None:
    settings = {"name": "ORDERS", "subjects": ["orders.>"], "allow_rollup_hdrs": True}
    made = opened(tmp_path, settings, format=format_)
    made.stream("ORDERS").publish([b'{"subject": "orders.a", "data": "1"}'])
    made.hold("ORDERS", reason="case 41", to_seq=2)
    rolled = {"subject": "orders.a", "data": "x", "headers": {"Nats-Rollup": "sub"}}
    batch = [{"subject": "orders.a", "data": "2"}, {"subject": "orders.a", "data": "3"}, rolled]
    made.stream("ORDERS").publish([json.dumps(line).encode() for line in batch])
    assert stored(made) == [1, 2, 4]


def test_a_held_message_that_no_consumer_wants_is_stored(tmp_path: Path) -> None:
    settings = {"subjects": ["orders.>"], "retention": "interest", "unmatched": "remove"}
    made = opened(tmp_path, {"name": "ORDERS", **settings})
    stream = made.stream("ORDERS")
    stream.publish([b'{"subject": "orders.a", "data": "1"}'])
    stream.consumers.add({"durable_name": "billing", "filter_subject": "orders.a"})
    made.hold("ORDERS", reason="case 41", to_seq=2)
    lines_of_b = [b'{"subject": "orders.b", "data": "2"}', b'{"subject": "orders.b", "data": "3"}']
    published = stream.publish(lines_of_b)
    assert published.unwanted == 1
    assert stored(made) == [1, 2]
