from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_dags.batches import MOST_STREAMS, batches
from airflow_dags.record import (
    MOST_FAILURES,
    Record,
    first_failures,
    lines_of,
    read_record,
    totals,
)
from airflow_dags.steps import APPLY, MAINTAIN, PLAN, SYNC_ALL, Past
from airflow_dags.streams import Listed

LISTED = [
    Listed("A", "pii", ("eu", "gdpr")),
    Listed("B"),
    Listed("C", "pii", ("us",)),
    Listed("D", "a b", ("eu",)),
]
NOTHING: dict[str, Any] = {
    "removed_messages": 0,
    "removed_bytes": 0,
    "by_rule": {},
    "markers": 0,
    "run": "r0",
}
GONE = NOTHING | {"removed_messages": 1200, "removed_bytes": 9, "by_rule": {"max_age": 1200}}
PLANNED = NOTHING | {
    "would_change": False,
    "needs_approval": None,
    "refused": None,
    "extent": None,
    "grace": "7d",
}
ERROR = {"exit_code": 6, "message": "D: damaged"}
COPIED = {"origin": "C", "messages": 3, "bytes": 9, "missed": 0, "behind": 0}
BUSY = {"exit_code": 75, "message": "B: busy"}


def record(step_entries: dict[str, Any], *more: str) -> Record:
    return Record(["--as-of=7"], 7, "/r.json", [*step_entries, *more], step_entries)


PLANS = record(
    {
        "A": PLANNED | GONE | {"would_change": True},
        "B": PLANNED,
        "C": PLANNED | GONE | {"would_change": True, "needs_approval": "asks always"},
        "D": NOTHING | {"error": ERROR},
        "E": PLANNED | {"refused": "E: the pass takes all", "needs_approval": "asks always"},
    }
)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (3, {"batch-1": "ABC", "batch-2": "D"}),
        (MOST_STREAMS, {"batch-1": "ABCD"}),
        ("group", {"group-pii": "AC", "no-group": "B", "group-a_b-": "D"}),
        ("tag", {"tag-eu": "AD", "no-tag": "B", "tag-us": "C"}),
    ],
)
def test_each_stream_is_in_one_batch(by: int | str, expected: dict[str, str]) -> None:
    divided = {batch.id: "".join(batch.streams) for batch in batches(LISTED, by)}
    assert list(divided.values()) == list(expected.values())
    assert all(map(str.startswith, divided, expected))


def test_batches_are_shown_by_what_is_in_them_and_sort_as_they_are_listed() -> None:
    many = batches([Listed(f"S{number}") for number in range(12)], 1)
    assert [many[0].id, many[11].id] == ["batch-01", "batch-12"]
    assert many[0].title == "batch 1: S0"
    assert batches(LISTED, 3)[0].title == "batch 1: A to C"
    assert [batch.title for batch in batches(LISTED, "group")] == [
        "group pii",
        "no group",
        "group a b",
    ]


def test_a_group_of_very_many_streams_is_divided() -> None:
    listed = [Listed(f"S{number}", "g") for number in range(MOST_STREAMS + 1)]
    parts = batches(listed, "group")
    assert [(batch.id, len(batch.streams)) for batch in parts] == [
        ("group-g-part-1", MOST_STREAMS),
        ("group-g-part-2", 1),
    ]


@pytest.mark.parametrize("by", [0, -1, MOST_STREAMS + 1, True, "groups", 2.5])
def test_batches_of_another_kind_are_refused(by: Any) -> None:
    reason = "is neither a number of streams from 1 to 1,000 nor `group` nor `tag`"
    with pytest.raises(ValueError, match=reason):
        batches(LISTED, by)


def test_what_was_refused_asks_or_fails() -> None:
    assert PLANS.asking(PLAN, {}) == ["C"]
    assert [(each["stream"], each["exit_code"]) for each in PLANS.failures(PLAN, {})] == [
        ("D", 6),
        ("E", 4),
    ]
    # A dry run applies nothing, so there is no question and no refusal.
    dry = {"dry_run": True}
    assert PLANS.asking(PLAN, dry) == []
    assert [each["stream"] for each in PLANS.failures(PLAN, dry)] == ["D"]


MERGED = {"merges": 1, "files_before": 2, "files_after": 1}
REFUSED = {"exit_code": 4, "message": "C: asks always"}
PASSES = record(
    {
        "A": GONE | {"compaction": MERGED},
        "B": NOTHING | {"compaction": {"error": ERROR | {"message": "B: full"}}},
        "C": NOTHING | {"error": REFUSED},
        "D": NOTHING | {"compaction": {"error": BUSY}},
    }
)


