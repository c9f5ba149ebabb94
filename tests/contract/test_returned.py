"""A concurrent deltalake operation restores quietly removed files: the next read reports it, a repair fixes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from deltalake import DeltaTable, write_deltalake

from retention.api.warehouse import Warehouse
from retention.apply.repair.returned import KIND
from retention.core.table_updates import SetEpoch, SetNextSeq, SetOpenBase, TableUpdate
from retention.errors import ForeignRowsError, RefusedError
from retention.ports import Swap
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.storage import crash_points
from retention.storage.crash_points import Step
from retention.stores.delta import internals, returned
from tests.contract.streams import foreign_rows
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with
from tests.support.sandboxes import Commands

LAID = set(range(1, 21))
STILL_THERE = set(range(8, 21))
"""The result of `max_msgs: 13`: the first segment is removed, and two messages of the second."""


WORKS: dict[str, tuple[Callable[[DeltaTable], Any], set[int]]] = {
    "compact": (lambda table: table.optimize.compact(), set()),
    "z-order": (lambda table: table.optimize.z_order(["seq"]), set()),
    "update": (
        lambda table: table.update({"msg_id": "'new'"}, predicate="seq in (1, 9, 12)"),
        set(),
    ),
    "delete": (lambda table: table.delete("seq in (2, 9, 12)"), {9, 12}),
}
"""Operations of deltalake on a table, and their own removals."""


def laid(folder: Path, **changed: Any) -> Warehouse:
    """Messages 1 to 20 in segments of five, each in two files; thirteen are kept."""
    warehouse = warehouse_with(
        folder, "delta", START + 10**6 * SECOND, **{"max_msgs": 13, "quiet": True, **changed}
    )
    cuts = [(base, low, low + count) for base in (1, 6, 11, 16) for low, count in parts(base)]
    files = [
        File(base, [Laid(seq, f"s.{seq % 3}", START + seq * SECOND) for seq in range(low, high)])
        for base, low, high in cuts
    ]
    lay(warehouse.new_stream("ORDERS").opened, files)
    return warehouse


def parts(base: int) -> list[tuple[int, int]]:
    return [(base, 3), (base + 3, 2)]


def opened_table(warehouse: Warehouse) -> DeltaTable:
    return DeltaTable(f"{warehouse.location}/streams/ORDERS/messages")


def stored(warehouse: Warehouse) -> list[int]:
    """The view of other readers of the table."""
    frame = pl.scan_delta(f"{warehouse.location}/streams/ORDERS/messages").select("seq")
    return sorted(frame.collect()["seq"].to_list())


def passed(warehouse: Warehouse) -> str:
    (outcome,) = warehouse.apply(["ORDERS"])
    assert outcome.value is not None, outcome.sentence
    return outcome.value.run


@pytest.mark.parametrize("name", WORKS)
def test_what_came_back_is_named_at_the_next_look_and_removed_by_a_command(
    tmp_path: Path, name: str
) -> None:
    work, meant = WORKS[name]
    warehouse = laid(tmp_path)
    under_way = opened_table(warehouse)
    run = passed(warehouse)
    assert stored(warehouse) == sorted(STILL_THERE)
    work(under_way)
    assert set(stored(warehouse)) - meant > STILL_THERE - meant, "deltalake prevents it now"
    for act in (warehouse.plan, warehouse.apply):
        error = act(["ORDERS"])[0].error
        assert isinstance(error, ForeignRowsError), error
        made, gone = str(error).split(" made ")[1].split(", which")[0].split(" of ")
        assert (tmp_path / "streams/ORDERS/messages" / made).exists()
        assert (tmp_path / "streams/ORDERS/messages" / gone).exists()
    with pytest.raises(ForeignRowsError, match="retention repair returned ORDERS"):
        warehouse.stream("ORDERS").publish(['{"subject": "a", "data": "x"}'])
    given = Commands(tmp_path)
    assert given.run("state", "ORDERS").exit_code == 4
    dry = given.json("repair", "returned", "ORDERS")
    assert dry["run"] is None
    assert dry["removed_messages"] == len(stored(warehouse)) - len(STILL_THERE - meant)
    assert given.json("repair", "returned", "ORDERS", "--yes") | {"run": None} == dry
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == sorted(STILL_THERE - meant)
    assert given.json("repair", "returned", "ORDERS")["commits"] == []
    record = warehouse.stream("ORDERS").history()[0]
    assert (record["kind"], record["repair"]) == ("repair", KIND)
    assert "repair" in given.run("history", "ORDERS").output
    warehouse.stream("ORDERS").publish(['{"subject": "a", "data": "x"}'])
    warehouse.undo(run)
    expected = (LAID | {21}) - meant
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == sorted(expected)


def test_a_repair_is_undone_like_any_run(tmp_path: Path) -> None:
    warehouse = laid(tmp_path, max_msgs=15)
    under_way = opened_table(warehouse)
    passed(warehouse)
    under_way.optimize.compact()
    repaired = warehouse.stream("ORDERS").repair_returned_messages().apply()
    assert repaired.run is not None
    assert stored(warehouse) == list(range(6, 21))
    warehouse.undo(repaired.run)
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == sorted(LAID)


def test_messages_that_others_append_around_are_kept(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    under_way = opened_table(warehouse)
    passed(warehouse)
    table = f"{warehouse.location}/streams/ORDERS/messages"
    write_deltalake(table, foreign_rows(range(21, 23), 16), mode="append")
    under_way.optimize.compact()
    write_deltalake(table, foreign_rows(range(23, 25), 16), mode="append")
    repaired = warehouse.stream("ORDERS").repair_returned_messages().apply()
    assert repaired.messages == 8, (
        "all of a segment that went whole, and of a file that was rewritten"
    )
    expected = sorted(STILL_THERE | set(range(21, 25)))
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == expected


def test_work_of_others_that_brings_nothing_back_is_let_be(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    passed(warehouse)
    opened_table(warehouse).optimize.compact()
    opened_table(warehouse).delete("seq = 9")
    assert warehouse.plan(["ORDERS"])[0].error is None
    assert warehouse.stream("ORDERS").repair_returned_messages().plan.commits == ()
    table = opened_table(warehouse)
    table.restore(1)
    assert warehouse.stream("ORDERS").repair_returned_messages().plan.commits == ()


def test_a_removal_that_is_not_quiet_stops_what_is_under_way(tmp_path: Path) -> None:
    for name, (work, _) in WORKS.items():
        warehouse = laid(tmp_path / name, quiet=False)
        under_way = opened_table(warehouse)
        passed(warehouse)
        with pytest.raises(Exception, match="concurrent transaction"):
            work(under_way)
        under_way = opened_table(warehouse)
        warehouse.undo(warehouse.stream("ORDERS").history()[0]["run"])
        with pytest.raises(Exception, match="concurrent transaction"):
            work(under_way)
        assert stored(warehouse) == sorted(LAID)


def test_what_stays_tells_what_came_back_once_the_removed_files_are_gone(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    under_way = opened_table(warehouse)
    passed(warehouse)
    under_way.optimize.compact()
    stream = warehouse.stream("ORDERS")
    before = stream.repair_returned_messages().plan
    [commit] = before.commits
    for path in commit.removed:
        (tmp_path / "streams/ORDERS/messages" / path).unlink()
    assert stream.repair_returned_messages().plan.as_json() == before.as_json()
    assert stream.repair_returned_messages().apply().messages == before.messages
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == sorted(STILL_THERE)


REWRITES: dict[str, Callable[[DeltaTable], Any]] = {
    "update": lambda table: table.update({"msg_id": "'new'"}, predicate="seq = 12"),
    "compact": lambda table: table.optimize.z_order(["seq"]),
    "delete": lambda table: table.delete("seq = 12"),
    "restore to a version that has it": lambda table: (
        table.delete("seq = 12"),
        table.restore(table.version() - 1),
        table.update({"msg_id": "'new'"}, predicate="seq = 13"),
    ),
}
"""Later operations of others on the restored files."""


@pytest.mark.parametrize("name", REWRITES)
def test_what_was_made_of_it_again_is_settled_by_the_restore_that_the_refusal_names(
    tmp_path: Path, name: str
) -> None:
    warehouse = laid(tmp_path)
    under_way = opened_table(warehouse)
    passed(warehouse)
    under_way.optimize.compact()
    REWRITES[name](opened_table(warehouse))
    stream = warehouse.stream("ORDERS")
    with pytest.raises(RefusedError, match="rewritten since") as refused:
        stream.repair_returned_messages().apply()
    told = re.search(r"or DeltaTable\('(.+)'\)\.restore\((\d+)\) of deltalake", str(refused.value))
    assert told is not None, refused.value
    DeltaTable(told[1]).restore(int(told[2]))
    assert stream.repair_returned_messages().plan.commits == ()
    passed(warehouse)
    stream.publish(['{"subject": "a", "data": "x"}'])
    passed(warehouse)
    expected = sorted((STILL_THERE | {21}) - {8})
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == expected


def test_what_came_back_counts_until_the_last_file_of_it_is_gone(tmp_path: Path) -> None:
    warehouse = laid(tmp_path)
    under_way = opened_table(warehouse)
    passed(warehouse)
    under_way.optimize.compact()
    stream = warehouse.stream("ORDERS")
    [before] = stream.repair_returned_messages().plan.commits
    assert len(before.made) == 4
    opened_table(warehouse).delete("partition = 0 and segment = 1")
    [after] = stream.repair_returned_messages().plan.commits
    assert len(after.made) == 3
    repaired = stream.repair_returned_messages().apply()
    assert repaired.messages == 3, "a file that was rewritten without two"
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == sorted(STILL_THERE)


def test_a_writer_that_comes_while_it_is_mended_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = laid(tmp_path)
    first, second = opened_table(warehouse), opened_table(warehouse)
    passed(warehouse)
    first.update({"msg_id": "'new'"}, predicate="seq = 1")
    waiting = [lambda: second.update({"msg_id": "'new'"}, predicate="seq = 7")]

    def passed_by(step: Step) -> None:
        if step == Step.DELTA_COMMITTING and waiting:
            waiting.pop()()

    monkeypatch.setattr(crash_points, "_watch", passed_by)
    warehouse.stream("ORDERS").repair_returned_messages().apply()
    assert stored(warehouse) == held(warehouse)["seq"].to_pylist() == sorted(STILL_THERE)


def test_a_repair_is_not_committed_in_an_epoch_that_a_rival_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pinned files still exist: without the check of the epoch, the retry would continue in another one."""
    warehouse = laid(tmp_path)
    under_way = opened_table(warehouse)
    passed(warehouse)
    under_way.optimize.compact()
    before = stored(warehouse)

    def begin_epoch() -> None:
        store = warehouse.stream("ORDERS").opened.store
        snapshot, _ = store.resurrected_files()
        nothing = (LOGGED_FILES.empty_table(), FILE_STATS.empty_table())
        begins: list[TableUpdate] = [
            SetEpoch(snapshot.version + 1),
            SetNextSeq(0, 21),
            SetOpenBase(0, 16),
        ]
        store.commit(Swap(*nothing, {"run": "rival"}, updates=begins), snapshot)

    waiting = [begin_epoch]

    def passed_by(step: Step) -> None:
        if step == Step.DELTA_COMMITTING and waiting:
            waiting.pop()()

    monkeypatch.setattr(crash_points, "_watch", passed_by)
    repaired = warehouse.stream("ORDERS").repair_returned_messages().apply()
    assert repaired.run is None
    assert stored(warehouse) == before


def test_a_long_log_of_others_is_looked_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = laid(tmp_path)
    log = tmp_path / "streams/ORDERS/messages/_delta_log"
    passed(warehouse)
    newest = opened_table(warehouse).version()
    for number in range(newest + 1, newest + 101):
        info = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "engineInfo": "a mirror"}}
        (log / f"{number:020d}.json").write_text(json.dumps(info) + "\n")
    read: list[bytes] = []

    def counted(entry: bytes) -> dict[str, object]:
        read.append(entry)
        return internals.commit_info(entry)

    monkeypatch.setattr(returned, "commit_info", counted)
    for expected in (101, 0):
        assert warehouse.stream("ORDERS").repair_returned_messages().plan.commits == ()
        assert len(read) == expected
        read.clear()
