"""`guards`: a pass beyond one changes nothing, or warns, for any rule and independent of releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from retention.api.log import BoundPlan
from retention.api.warehouse import Warehouse, open_warehouse
from retention.apply import execute
from retention.apply.keep_ids import keep_ids_of
from retention.errors import RefusedError, StalePlanError
from retention.plan.loss import loss_of
from retention.plan.planfile import load_plans
from retention.ports import Swap
from retention.rules.removal_guards import Loss
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.stores.consumer_table import ConsumerTable
from tests.retention.planners.test_interest import progress, stand
from tests.retention.planners.test_plan_explains_itself import Oldest
from tests.support.laying import SECOND, START, even_segments, forty, lay, warehouse_with
from tests.support.topics import World, line

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
HALF = {"guards": {"max_removed_share": "50%"}}
SIZE = 30
"""The size of each message."""


@pytest.fixture(params=["delta", "parquet"])
def store(request: pytest.FixtureRequest) -> str:
    format_: str = request.param
    return format_


def reopened(folder: Path) -> Warehouse:
    return open_warehouse(folder / "retention.yaml", engine="local", clock=lambda: NOW)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a warehouse except leases and caches of plans."""
    files = (path for path in folder.rglob("*") if path.is_file())
    kept = (path for path in files if "_retention" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in kept}


def test_a_pass_beyond_a_guard_changes_nothing_and_says_the_numbers(
    tmp_path: Path, store: str
) -> None:
    stream = forty(tmp_path, store, max_msgs=19, **HALF)
    before = content(tmp_path)
    plan = stream.plan(AS_OF)
    assert "removes 21 of 40 messages (52.5%), more than max_removed_share 50%" in repr(plan)
    assert "removes 21 of 40 messages" in plan._repr_html_()
    sentence = r"ORDERS: the pass removes 21 of 40 .* nothing was changed; .* --allow-large"
    with pytest.raises(RefusedError, match=sentence):
        plan.apply()
    [outcome] = reopened(tmp_path).apply(as_of=AS_OF)
    assert outcome.exit_code == 4
    assert content(tmp_path) == before
    report = plan.apply(allow_large=True)
    assert report.removed_messages == 21
    assert "lifted by --allow-large" in repr(report)
    assert stream.history()[0]["guards"][0]["lifted"] is True


def test_at_its_limit_a_guard_lets_go(tmp_path: Path, store: str) -> None:
    report = forty(tmp_path, store, max_msgs=20, **HALF).plan(AS_OF).apply()
    assert report.removed_messages == 20
    assert report.guards is None
    assert "guards" not in report.as_json()


def test_a_guard_that_warns_goes_on_and_says_so(tmp_path: Path, store: str) -> None:
    guards = {"max_removed_share": {"limit": "10%", "then": "warn"}, "min_kept_messages": 1}
    stream = forty(tmp_path, store, max_msgs=1, guards=guards)
    [outcome] = reopened(tmp_path).apply(as_of=AS_OF)
    report = outcome.value
    assert report is not None
    assert report.removed_messages == 39
    [finding] = report.as_json()["guards"]
    assert (finding["guard"], finding["then"], finding["lifted"]) == (
        "max_removed_share",
        "warn",
        False,
    )
    assert stream.state().messages == 1


def test_a_saved_plan_is_held_against_the_guards_of_today(tmp_path: Path, store: str) -> None:
    stream = forty(tmp_path, store, max_msgs=10)
    stream.plan(AS_OF).save(tmp_path / "plan.json")
    stream = forty(tmp_path, store, max_msgs=10, guards={"max_removed_bytes": 29 * SIZE})
    [plan] = load_plans(str(tmp_path / "plan.json"))
    removed = plan.removed_bytes
    assert removed > 29 * SIZE
    with pytest.raises(RefusedError, match=rf"removes .*{removed:,} bytes"):
        BoundPlan(stream, plan).apply()
    assert BoundPlan(stream, plan).apply(allow_large=True).removed_bytes == removed


