"""Requirements and updates of a swap: every store checks and writes them generically, under the same names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from retention.core.counters import CONSUMERS, EPOCH
from retention.core.table_requirements import (
    AssertConsumerEdits,
    AssertEpoch,
    RowsCompared,
    TableState,
)
from retention.core.table_updates import (
    SetBatch,
    SetClaims,
    SetConsumerEdits,
    SetEpoch,
    SetNextSeq,
    SetOpenBase,
    TableUpdate,
)
from retention.errors import ConflictError, RefusedError, StalePlanError, VerificationError
from retention.ports import Store, Swap
from retention.schemas.files import FILE_STATS
from tests.contract.conftest import FORMATS, Stage
from tests.contract.streams import (
    NOTHING,
    append,
    appending,
    latest,
    removing,
    rows,
    sequences,
    staged,
)

pytestmark = pytest.mark.parametrize("stage", FORMATS, indirect=True)
EMPTY = Swap(NOTHING, FILE_STATS.empty_table(), {"run": "r"})


@dataclass(frozen=True)
class FewFiles:
    """A requirement of this test only: at most a number of files remain."""

    most: int

    def check(self, state: TableState) -> None:
        if state.stays.num_rows > self.most:
            raise RefusedError(f"stream {state.stream}: {state.stays.num_rows} files stay")


@dataclass(frozen=True)
class SetSerial:
    """An update of this test only: a writer's batch by another name, with its own check."""

    number: int
    assigns_sequences: bool = False

    @property
    def counters(self) -> Mapping[str, int]:
        return {"batch/serial": self.number}

    def check(self, state: TableState) -> None:
        if self.number != state.in_epoch.batches.get("serial", 0) + 1:
            raise StalePlanError(f"stream {state.stream}: {self.number} is not the next number")


def test_a_requirement_that_no_store_knows_is_checked(store: Store) -> None:
    append(store, range(1, 11))
    append(store, range(11, 21))
    snapshot, files = latest(store)
    swap = replace(removing(files.slice(0, 1)), requirements=[FewFiles(0)])
    with pytest.raises(RefusedError, match="1 files stay"):
        store.commit(swap, snapshot)
    assert sequences(store) == list(range(1, 21))
    store.commit(replace(swap, requirements=[FewFiles(1)]), snapshot)
    assert sequences(store) == list(range(11, 21))


def test_an_update_that_no_store_knows_is_checked_and_kept(stage: Stage, store: Store) -> None:
    for number in (1, 2):
        store.commit(replace(EMPTY, updates=[SetSerial(number)]), store.snapshot())
    with pytest.raises(StalePlanError, match="2 is not the next number"):
        store.commit(replace(EMPTY, updates=[SetSerial(2)]), store.snapshot())
    assert stage.open().snapshot().counters.batches == {"serial": 2}


@pytest.mark.parametrize("assigns", [True, False])
def test_an_update_says_itself_whether_it_is_tried_again(store: Store, assigns: bool) -> None:
    snapshot = store.snapshot()
    append(store, range(1, 11))
    swap = replace(EMPTY, updates=[SetSerial(1, assigns)])
    if assigns:
        with pytest.raises(ConflictError, match="another commit came first"):
            store.commit(swap, snapshot)
    else:
        store.commit(swap, snapshot)
    assert store.snapshot().counters.batches.get("serial") == (None if assigns else 1)


def test_requirements_are_checked_again_on_every_try(store: Store) -> None:
    """An edit of a consumer during a removal makes every retry of the removal fail."""
    append(store, range(1, 11))
    snapshot, files = latest(store)
    edit = replace(EMPTY, requirements=[AssertConsumerEdits(0)], updates=[SetConsumerEdits(1)])
    store.commit(edit, snapshot)
    resting = replace(removing(files), requirements=[AssertConsumerEdits(0)])
    with pytest.raises(StalePlanError, match="a consumer was created, edited or deleted"):
        store.commit(resting, snapshot)
    assert sequences(store) == list(range(1, 11))


def test_a_counter_is_set_once(store: Store) -> None:
    with pytest.raises(VerificationError, match="sets a counter twice"):
        store.commit(replace(EMPTY, updates=[SetNextSeq(0, 3), SetNextSeq(0, 4)]), store.snapshot())