def test_a_pass_and_its_compaction_are_told_together() -> None:
    assert PASSES.refused == ["C"]
    assert [each["stream"] for each in PASSES.passing(MAINTAIN)] == ["D"]
    assert PASSES.remaining(MAINTAIN, {}) == ["A"]
    failed = [(each["stream"], each["step"]) for each in PASSES.failures(MAINTAIN, {})]
    assert failed == [("B", "compact"), ("C", "apply"), ("D", "compact")]
    assert list(lines_of(MAINTAIN, PASSES, {}))[:3] == [
        "A  1,200 messages, 9 bytes, 1 merge",
        "B  failed: B: full",
        "C  refused: C: asks always",
    ]
    changed = {"A": MAINTAIN.counts(PASSES.entries["A"])}
    sums = totals(MAINTAIN, PASSES, {}, changed)
    assert (sums["failed"], sums["refused"], sums["merges"]) == (2, 1, 1)


def test_a_pass_is_of_the_instant_of_its_run_or_of_what_a_person_wrote() -> None:
    run = {"as_of_ns": 7, "needs_approval": None}
    assert MAINTAIN.arguments(Past({}, run)) == ["--as-of=7", "--skip-superseded", "--compact"]
    lifted = {"as_of": "now-1d", "allow_rewind": "a wrong clock"}
    assert MAINTAIN.arguments(Past(lifted, run)) == [
        *("--as-of=now-1d", "--allow-rewind", "--reason=a wrong clock"),
        "--compact",
    ]


def test_the_table_has_a_line_for_each_stream_of_which_there_is_something_to_say() -> None:
    assert list(lines_of(PLAN, PLANS, {})) == [
        "A  1,200 messages, 9 bytes",
        "C  a person is asked: asks always",
        "D  failed: D: damaged",
        "E  failed: apply would refuse this plan: E: the pass takes all",
        "1 other: nothing to do",
    ]
    left = {"left": {"budget": "--max-time"}}
    late = {"superseded_by": {"run": "r9", "as_of_ns": 9}}
    applied = record({"A": NOTHING | left, "B": NOTHING | late, "C": NOTHING})
    assert list(lines_of(APPLY, applied, {})) == [
        "A  left for the next run by its budget",
        "B  superseded: run r9 has applied a later instant than this plan's; nothing was removed",
        "1 other: nothing to do",
    ]


def test_busy_streams_alone_are_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "apply.record.json"
    assert read_record(path) is None
    first = record({"A": GONE, "B": NOTHING | {"error": BUSY}, "D": NOTHING | {"error": ERROR}})
    first.write(path, is_over=False)
    kept = read_record(path)
    assert kept == first
    assert list(kept.settled(APPLY)) == ["A", "D"]
    assert [each["stream"] for each in kept.passing(APPLY)] == ["B"]
    first.write(path, is_over=True)
    kept = read_record(path)
    assert kept is not None
    assert kept.is_over
    path.write_text("{", encoding="utf-8")
    assert read_record(path) is None


def test_a_copy_whose_server_does_not_answer_is_tried_again_by_its_sync_alone() -> None:
    unreached = {"error": {"exit_code": 1, "message": "A: no answer"}}
    synced = record({"A": unreached, "B": {"error": ERROR}, "C": COPIED})
    assert synced.passing(SYNC_ALL) == [
        {"stream": "A", "step": "sync", "sentence": "A: no answer", "exit_code": 1}
    ]
    assert list(synced.settled(SYNC_ALL)) == ["B", "C"]
    assert synced.passing(APPLY) == []
    assert list(lines_of(SYNC_ALL, synced, {}))[-1] == "C  3 messages, 9 bytes"


def test_a_batch_knows_its_copies() -> None:
    listed = [*LISTED, Listed("E", is_copy=True)]
    assert [batch.copies for batch in batches(listed, 4)] == [frozenset(), {"E"}]
    assert {"E"} == next(each for each in batches(listed, "tag") if each.id == "no-tag").copies


def test_xcom_has_sums_and_the_counts_of_some() -> None:
    applied = record({f"S{number}": GONE for number in range(300)})
    changed = {name: APPLY.counts(entry) for name, entry in applied.entries.items()}
    sums = totals(APPLY, applied, {}, changed)
    assert (sums["streams"], sums["changed"], sums["messages"]) == (300, 300, 360_000)
    assert list(sums["by_stream"]) == [f"S{number}" for number in range(50)]


def test_of_very_many_failures_the_last_task_stands_for_the_rest() -> None:
    entries = {f"S{number}": {"error": ERROR} for number in range(300)}
    failures = record(entries).failures(APPLY, {})
    assert first_failures(failures[:MOST_FAILURES]) == failures[:MOST_FAILURES]
    shown = first_failures(failures)
    assert len(shown) == MOST_FAILURES
    assert shown[-1]["sentence"] == "D: damaged; 250 more failed, which the log of `outcomes` names"
