from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.apply.saved_plan import apply_plan
from retention.consumers.state import (
    PENDING,
    ConsumerState,
    DeliveryPosition,
    new_state,
    with_lasts,
)
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import RefusedError, StalePlanError, UsageError
from retention.interest.edit import delete_consumer, edit_consumer
from retention.interest.reconcile import with_config
from retention.plan.planfile import load_plans, save_plans
from retention.planners import retention
from retention.planners.explain import explain
from retention.planners.probe import read_span
from retention.planners.shown import plan_stream
from retention.stores.consumer_table import ConsumerRecord, ConsumerTable
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
LOCAL = Engines("local")
SUBJECTS = ["s.0", "s.1", "s.2"]


def progress(floor: int, delivered: int, *pending: int) -> ConsumerState:
    waiting = pa.table([list(pending), list(pending), [0] * len(pending)], schema=PENDING)
    return ConsumerState(
        DeliveryPosition(delivered, delivered), DeliveryPosition(floor, floor), waiting
    )


def keep(record: ConsumerRecord, found: ConsumerRecord | None) -> ConsumerRecord:
    return record if found is None else replace(found, state=record.state)


def stand(opened: OpenedStream, name: str, state: ConsumerState, *filters: str) -> None:
    """Set a consumer's state, like a fold of acks."""
    config = {"durable_name": name, "ack_policy": "explicit", "filter_subjects": list(filters)}
    record = ConsumerRecord(name, config, state, revision=1)
    ConsumerTable(opened.root).update(name, partial(keep, record))