def removed_by_another(folder: Path, first_seq: int) -> None:
    """Remove the files from a sequence on, like a rival without the lease."""
    store = reopened(folder).stream("ORDERS").opened.store
    snapshot = store.snapshot()
    files = store.inventory(snapshot).files
    going = files.filter(pc.greater_equal(files["min_seq"], first_seq))
    store.commit(
        Swap(going.select(LOGGED_FILES.names), FILE_STATS.empty_table(), {"run": "rival"}), snapshot
    )


@pytest.mark.parametrize(
    ("guard", "sentence"),
    [
        ({"max_removed_share": "50%"}, r"removes 15 of 20 messages \(75%\)"),
        ({"min_kept_messages": 6}, "keeps 5 of 20 messages, fewer than"),
    ],
)
def test_guards_hold_against_the_messages_that_are_there_at_the_commit(
    tmp_path: Path, store: str, guard: dict[str, Any], sentence: str
) -> None:
    stream = forty(tmp_path, store, max_age="60s", guards=guard)
    plan = stream.plan(AS_OF)
    plan.save(tmp_path / "plan.json")
    assert plan.plan.removed_messages == 15
    stream.delete(list(range(21, 41))).apply()
    [saved] = load_plans(str(tmp_path / "plan.json"))
    with pytest.raises(RefusedError, match=sentence):
        BoundPlan(stream, saved).apply()
    assert stream.state().messages == 20
    assert BoundPlan(stream, saved).apply(allow_large=True).removed_messages == 15


