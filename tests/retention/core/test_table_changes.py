"""Requirements and updates of a commit: their checks on a table, and their counters."""

from __future__ import annotations

import pyarrow as pa
import pytest

from retention.core.counter_names import counters_of, risen
from retention.core.counters import (
    ARCHIVE_HEAD,
    CLAIMS,
    CONSUMERS,
    EPOCH,
    RELEASED,
    RUN,
    STAGING_CLAIMS,
    Counters,
)
from retention.core.table_requirements import (
    AssertArchiveHead,
    AssertClaims,
    AssertConsumerEdits,
    AssertEpoch,
    AssertStagingClaims,
    TableRequirement,
    TableState,
)
from retention.core.table_updates import (
    SetBatch,
    SetConsumerEdits,
    SetEpoch,
    SetNextSeq,
    SetOpenBase,
    SetRemoved,
    TableUpdate,
    set_epoch,
    set_removed,
)
from retention.errors import ConflictError, RefusedError, RetentionError, StalePlanError
from retention.ports import Swap
from retention.schemas.bounds import MAX_SEQ
from retention.schemas.files import FILE_STATS, LOGGED_FILES

COUNTERS = Counters(
    {0: 100, 1: 7},
    {0: 90},
    {"loader": 3},
    {CONSUMERS: 2, RELEASED: 5, EPOCH: 12, RUN: 17, CLAIMS: 4, STAGING_CLAIMS: 1, ARCHIVE_HEAD: 8},
)
STAYS = pa.table(
    {"path": ["low", "high", "unknown"], "partition": [0, 0, 1], "max_seq": [9, 99, None]}
)


def state(*updates: TableUpdate) -> TableState:
    """A table in epoch 12, and a commit of some updates to it."""
    return TableState("ORDERS", COUNTERS, STAYS, swap(*updates).sets)


def swap(*updates: TableUpdate) -> Swap:
    return Swap(LOGGED_FILES.empty_table(), FILE_STATS.empty_table(), {"run": "r"}, (), updates)


@pytest.mark.parametrize(
    ("holds", "fails", "what"),
    [
        (AssertEpoch(12), AssertEpoch(0), "it was purged meanwhile"),
        (
            AssertConsumerEdits(2),
            AssertConsumerEdits(1),
            "a consumer was created, edited or deleted",
        ),
        (AssertArchiveHead(8), AssertArchiveHead(0), "another run archived files meanwhile"),
        (AssertClaims(4), AssertClaims(3), "dead files were claimed"),
        (
            AssertStagingClaims(1),
            AssertStagingClaims(0),
            "files that were staged and not committed",
        ),
    ],
)
def test_a_requirement_holds_of_one_value_alone(
    holds: TableRequirement, fails: TableRequirement, what: str
) -> None:
    holds.check(state())
    with pytest.raises(StalePlanError, match=f"stream ORDERS: {what}"):
        fails.check(state())


@pytest.mark.parametrize(
    ("update", "name", "value"),
    [
        (SetNextSeq(1, 8), "next_seq/1", 8),
        (SetOpenBase(0, 90), "open_base/0", 90),
        (SetBatch("a/b c", 4), "batch/a/b c", 4),
        (SetConsumerEdits(3), "consumers", 3),
        (SetEpoch(13), "epoch", 13),
        (SetRemoved(1, 6), "removed/1", 6),
    ],
)
def test_an_update_has_one_name_in_every_log(update: TableUpdate, name: str, value: int) -> None:
    assert swap(update).sets == {name: value}
    logged = counters_of({name: value})
    assert swap(update).next_seq == logged.next_seq
    found = [
        *logged.next_seq.items(),
        *logged.open_base.items(),
        *logged.batches.items(),
        *logged.removed.items(),
    ]
    assert [one for _, one in found] + list(logged.edits.values()) == [value]