def test_only_files_whose_rows_were_compared_may_meet_added_ones(store: Store) -> None:
    append(store, range(1, 11, 2))
    append(store, range(11, 21, 2))
    snapshot, files = latest(store)
    between = Swap(NOTHING, staged(store, rows(range(2, 19, 4))), {"run": "back"})
    paths = files["path"].combine_chunks()
    for compared in ([], [RowsCompared(paths.slice(0, 1))]):
        with pytest.raises(VerificationError, match="may not stand twice"):
            store.commit(replace(between, requirements=compared), snapshot)
    store.commit(replace(between, requirements=[RowsCompared(paths)]), snapshot)
    assert sequences(store) == sorted([*range(1, 21, 2), *range(2, 19, 4)])


def test_logs_have_the_counters_under_the_names_that_they_always_had(
    stage: Stage, store: Store
) -> None:
    """Logs of earlier and later versions of this program are mutually readable, so the names never change."""
    run = "20270115T080000.000000000Z-0a1b2c"
    swap = appending(staged(store, rows(range(1, 11))), 11, batches={"loader/a b": 7})
    store.commit(swap, store.snapshot())
    edits = replace(
        EMPTY,
        metadata={"run": run, "plan_id": "p"},
        requirements=[AssertEpoch(0), AssertConsumerEdits(0)],
        updates=[SetConsumerEdits(0)],
    )
    store.commit(edits, store.snapshot())
    _, files = latest(store)
    begins: list[TableUpdate] = [
        SetEpoch(9),
        SetNextSeq(0, 0),
        SetOpenBase(0, 0),
        SetBatch("app", 1),
    ]
    store.commit(replace(removing(files), updates=begins), store.snapshot())
    assert store.snapshot().counters.edits[EPOCH] == 9
    assert store.snapshot().counters.edits[CONSUMERS] == 0
    wanted = _OF_DELTA if stage.format == "delta" else _OF_PARQUET
    for version, expected in wanted.items():
        assert _logged(stage, version) == expected


def _logged(stage: Stage, version: int) -> Any:
    """The counters in a version's log entry."""
    name = f"{version:020d}.json"
    if stage.format == "delta":
        lines = Path(stage.table, "_delta_log", name).read_text().splitlines()
        return {
            one["txn"]["appId"]: one["txn"]["version"]
            for one in map(json.loads, lines)
            if "txn" in one
        }
    said = json.loads((stage.root / "_retention" / "log" / name).read_text())
    return {key: said[key] for key in said if key not in _OTHERS}


_STARTED_NS = 1_800_000_000 * 10**9
_OTHERS = ("version", "time_ms", "remove", "add", "metadata", "table_id", "check")
_OF_DELTA = {
    1: {"next_seq/0": 11, "open_base/0": 1, "batch/loader/a b": 7},
    2: {"consumers": 0, "run": _STARTED_NS},
    3: {"epoch": 9, "epoch/9/next_seq/0": 0, "epoch/9/open_base/0": 0, "epoch/9/batch/app": 1},
}
_KEPT = {"next_seq": {"0": 11}, "open_base": {"0": 1}}
_OF_PARQUET = {
    1: {**_KEPT, "batches": {"loader/a b": 7}, "run": "append"},
    2: {
        **_KEPT,
        "batches": {},
        "consumers": 0,
        "run": "20270115T080000.000000000Z-0a1b2c",
    },
    3: {
        "next_seq": {"0": 0},
        "open_base": {"0": 0},
        "batches": {"app": 1},
        "epoch": 9,
        "run": "removal",
    },
}


def test_files_staged_before_a_claim_on_staged_files_are_refused(
    stage: Stage, store: Store
) -> None:
    """Writers need no check: the store knows the count of claims at which it handed out a file."""
    append(store, range(1, 11))
    other = stage.open()

    def replace_by(seqs: range, claim: SetClaims) -> None:
        snapshot, files = latest(store)
        copy = staged(store, rows(seqs))
        other.commit(replace(EMPTY, updates=[claim]), other.snapshot())
        store.commit(replace(removing(files), add=copy), snapshot)

    # Claims on removed files do not affect staging files.
    replace_by(range(1, 10), SetClaims(1, 0))
    with pytest.raises(StalePlanError, match="staged and not committed were claimed"):
        replace_by(range(1, 9), SetClaims(2, 1))
    assert sequences(store) == list(range(1, 10))
    replace_by(range(1, 8), SetClaims(3, 1))
    assert sequences(store) == list(range(1, 8))
    assert stage.open().snapshot().counters.claims == 3