def test_guards_hold_on_a_newer_version_that_a_rival_has_made(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = forty(tmp_path, store, max_age="60s", **HALF)

    def behind_the_plan(*given: Any) -> Any:
        monkeypatch.setattr(execute, "keep_ids_of", keep_ids_of)
        removed_by_another(tmp_path, 21)
        return keep_ids_of(*given)

    monkeypatch.setattr(execute, "keep_ids_of", behind_the_plan)
    with pytest.raises(RefusedError, match=r"removes 15 of 20 messages \(75%\)"):
        stream.plan(AS_OF).apply()
    assert reopened(tmp_path).stream("ORDERS").state().messages == 20


def test_rows_tombstones_and_whole_files_count_alike(tmp_path: Path, store: str) -> None:
    limits = {"max_msgs_per_subject": 3, "max_age": "60s"}
    stream = forty(tmp_path, store, guards={"min_kept_messages": 10}, **limits)
    plan = stream.plan(AS_OF)
    assert plan.plan.header.segments.rewritten
    assert loss_of(plan.plan) == Loss(31, plan.plan.removed_bytes, 40)
    with pytest.raises(RefusedError, match="keeps 9 of 40 messages, fewer than"):
        plan.apply()


def test_a_stream_planned_from_its_oldest_segments_is_counted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = forty(tmp_path, "delta", max_age="60s", guards={"max_removed_share": 0})
    opened = stream.opened.store
    inventory = opened.inventory(opened.snapshot())
    monkeypatch.setattr(type(opened), "incremental_inventory", lambda *_: Oldest(inventory))
    plan = stream.plan(START + 65 * SECOND).plan
    assert plan.cause.tail.segments == 2
    assert loss_of(plan) == Loss(5, plan.removed_bytes, 40)


def test_what_consumers_release_does_not_count(tmp_path: Path, store: str) -> None:
    settings = {"retention": "interest", "max_msgs": 12, "max_msgs_per_subject": 3}
    stream = forty(tmp_path, store, guards={"max_removed_share": "39%"}, **settings)
    stand(stream.opened, "billing", progress(25, 25))
    plan = stream.plan(AS_OF).plan
    assert plan.by_rule == {"interest": 25, "max_msgs": 3, "max_msgs_per_subject": 3}
    each = plan.removed_bytes // 31
    assert loss_of(plan) == Loss(6, 6 * each, 15)
    with pytest.raises(RefusedError, match=r"removes 6 of 15 messages \(40%\)"):
        stream.plan(AS_OF).apply()
    stream = forty(tmp_path, store, guards={"max_removed_share": "40%"}, **settings)
    stream.plan(AS_OF).save(tmp_path / "plan.json")
    [saved] = load_plans(str(tmp_path / "plan.json"))
    assert loss_of(saved) == loss_of(plan)
    assert BoundPlan(stream, saved).apply().removed_messages == 31


def test_consumers_may_release_everything(tmp_path: Path, store: str) -> None:
    guards = {"max_removed_share": 0, "max_removed_bytes": 0, "min_kept_messages": 1000}
    stream = forty(tmp_path, store, retention="workqueue", guards=guards)
    stand(stream.opened, "worker", progress(40, 40))
    assert stream.plan(AS_OF).apply().removed_messages == 40
    assert stream.plan(AS_OF).apply().removed_messages == 0


def test_a_refused_pass_creates_no_consumer(tmp_path: Path, store: str) -> None:
    consumers = [{"durable_name": "billing", "ack_policy": "explicit"}]
    stream = forty(tmp_path, store, retention="interest", max_msgs=1, consumers=consumers, **HALF)
    [outcome] = reopened(tmp_path).apply(as_of=AS_OF)
    assert outcome.exit_code == 4
    with pytest.raises(RefusedError):
        stream.plan(AS_OF).apply()
    assert not ConsumerTable(stream.opened.root).live(stream.opened.store.snapshot().counters)


def test_whole_segments_are_guarded_by_what_goes(tmp_path: Path, store: str) -> None:
    stream = forty(tmp_path, store, max_msgs=19, whole_segments=True, **HALF)
    assert stream.plan(AS_OF).plan.removed_messages == 20
    assert stream.plan(AS_OF).apply().guards is None


def test_a_stream_that_is_not_there_or_empty_is_let_through(tmp_path: Path, store: str) -> None:
    guards = {"max_removed_share": 0, "max_removed_bytes": 0, "min_kept_messages": 5}
    stream = warehouse_with(tmp_path, store, NOW, max_age="60s", guards=guards).stream("ORDERS")
    assert stream.plan(AS_OF).apply().removed_messages == 0
    lay(stream.opened, even_segments(1, 3))
    assert stream.plan(START).apply().removed_messages == 0
    with pytest.raises(RefusedError, match="keeps 0 of 3 messages"):
        stream.plan(AS_OF).apply()
    assert stream.plan(AS_OF).apply(allow_large=True).removed_messages == 3
    assert stream.plan(AS_OF).apply().removed_messages == 0


def test_a_removal_by_name_and_its_undo_are_not_guarded(tmp_path: Path, store: str) -> None:
    stream = forty(tmp_path, store, guards={"max_removed_share": 0, "min_kept_messages": 50})
    report = stream.purge().apply()
    assert report.removed_messages == 40
    reopened(tmp_path).undo(report.run)
    assert stream.state().messages == 40


def test_a_guard_of_today_makes_no_saved_plan_stale(tmp_path: Path, store: str) -> None:
    stream = forty(tmp_path, store, max_msgs=30)
    plan = stream.plan(AS_OF)
    stream = forty(tmp_path, store, max_msgs=30, **HALF)
    assert stream.plan(AS_OF).plan.plan_id == plan.plan.plan_id
    assert BoundPlan(stream, plan.plan).apply().removed_messages == 10
    with pytest.raises(StalePlanError):
        plan.apply()


def test_a_topic_is_guarded_and_seals_nothing_when_it_is_refused(
    tmp_path: Path, store: str
) -> None:
    hour = 3_600 * SECOND
    world = World(tmp_path, store, {"message_expiry": "1h", "roll_after": "1h"} | HALF)
    world.topic.publish([line("a", partition=0), line("b", partition=1)])
    world.clock.now_ns += 2 * hour
    before = world.open_base()
    plan = world.topic.plan()
    assert plan.plan.removed_messages == 2
    [outcome] = world.warehouse.apply()
    assert outcome.exit_code == 4
    assert "removes 2 of 2 messages (100%)" in outcome.sentence
    assert world.open_base() == before
    assert plan.apply(allow_large=True).removed_messages == 2


def test_a_saved_plan_of_a_topic_is_held_against_what_is_there_at_its_commit(
    tmp_path: Path, store: str
) -> None:
    minute = 60 * SECOND
    guards = {"guards": {"max_removed_share": "40%"}}
    world = World(tmp_path, store, {"message_expiry": "3h", "roll_after": "10m"} | guards)
    world.topic.publish([line("old", partition=0)])
    world.clock.now_ns += 100 * minute
    for _ in range(4):
        world.topic.publish([line("new", partition=1)])
        world.clock.now_ns += 11 * minute
        world.warehouse.apply()
    [(_, _, _, first), *rest] = world.places()
    assert (first, len(rest)) == (b"old", 4)
    world.clock.now_ns += 40 * minute
    world.topic.plan().save(tmp_path / "plan.json")
    [plan] = load_plans(str(tmp_path / "plan.json"))
    assert plan.removed_messages == 1
    world.topic.delete_segments(1, 3).apply()
    with pytest.raises(RefusedError, match=r"removes 1 of 2 messages \(50%\)"):
        BoundPlan(world.topic, plan).apply()
    assert len(world.rows()) == 2
    assert BoundPlan(world.topic, plan).apply(allow_large=True).removed_messages == 1


def test_lowered_limits_are_named_with_what_each_takes_alone(tmp_path: Path, store: str) -> None:
    stream = forty(tmp_path, store, max_age="60s", max_msgs=30)
    assert stream.plan(AS_OF).plan.lowered == ()
    assert stream.plan(START + 65 * SECOND).apply().by_rule == {"max_msgs": 10}
    stream = forty(tmp_path, store, max_age="50s", max_msgs=25, max_bytes="1GiB")
    plan = stream.plan(AS_OF)
    # By the former limits, 15 are too old; the new age removes 10 more, and the new count none.
    assert plan.plan.by_rule == {"max_msgs": 5, "max_age": 10}
    assert [limit.as_json() for limit in plan.plan.lowered] == [
        {
            "limit": "max_msgs",
            "before": 30,
            "now": 25,
            "unit": "messages",
            "removed_messages": 0,
            "removed_bytes": 0,
        },
        {
            "limit": "max_bytes",
            "before": None,
            "now": 2**30,
            "unit": "bytes",
            "removed_messages": 0,
            "removed_bytes": 0,
        },
        {
            "limit": "max_age",
            "before": 60 * SECOND,
            "now": 50 * SECOND,
            "unit": "ns",
            "removed_messages": 10,
            "removed_bytes": plan.plan.removed_bytes // 15 * 10,
        },
    ]
    assert "max_age 1m → 50s, which alone removes 10 messages" in repr(plan)
    assert "max_bytes no limit → 1 GiB, which alone removes none" in plan._repr_html_()
    plan.apply()
    assert stream.plan(AS_OF).plan.lowered == ()


def test_a_lowered_limit_of_a_topic_is_named(tmp_path: Path, store: str) -> None:
    hour = 3_600 * SECOND
    world = World(tmp_path, store, {"message_expiry": "9h", "roll_after": "1h"})
    world.topic.publish([line("a", partition=0)])
    world.clock.now_ns += 2 * hour
    assert world.topic.plan().apply().removed_messages == 0
    world.configure(message_expiry="2h")
    [lowered] = world.topic.plan().plan.lowered
    assert (lowered.limit, lowered.before, lowered.now, lowered.unit) == (
        "message_expiry",
        9 * 3_600 * 10**6,
        2 * 3_600 * 10**6,
        "us",
    )
    assert lowered.removed_messages == 1
