"""Compaction and reclaim on an object store: dry runs change nothing, and killed runs succeed when repeated."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.outcomes import Outcome
from retention.core.units import HOUR, MINUTE
from retention.errors import CommitUnknownError
from retention.storage import files
from retention.storage.crash_points import Step, watched_by
from retention.stores import storage_clock
from tests.support.laying import File, Laid, held, lay

SMALL = 8
RULES = {"name": "ORDERS", "subjects": [">"], "no_ack": True, "compact": {}, "grace": "1h"}


@pytest.fixture
def lake(bucket: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Warehouse]:
    """A warehouse with a stream of small files, opened at a later time by every clock."""
    place = f"{bucket}/lake"
    files.replace(f"{place}/retention.yaml", json.dumps({"streams": [RULES]}).encode())
    clock = open_warehouse(place).clock

    def at(ns: int) -> Warehouse:
        monkeypatch.setattr(storage_clock, "storage_now", lambda _: clock() + ns)
        return open_warehouse(place, engine="local", clock=lambda: clock() + ns)

    seqs = range(1, 5 * SMALL + 1)
    small = [File(1, [Laid(seq) for seq in seqs[at : at + 5]]) for at in range(0, len(seqs), 5)]
    lay(at(0).new_stream("ORDERS").opened, small)
    return at


def data_files(warehouse: Warehouse) -> list[str]:
    root = warehouse.stream("ORDERS").opened.root
    return [path for path in files.walk(f"{root}/messages") if path.startswith("partition=")]


def killed_at(step: Step, act: Callable[[], list[Outcome[Any]]]) -> None:
    """Act like a process killed after a step: nothing is cleaned up."""

    def die(reached: Step) -> None:
        if reached is step:
            raise CommitUnknownError("the process is gone")

    with watched_by(die):
        [outcome] = act()
    assert isinstance(outcome.error, CommitUnknownError)


@pytest.mark.thorough
def test_small_files_are_merged_and_given_back(lake: Callable[[int], Warehouse]) -> None:
    warehouse = lake(0)
    place = warehouse.stream("ORDERS").opened.root
    before, there = held(warehouse), files.walk(place)
    [planned] = warehouse.compact().plan
    assert planned.value is not None
    assert planned.value.merges[0].files.num_rows == SMALL
    assert files.walk(place) == there
    killed_at(Step.DELTA_COMMITTING, warehouse.compact().apply)
    [merged] = lake(2 * MINUTE).compact().apply()
    assert merged.value is not None, merged.error
    assert (merged.value.files_before, merged.value.files_after) == (SMALL, 1)
    assert held(warehouse).equals(before)

    [young] = lake(4 * MINUTE).reclaim().apply()
    assert young.value is not None, young.error
    assert young.value.going == {}
    there = files.walk(place)
    [dry] = lake(2 * HOUR).reclaim().plan
    assert dry.value is not None, dry.error
    assert dry.value.going["removed"].files == SMALL
    assert files.walk(place) == there
    killed_at(Step.CLAIM_KEPT, lake(2 * HOUR).reclaim().apply)
    assert len(data_files(warehouse)) > SMALL
    killed_at(Step.DEAD_DELETED, lake(2 * HOUR + 2 * MINUTE).reclaim().apply)
    [gone] = lake(2 * HOUR + 4 * MINUTE).reclaim().apply()
    assert gone.error is None
    # The files of the killed compaction are in no record; reclaim --leftovers finds them.
    live = warehouse.stream("ORDERS").opened.store.snapshot().files["path"].to_pylist()
    assert held(warehouse).equals(before)
    assert set(live) <= set(data_files(warehouse))
    assert len(data_files(warehouse)) <= 2
    assert not any("/claims/" in path for path in files.walk(place))


@pytest.mark.thorough
def test_what_was_removed_is_told_after_reclaim(lake: Callable[[int], Warehouse]) -> None:
    warehouse = lake(0)
    run = warehouse.stream("ORDERS").delete(7, 8).apply().run
    killed_at(Step.EVIDENCE_FOLDED, lake(2 * HOUR).reclaim().apply)
    [outcome] = lake(2 * HOUR + 2 * MINUTE).reclaim().apply()
    assert outcome.error is None
    second = lake(3 * HOUR).stream("ORDERS").delete(20).apply().run
    # The lease of the killed reclaim has expired by then.
    [outcome] = lake(6 * HOUR).reclaim().apply()
    assert outcome.error is None
    told = lake(6 * HOUR).stream("ORDERS").explain(8)
    assert f"run {run} of " in told.sentence
    assert "undo can no longer restore it: " in told.sentence
    exported = lake(6 * HOUR).history_export(["ORDERS"]).select(["run", "messages"]).to_pylist()
    removed = [(row["run"], row["messages"]) for row in exported if row["messages"]]
    assert removed == [(run, 2), (second, 1)]
    assert len(files.names(f"{warehouse.location}/runs/ORDERS/evidence")) == 1