@pytest.mark.parametrize(
    ("update", "error", "what"),
    [
        (SetNextSeq(0, 100), None, ""),
        (SetNextSeq(2, 1), None, ""),
        (SetNextSeq(0, 99), ConflictError, "the next sequence of partition 0 is 100 already"),
        (SetNextSeq(0, MAX_SEQ + 1), None, ""),
        (SetNextSeq(0, MAX_SEQ + 2), RefusedError, "sequences end at 2^62"),
        (SetOpenBase(0, 90), None, ""),
        (SetOpenBase(0, 89), ConflictError, "the open base of partition 0 is 90 already"),
        (SetOpenBase(0, MAX_SEQ + 2), RefusedError, "sequences end at 2^62"),
        (SetBatch("loader", 4), None, ""),
        (SetBatch("other", 1), None, ""),
        (SetBatch("loader", 3), ConflictError, "batch 3 of writer loader was committed already"),
        (SetConsumerEdits(3), None, ""),
        (SetRemoved(0, 3), None, ""),
        (SetRemoved(0, MAX_SEQ), None, ""),
        (SetRemoved(0, MAX_SEQ + 1), RefusedError, "sequences end at 2^62"),
    ],
)
def test_an_update_lets_no_counter_fall(
    update: TableUpdate, error: type[RetentionError] | None, what: str
) -> None:
    if error is None:
        update.check(state(update))
        return
    with pytest.raises(error, match=what.replace("^", r"\^")):
        update.check(state(update))


def test_in_a_new_epoch_counters_begin_anew() -> None:
    begins: list[TableUpdate] = [
        SetEpoch(13),
        SetNextSeq(0, 1),
        SetOpenBase(0, 0),
        SetBatch("loader", 1),
    ]
    for update in begins[1:]:
        update.check(state(*begins))


def test_a_new_epoch_gives_no_sequence_out_that_a_file_has() -> None:
    begins: list[TableUpdate] = [SetEpoch(13), SetNextSeq(0, 99)]
    with pytest.raises(StalePlanError, match="high was added meanwhile"):
        begins[0].check(state(*begins))
    begins = [SetEpoch(13), SetNextSeq(0, 100), SetNextSeq(1, 1_000)]
    with pytest.raises(StalePlanError, match="unknown was added meanwhile"):
        begins[0].check(state(*begins))


@pytest.mark.parametrize(
    ("update", "is_tried_once"),
    [
        (SetNextSeq(0, 100), True),
        (SetBatch("loader", 4), True),
        (SetEpoch(13), True),
        (SetOpenBase(0, 90), False),
        (SetConsumerEdits(3), False),
        (SetRemoved(0, 6), False),
    ],
)
def test_what_gives_out_sequences_is_tried_once(update: TableUpdate, is_tried_once: bool) -> None:
    assert swap(update).assigns_sequences is is_tried_once
    assert swap(SetConsumerEdits(3), update).assigns_sequences is is_tried_once
    assert not swap().assigns_sequences


def test_what_stays_is_not_set() -> None:
    assert set_epoch(12, 12) == []
    assert set_epoch(12, 0) == [SetEpoch(0)]


def test_the_highest_removed_sequence_rises_alone() -> None:
    known = Counters({0: 100}, removed={0: 40})
    sets = swap(*set_removed({0: 7, 2: 3}, {0: 9, 1: 5})).sets
    assert sets == {"removed/0": 9, "removed/1": 5, "removed/2": 3}
    assert risen(sets | {"next_seq/0": 50}, known) == {
        "removed/0": 40,
        "removed/1": 5,
        "removed/2": 3,
        "next_seq/0": 50,
    }
    assert risen({"removed/0": 41}, known) == {"removed/0": 41}


def test_names_of_other_programs_are_no_counters() -> None:
    others = {"spark/0": 1, "next_seq": 2, "next_seq/x": 3, "epoch/5/next_seq/0": 4, "runs": 5}
    assert counters_of(others) == Counters()
    assert counters_of({**others, "next_seq/0": 9, "run": 17}) == Counters({0: 9}, edits={RUN: 17})
