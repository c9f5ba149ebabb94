"""A plan explains its own decisions, independent of later changes: new or read from a file, of a pass or a request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from retention.api.log import BoundPlan
from retention.api.stream import Stream
from retention.api.warehouse import Warehouse
from retention.core.inventory import Inventory
from retention.core.prefix import Prefix, TailTotals
from retention.engines.select import Engines
from retention.errors import StalePlanError, UsageError
from retention.plan.planfile import load_plans, save_plans
from retention.planners import shown
from retention.planners.explain import explain_by
from retention.planners.table import plan_table
from tests.retention.planners.test_delete_segments import opened_at
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import SECOND, START, even_segments, lay, warehouse_with
from tests.support.topic_crashes import NAME

NOW = START + 100 * SECOND
LOCAL = Engines("local")
FORMATS = pytest.mark.parametrize("format_", ["delta", "parquet"])
ALL = range(1, 41)

Kept = Callable[[BoundPlan], BoundPlan]


@pytest.fixture(params=["made", "saved"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    """A new plan, or the same plan read from a file."""

    def keep(plan: BoundPlan) -> BoundPlan:
        if request.param == "made":
            return plan
        save_plans(str(tmp_path / "plan"), [plan.plan])
        [loaded] = load_plans(str(tmp_path / "plan"))
        return BoundPlan(plan.stream, loaded)

    return keep


@dataclass(frozen=True)
class Oldest:
    """The two oldest of four segments; implements `Outlook`."""

    inventory: Inventory

    def head(self, _: int) -> Prefix:
        files = self.inventory.files
        size = pc.sum(files["bytes"].slice(2)).as_py()
        return Prefix(replace(self.inventory, files=files.slice(0, 2)), TailTotals(2, 20, size))


def forty(folder: Path, format_: str, **settings: Any) -> Warehouse:
    """Sequences 1 to 40 in segments of ten, one a second, on subjects s.1, s.2, s.0, s.1 and so on."""
    warehouse = warehouse_with(folder, format_, NOW, **settings)
    lay(warehouse.stream("ORDERS").opened, even_segments(4, 10))
    return warehouse


def publish(stream: Stream, count: int) -> None:
    stream.publish([f'{{"subject": "s.{at % 3}", "data": "x"}}' for at in range(count)])


def sentences(plan: BoundPlan, seqs: Any = ALL) -> list[str]:
    return [plan.explain(seq).sentence for seq in seqs]


@FORMATS
def test_what_comes_later_changes_no_explanation(tmp_path: Path, format_: str, kept: Kept) -> None:
    stream = warehouse_with(tmp_path, format_, NOW, max_msgs=1).stream("ORDERS")
    publish(stream, 1)
    plan = kept(stream.plan())
    before = plan.explain(1)
    assert plan.plan.is_empty
    assert not before.goes
    publish(stream, 2)
    assert plan.explain(1) == before
    newer = plan.explain(3)
    assert (newer.goes, newer.rule) == (False, None)
    assert newer.sentence == "ORDERS 3 (s.1) is kept: it was stored after this plan was made."
    assert stream.explain(1).goes
    with pytest.raises(UsageError, match="no message 4 "):
        plan.explain(4)


@FORMATS
@pytest.mark.parametrize(
    "settings",
    [
        {"max_msgs": 27, "max_bytes": 20 * 34, "max_age": "95s"},
        {"max_msgs_per_subject": 4, "max_age": "85s", "allow_msg_ttl": True},
        {"max_subjects": 2, "max_msgs_per_subject": 4},
        {"max_msgs_per_subject": 4, "max_age": "85s", "whole_segments": True},
    ],
)
def test_a_plan_agrees_with_a_fresh_explanation_and_outlives_it(
    tmp_path: Path, format_: str, settings: dict[str, Any], kept: Kept
) -> None:
    stream = forty(tmp_path, format_, **settings).stream("ORDERS")
    plan = kept(stream.plan())
    fresh = [stream.explain(seq) for seq in ALL]
    assert sum(one.goes for one in fresh) == plan.plan.removed_messages > 0
    publish(stream, 9)
    assert [plan.explain(seq) for seq in ALL] == fresh


@FORMATS
def test_consumers_that_come_further_change_no_explanation(
    tmp_path: Path, format_: str, kept: Kept
) -> None:
    held = {"max_msgs": 12, "max_msgs_per_subject": 3, "max_subjects": 2, "retention": "interest"}
    stream = forty(tmp_path, format_, **held).stream("ORDERS")
    stand(stream.opened, "billing", progress(15, 17, 16))
    made = stream.plan()
    before = [stream.explain(seq) for seq in ALL]
    stand(stream.opened, "billing", progress(30, 30))
    plan = kept(made)
    assert [plan.explain(seq) for seq in ALL] == before
    assert sum(one.goes for one in before) == plan.plan.removed_messages
    assert stream.explain(30).rule == "interest" != plan.explain(30).rule


@FORMATS
def test_a_plan_that_was_applied_is_still_explained(tmp_path: Path, format_: str) -> None:
    stream = forty(tmp_path, format_, max_msgs=35).stream("ORDERS")
    plan = stream.plan()
    before = sentences(plan)
    stream.plan().apply()
    assert sentences(plan) == before


@FORMATS
def test_a_file_that_is_gone_is_one_sentence(tmp_path: Path, format_: str) -> None:
    stream = forty(tmp_path, format_, max_msgs=30).stream("ORDERS")
    plan = stream.plan()
    stream.plan().apply()
    for file in tmp_path.rglob("segment=1/*.parquet"):
        file.unlink()
    with pytest.raises(StalePlanError, match=r"is gone since, .*plan again"):
        plan.explain(3)
    assert not plan.explain(40).goes


@FORMATS
def test_requests_explain_themselves(tmp_path: Path, format_: str, kept: Kept) -> None:
    stream = forty(tmp_path, format_).stream("ORDERS")
    plan = kept(stream.purge("s.1", keep=2))
    before = sentences(plan)
    publish(stream, 3)
    assert sentences(plan) == before
    assert plan.explain(40).sentence.endswith(
        "s.1, all but the newest 2: it is one of the newest 2."
    )
    assert "stored after this plan was made" in plan.explain(42).sentence
    deleted = stream.delete(5)
    stream.purge().apply()
    assert deleted.explain(5).goes


def test_the_oldest_segments_alone_explain_what_lies_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Kept
) -> None:
    stream = forty(tmp_path, "delta", max_msgs=40, max_age="95s").stream("ORDERS")
    store = stream.opened.store
    inventory = store.inventory(store.snapshot())
    monkeypatch.setattr(type(store), "incremental_inventory", lambda *_: Oldest(inventory))
    plan = kept(stream.plan())
    assert plan.plan.cause.tail.segments == 2
    assert plan.explain(5) == stream.explain(5)
    told = plan.explain(25)
    assert not told.goes
    assert "it is one of 20 messages behind the oldest segments" in told.sentence
    assert "max_age 1m35s: it is 1m15s old" in told.sentence
    publish(stream, 1)
    assert plan.explain(25) == told


def test_a_plan_from_a_remembered_instant_says_so(tmp_path: Path, kept: Kept) -> None:
    stream = forty(tmp_path, "delta", max_age="1h").stream("ORDERS")
    stream.plan()
    plan = kept(stream.plan())
    assert plan.plan.cause.next_due_ns is not None
    told = plan.explain(7)
    assert "is kept: nothing that the stream held is due before" in told.sentence
    assert told.arithmetic[1] == stream.explain(7).arithmetic[0]
    publish(stream, 1)
    assert plan.explain(7) == told


def test_a_plan_that_is_never_due_says_so(tmp_path: Path, kept: Kept) -> None:
    stream = forty(tmp_path, "delta", max_msgs=40).stream("ORDERS")
    stream.plan()
    plan = kept(stream.plan())
    assert "is ever due, unless something is stored" in plan.explain(7).sentence


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_topics_explain_themselves(tmp_path: Path, format_: str, kept: Kept) -> None:
    topic = opened_at(tmp_path, format_, message_expiry="1s").topic(NAME)
    plan, asked = kept(topic.plan()), topic.delete_segments(0, 2)
    places = [(seq, part) for part, end in ((0, 25), (1, 8)) for seq in range(end)]

    def told(plan: BoundPlan) -> list[str]:
        return [plan.explain(seq, part).sentence for seq, part in places]

    before, removal = told(plan), told(asked)
    assert before == [topic.explain(seq, partition=part).sentence for seq, part in places]
    topic.store_offset(0, "consumer", "7", 0)
    topic.publish(['{"data": "x", "partition": 0}'])
    assert told(plan) == before
    assert told(asked) == removal
    assert "consumer 7 has read up to 0" in topic.explain(3).sentence


def test_a_stream_without_a_table_holds_nothing_to_explain(tmp_path: Path, kept: Kept) -> None:
    stream = warehouse_with(tmp_path, "parquet", NOW, max_msgs=1).stream("ORDERS")
    plan = kept(stream.plan())
    with pytest.raises(UsageError, match="holds nothing yet"):
        plan.explain(1)
    publish(stream, 1)
    assert "stored after this plan was made" in plan.explain(1).sentence


def test_a_whole_plan_and_a_quick_one_agree(tmp_path: Path) -> None:
    opened = forty(tmp_path, "parquet", max_msgs=20, max_age="85s").stream("ORDERS").opened
    quick = shown.plan_stream(opened, NOW, LOCAL)
    whole = plan_table(opened, NOW, LOCAL).planning.plan
    assert [explain_by(opened, quick, (0, seq)) for seq in ALL] == [
        explain_by(opened, whole, (0, seq)) for seq in ALL
    ]
