"""Deleted subjects on real stores: searched files and number of searches; a pass, its undo and its sentences."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retention.api.warehouse import Warehouse
from retention.core import headers
from retention.engines.select import Engines
from retention.plan.planfile import load_plans, save_plans
from retention.planners import deleted_subjects
from retention.planners.cached import plan_pass
from retention.planners.estimate import estimate
from retention.planners.explain import explain_by
from retention.rules import digest_batches
from retention.rules.jetstream.interest import Interest
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from retention.stores.file_store import FileStore
from tests.support.interests import record_of
from tests.support.laying import SECOND, START, File, Laid, held, lay, warehouse_with
from tests.support.trees import scramble

NOW = START + 100 * SECOND
FORMATS = ["delta", "parquet"]
KEPT = 20 * SECOND


def laid(seq: int, subject: str, at: int, *pairs: tuple[str, str]) -> Laid:
    """A message at second `at`, with these headers."""
    block = headers.build(pairs) if pairs else None
    return Laid(seq, subject, START + at * SECOND, b"x", headers=block)


DEL = (headers.KV_OPERATION, "DEL")
FILES = [
    File(1, [laid(1, "ada", 10), laid(2, "bob", 11), laid(3, "ada", 12, DEL)]),
    File(4, [laid(4, "bob", 20), laid(5, "cho", 21), laid(6, "dan", 22)]),
    File(7, [laid(7, "cho", 30, DEL), laid(8, "dan", 31, DEL), laid(9, "dan", 32)]),
    File(10, [laid(10, "bob", 95, DEL), laid(11, "eve", 96)]),
]
"""Keys: ada and cho were deleted long ago, bob recently; dan was set again, and eve was never deleted."""
GONE = [1, 3, 5, 7]


@pytest.fixture(params=FORMATS)
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(tmp_path, request.param)


def made(folder: Path, format_: str, **limits: Any) -> Warehouse:
    warehouse = warehouse_with(
        folder, format_, NOW, **{"delete_retention": KEPT, "deny_delete": True} | limits
    )
    lay(warehouse.stream("ORDERS").opened, FILES)
    return warehouse


def seqs(warehouse: Warehouse) -> list[int]:
    left: list[int] = held(warehouse)["seq"].to_pylist()
    return left


def test_deleted_keys_go_whole_and_come_back_by_undo(keys: Warehouse) -> None:
    before = held(keys)
    [outcome] = keys.apply()
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.by_rule == {"delete_retention": 4}
    assert seqs(keys) == [2, 4, 6, 8, 9, 10, 11]
    assert keys.history()[0]["by_rule"] == {"delete_retention": 4}
    keys.undo(outcome.value.run)
    assert held(keys).equals(before)
    assert keys.stream("ORDERS").plan().plan.by_rule == {"delete_retention": 4}


def test_what_is_left_is_planned_again_without_a_look_into_files_that_stayed(
    keys: Warehouse,
) -> None:
    keys.apply()
    orders = keys.stream("ORDERS")
    first, second = orders.plan().plan, orders.plan().plan
    assert first.is_empty
    # Three files were rewritten; the young one is not among them.
    assert (first.header.read.files, second.header.read.files) == (3, 0)


def test_a_file_is_looked_into_once_and_a_young_one_never(keys: Warehouse) -> None:
    orders = keys.stream("ORDERS")
    asked = 3
    assert orders.plan().plan.header.read.files == 3 + asked
    assert orders.plan().plan.header.read.files == asked


def test_nothing_is_read_before_a_message_is_old_enough(
    keys: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileStore, "subject_counts", None)
    plan = keys.stream("ORDERS").plan(as_of=START + 29 * SECOND).plan
    assert (plan.is_empty, plan.header.read.files) == (True, 0)


def test_a_stream_of_values_alone_is_not_opened_again_until_it_can_matter(tmp_path: Path) -> None:
    warehouse = warehouse_with(tmp_path, "delta", NOW, delete_retention=KEPT)
    opened = warehouse.stream("ORDERS").opened
    lay(opened, [FILES[1], File(7, [laid(7, "fay", 95)])])
    with Engines("local") as engines:
        assert plan_pass(opened, NOW, engines).plan.header.read.files == 1
        assert plan_pass(opened, NOW, engines).plan.header.read.files == 0
        assert plan_pass(opened, START + 115 * SECOND - 1, engines).state is None
        assert plan_pass(opened, START + 115 * SECOND, engines).state is not None


def test_digests_that_are_lost_change_no_plan(keys: Warehouse) -> None:
    orders = keys.stream("ORDERS")
    plan_id = orders.plan().plan.plan_id
    [subjects] = Path(orders.opened.root).rglob("subjects")
    shutil.rmtree(subjects)
    assert orders.plan().plan.plan_id == plan_id


@pytest.mark.parametrize("at_a_time", [1, 3])
def test_digests_a_few_at_a_time_change_no_plan(
    keys: Warehouse, monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    orders = keys.stream("ORDERS")
    plan_id = orders.plan().plan.plan_id
    monkeypatch.setattr(deleted_subjects, "_DIGESTS_AT_A_TIME", at_a_time)
    monkeypatch.setattr(digest_batches, "_LEAST_ROWS", 1)
    assert orders.plan().plan.plan_id == plan_id


def test_an_estimate_opens_no_data_file_and_is_exact_once_somebody_has_looked(
    keys: Warehouse,
) -> None:
    opened = keys.stream("ORDERS").opened
    before, due = estimate(opened, NOW), keys.stream("ORDERS").state().forecast.due[0]
    plan = keys.stream("ORDERS").plan().plan
    files = opened.store.data_files(opened.store.inventory(opened.store.snapshot()).files)
    for file in files:
        scramble(Path(file.location), np.random.default_rng(1))
    after = estimate(opened, NOW)
    assert (due.messages_at_least, due.messages_at_most) == (0, 9)
    lag = keys.stream("ORDERS").state().lag
    assert lag is not None
    assert lag.messages == 4
    assert before.removed_messages.lower == 0
    assert before.removed_messages.upper >= 4
    assert before.files_read.lower <= plan.header.read.files <= before.files_read.upper
    assert (after.removed_messages.lower, after.removed_messages.upper) == (4, 4)
    assert after.by_rule["delete_retention"].as_json() == {"lower": 4, "upper": 4}


@pytest.mark.parametrize(
    ("pairs", "goes"),
    [
        ([(headers.KV_OPERATION, "DEL")], True),
        ([(headers.KV_OPERATION, "PURGE")], True),
        ([(headers.MARKER_REASON, "MaxAge")], True),
        ([(headers.MARKER_REASON, "Purge")], True),
        ([(headers.MARKER_REASON, "Remove")], True),
        ([(headers.MARKER_REASON, "Whatever")], False),
        ([(headers.KV_OPERATION, "del")], False),
        ([(headers.KV_OPERATION, "PUT"), (headers.MARKER_REASON, "MaxAge")], False),
        ([("Nats-Rollup", "sub")], False),
        ([], False),
    ],
)
def test_a_deletion_is_what_the_clients_of_the_broker_take_for_one(
    tmp_path: Path, pairs: list[tuple[str, str]], goes: bool
) -> None:
    warehouse = warehouse_with(tmp_path, "parquet", NOW, delete_retention=KEPT)
    lay(warehouse.stream("ORDERS").opened, [File(1, [laid(1, "a", 1), laid(2, "a", 2, *pairs)])])
    plan = warehouse.stream("ORDERS").plan().plan
    assert plan.removed_messages == (2 if goes else 0)


def test_explain_names_the_deletion_and_when_its_key_goes(keys: Warehouse, tmp_path: Path) -> None:
    orders = keys.stream("ORDERS")
    told = {seq: orders.explain(seq).sentence for seq in (1, 3, 2, 10, 8, 11)}
    assert told == {
        1: "ORDERS 1 (ada) is removed: delete_retention 20s: the last message on its subject is 3, a deletion that is "
        "1m28s old, stored 2023-11-14T22:13:32Z.",
        3: "ORDERS 3 (ada) is removed: delete_retention 20s: it is the last message on its subject, a deletion that is "
        "1m28s old, stored 2023-11-14T22:13:32Z.",
        2: "ORDERS 2 (bob) is kept: delete_retention 20s: the last message on its subject is 10, a deletion that is "
        "5s old, stored 2023-11-14T22:14:55Z, and is removed with all of its subject at 2023-11-14T22:15:15Z.",
        10: "ORDERS 10 (bob) is kept: delete_retention 20s: it is the last message on its subject, a deletion that is "
        "5s old, stored 2023-11-14T22:14:55Z, and is removed with all of its subject at 2023-11-14T22:15:15Z.",
        8: "ORDERS 8 (dan) is kept: delete_retention 20s: the last message on its subject is 9, and no deletion.",
        11: "ORDERS 11 (eve) is kept: delete_retention 20s: it is the last message on its subject, and no deletion.",
    }
    save_plans(str(tmp_path / "saved"), [orders.plan().plan])
    [saved] = load_plans(str(tmp_path / "saved"))
    assert saved.by_rule == {"delete_retention": 4}
    assert saved.plan_id == orders.plan().plan.plan_id
    assert {seq: explain_by(orders.opened, saved, (0, seq)).sentence for seq in told} == told


def test_what_is_put_while_a_pass_is_under_way_stays(keys: Warehouse) -> None:
    plan = keys.stream("ORDERS").plan()
    keys.stream("ORDERS").publish([b'{"subject": "ada", "data": "back"}'])
    plan.apply()
    assert seqs(keys) == [2, 4, 6, 8, 9, 10, 11, 12]


def test_a_deletion_that_consumers_have_let_go_of_takes_nothing_along(tmp_path: Path) -> None:
    warehouse = made(tmp_path, "parquet", retention="interest")
    pending = np.array([seq for seq in range(1, 12) if seq != 3])
    audit = Interest("audit", 0, 11, explicit=True, pending=pending)
    opened = warehouse.stream("ORDERS").opened
    ConsumerTable(opened.root).update("audit", partial(given, record_of(audit)))
    [outcome] = warehouse.apply()
    assert outcome.value is not None, outcome.sentence
    assert outcome.value.by_rule == {"interest": 1, "delete_retention": 2}
    assert 1 in seqs(warehouse)
    sentence = warehouse.stream("ORDERS").explain(1).sentence
    assert "it is the last message on its subject, and no deletion" in sentence


def given(record: ConsumerRecord, _: ConsumerRecord | None) -> ConsumerRecord:
    return record


def test_no_marker_takes_the_place_of_a_deletion(tmp_path: Path) -> None:
    limits = {"max_age": "50s", "subject_delete_marker_ttl": "60s", "deny_delete": False}
    plan = made(tmp_path, "delta", **limits).stream("ORDERS").plan().plan
    # 6, 8 and 9 on dan and 4 on bob are old; bob has a younger message.
    assert plan.by_rule == {"delete_retention": 4, "max_age": 5}
    assert plan.actions.markers["subject"].to_pylist() == ["dan"]