Make = Callable[..., OpenedStream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of four segments of ten messages on s.0, s.1 and s.2 in turn."""

    def made(**settings: Any) -> OpenedStream:
        streams = warehouse_with(
            tmp_path, request.param, NOW, **{"retention": "interest"} | settings
        )
        opened = streams.stream("ORDERS").opened
        if not opened.store.exists():
            lay(opened, even_segments(4, 10))
        return opened

    return made


def left(opened: OpenedStream) -> list[int]:
    files = opened.store.inventory(opened.store.snapshot()).files
    return [
        seq
        for file in opened.store.data_files(files)
        for seq in pa.parquet.read_table(file.location, columns=["seq"], partitioning=None)[
            "seq"
        ].to_pylist()
    ]


def test_whole_segments_go_unopened_where_everybody_has_settled_them(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 25, 24, 25))
    stand(opened, "audit", progress(30, 30), "s.*")
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.by_rule == {"interest": 23}
    assert plan.header.segments.dropped == 2
    assert plan.header.read.files == 1
    assert apply_now(opened, AS_OF, LOCAL, Guards()).by_rule == {"interest": 23}
    assert left(opened) == [24, 25, *range(26, 41)]


def test_what_nobody_has_settled_anything_of_stays_unopened(make: Make) -> None:
    opened = make(retention="workqueue")
    stand(opened, "worker", progress(0, 0), "s.0", "s.2")
    stand(opened, "other", progress(0, 0), "s.1")
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.is_empty
    assert plan.header.read.files == 0


def test_limits_count_what_is_left(make: Make) -> None:
    opened = make(max_msgs=12, max_msgs_per_subject=3)
    stand(opened, "billing", progress(25, 25))
    assert apply_now(opened, AS_OF, LOCAL, Guards()).by_rule == {
        "interest": 25,
        "max_msgs": 3,
        "max_msgs_per_subject": 3,
    }
    assert left(opened) == list(range(32, 41))


def test_unmatched_messages_stay_unless_the_stream_says_otherwise(make: Make) -> None:
    opened = make()
    stand(opened, "one", progress(40, 40), "s.1")
    one = [seq for seq in range(1, 41) if seq % 3 == 1]
    assert plan_stream(opened, AS_OF, LOCAL).by_rule == {"interest": len(one)}
    opened = make(unmatched="remove")
    assert plan_stream(opened, AS_OF, LOCAL).by_rule == {"interest": 40}


@pytest.mark.parametrize("unmatched", ["keep", "remove"])
def test_a_stream_without_consumers_is_never_emptied(make: Make, unmatched: str) -> None:
    assert plan_stream(make(unmatched=unmatched), AS_OF, LOCAL).is_empty


def test_a_state_that_contradicts_itself_keeps_everything_and_is_named(make: Make) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 20))
    stand(opened, "ahead", progress(41, 41))
    for act in (plan_stream, partial(apply_now, guards=Guards())):
        with pytest.raises(
            RefusedError, match=r"state of consumer ahead is impossible: .*41.*nothing was removed"
        ):
            act(opened, AS_OF, engines=LOCAL)
    assert len(left(opened)) == 40


def test_an_explanation_names_who_needs_a_message(make: Make) -> None:
    opened = make(max_msgs=5)
    stand(opened, "billing", progress(20, 25, 24), "s.0", "s.1")
    stand(opened, "audit", progress(30, 30))

    def told(seq: int) -> tuple[str | None, str]:
        one = explain(opened, seq, AS_OF, LOCAL)
        return one.rule, one.sentence

    assert told(9) == (
        "interest",
        "ORDERS 9 (s.0) is removed: interest: every consumer that wants it has settled it (audit, billing).",
    )
    assert told(23)[1].endswith("interest: every consumer that wants it has settled it (audit).")
    assert told(40)[1].startswith(
        "ORDERS 40 (s.1) is kept: interest: audit and billing still need it; max_msgs"
    )
    rule, sentence = told(24)
    assert (rule, "max_msgs 5" in sentence) == ("max_msgs", True)
    assert explain(opened, 24, AS_OF, LOCAL).arithmetic[0] == "interest: billing still needs it"


def test_a_saved_plan_stays_good_while_consumers_come_further(make: Make, tmp_path: Path) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 20))
    save_plans(str(tmp_path / "p.json"), [plan_stream(opened, AS_OF, LOCAL)])
    [plan] = load_plans(str(tmp_path / "p.json"))
    stand(opened, "billing", progress(30, 30))
    assert apply_plan(opened, plan, LOCAL, Guards()).by_rule == {"interest": 20}


@pytest.mark.parametrize("how", ["edit", "create", "delete"])
def test_a_saved_plan_is_stale_when_a_consumer_is_edited(make: Make, how: str) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 20))
    plan = plan_stream(opened, AS_OF, LOCAL)
    CHANGES[how](opened)
    with pytest.raises(StalePlanError, match="edited or deleted since"):
        apply_plan(opened, plan, LOCAL, Guards())
    assert len(left(opened)) == 40


CHANGES: dict[str, Callable[[OpenedStream], object]] = {
    "edit": lambda opened: edit_consumer(opened, "billing", widened),
    "create": lambda opened: edit_consumer(opened, "late", begun),
    "delete": lambda opened: delete_consumer(opened, "billing"),
}


def widened(found: ConsumerRecord | None) -> ConsumerRecord:
    assert found is not None
    wanted = {**found.config, "description": "wider"}
    return found if found.config == wanted else with_config(found, wanted)


def begun(found: ConsumerRecord | None) -> ConsumerRecord:
    config = {"durable_name": "late", "ack_policy": "explicit"}
    return found or ConsumerRecord("late", config, new_state(1), revision=1, counted=False)


@pytest.mark.parametrize("how", CHANGES)
def test_a_release_that_has_not_seen_an_edit_is_refused_by_its_commit(
    make: Make, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = make()
    stand(opened, "billing", progress(20, 20))
    decide = retention.decide

    def interrupted(*arguments: Any) -> Any:
        CHANGES[how](make())
        return decide(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(retention, "decide", interrupted)
        with pytest.raises(StalePlanError, match="created, edited or deleted meanwhile"):
            apply_now(opened, AS_OF, LOCAL, Guards())
    assert len(left(opened)) == 40
    kept = {"edit": 20, "create": 40, "delete": 40}[how]
    apply_now(opened, AS_OF, LOCAL, Guards())
    assert len(left(opened)) == kept


def test_an_edit_is_counted_once_and_only_when_it_changes_something(make: Make) -> None:
    opened = make()

    def count() -> int:
        return opened.store.snapshot().counters.consumers

    assert count() == 0
    record = edit_consumer(opened, "late", begun)
    assert (count(), record.revision, record.counted) == (1, 1, True)
    assert edit_consumer(opened, "late", begun) == record
    assert count() == 1
    delete_consumer(opened, "late")
    assert count() == 2
    with pytest.raises(UsageError, match="there is no consumer late"):
        delete_consumer(opened, "late")
    lay_more = opened.store.inventory(opened.store.snapshot()).counters
    assert lay_more.consumers == 2


def test_an_edit_that_was_interrupted_is_counted_by_the_next_try(make: Make) -> None:
    opened = make()
    ConsumerTable(opened.root).update("late", begun)
    assert opened.store.snapshot().counters.consumers == 0
    assert edit_consumer(opened, "late", begun).counted
    assert opened.store.snapshot().counters.consumers == 1


def test_listed_consumers_are_created_when_the_stream_is_worked_on(make: Make) -> None:
    listed = {"durable_name": "listed", "ack_policy": "explicit", "deliver_policy": "new"}
    opened = make(consumers=[listed])
    plan = plan_stream(opened, AS_OF, LOCAL)
    assert plan.by_rule == {"interest": 40}
    assert ConsumerTable(opened.root).read("listed") is None
    assert apply_plan(opened, plan, LOCAL, Guards()).by_rule == {"interest": 40}
    record = ConsumerTable(opened.root).read("listed")
    assert record is not None
    assert (record.revision, record.state.ack_floor.stream_seq) == (1, 40)
    edited_list = make(consumers=[listed | {"description": "more"}])
    apply_now(edited_list, AS_OF, LOCAL, Guards())
    record = ConsumerTable(opened.root).read("listed")
    assert record is not None
    assert (record.revision, record.config["description"]) == (2, "more")


@pytest.mark.parametrize(
    ("start", "needed"),
    [
        ({"deliver_policy": "all"}, 1),
        ({"deliver_policy": "new"}, 41),
        ({"deliver_policy": "last"}, 40),
        ({"deliver_policy": "last", "filter_subject": "s.2"}, 38),
        ({"deliver_policy": "last_per_subject", "filter_subject": "s.*"}, 38),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 17}, 17),
        ({"deliver_policy": "by_start_sequence", "opt_start_seq": 99}, 41),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2023-11-14T22:13:37.5Z"}, 18),
        ({"deliver_policy": "by_start_time", "opt_start_time": "2030-01-01T00:00:00Z"}, 41),
    ],
)
def test_a_new_consumer_begins_where_the_server_has_it_begin(
    make: Make, start: dict[str, Any], needed: int
) -> None:
    opened = make(consumers=[{"durable_name": "c", "ack_policy": "explicit", **start}])
    apply_now(opened, AS_OF, LOCAL, Guards())
    record = ConsumerTable(opened.root).read("c")
    assert record is not None
    by_subject = start["deliver_policy"] == "last_per_subject"
    expected = with_lasts(new_state(needed), [38, 39, 40], 40) if by_subject else new_state(needed)
    assert record.state == expected


def test_an_explanation_reads_the_span_of_its_message_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = make(max_msgs=5)
    stand(opened, "billing", progress(20, 25, 24), "s.0", "s.1")
    read: list[int] = []

    def counted(*arguments: Any) -> Any:
        read.append(len(arguments))
        return read_span(*arguments)

    monkeypatch.setattr("retention.planners.plan_rows.read_span", counted)
    for seq in (9, 24, 40):
        explain(opened, seq, AS_OF, LOCAL)
    assert len(read) == 3
