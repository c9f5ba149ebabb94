"""Every commit with removals records the highest removed sequence, and the value never falls."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retention.apply.guards import Guards
from retention.apply.requested import remove_now
from retention.apply.run import apply_now
from retention.apply.undo import undo_run
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.ingest.publish import publish
from retention.inspect.messages import Selection, read_messages
from retention.inspect.state import state_of
from retention.rules.requests import Delete, Purge
from tests.retention.planners.test_interest import progress, stand
from tests.support.laying import SECOND, START, laid_stream
from tests.support.topics import World, line

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
LOCAL = Engines("local")
Make = Callable[..., OpenedStream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of four segments of ten messages on s.0, s.1 and s.2 in turn, a second apart."""
    return partial(laid_stream, tmp_path, request.param, NOW, segments=4)


def removed(opened: OpenedStream) -> int | None:
    return opened.store.snapshot().counters.removed.get(0)


def seqs(opened: OpenedStream) -> set[int]:
    return {seq for rows in read_messages(opened, Selection()) for seq in rows["seq"].to_pylist()}


CASES: dict[str, dict[str, Any]] = {
    "segments go whole and a file is rewritten": {"max_age": "60s"},
    "rows decide": {"max_msgs_per_subject": 2},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=list(CASES))
def test_a_pass_says_up_to_where_it_removed(make: Make, settings: dict[str, Any]) -> None:
    opened = make(**settings)
    if "retention" in settings:
        stand(opened, "billing", progress(13, 13))
    assert removed(opened) is None
    before = seqs(opened)
    run = apply_now(opened, AS_OF, LOCAL, Guards()).run
    highest = max(before - seqs(opened))
    assert removed(opened) == highest
    assert state_of(opened, AS_OF).as_json()["removed_seq"] == highest
    undo_run(opened, run)
    assert seqs(opened) == before
    assert removed(opened) == highest


def test_requests_and_roll_ups_say_so_too(make: Make) -> None:
    opened = make(allow_rollup_hdrs=True)
    remove_now(opened, Delete((3, 17)), LOCAL)
    assert removed(opened) == 17
    remove_now(opened, Delete((5,)), LOCAL)
    assert removed(opened) == 17
    rollup = {"subject": "s.1", "data": "now", "headers": {"Nats-Rollup": "sub"}}
    publish(opened, [json.dumps(rollup)])
    assert removed(opened) == 40


def test_a_message_that_is_answered_and_never_stored_counts(make: Make) -> None:
    opened = make(allow_rollup_hdrs=True)
    rollup = {"subject": "new.1", "data": "now", "headers": {"Nats-Rollup": "sub"}}
    publish(opened, [json.dumps({"subject": "new.1", "data": "old"}), json.dumps(rollup)])
    assert 41 not in seqs(opened)
    assert removed(opened) == 41


def test_a_purge_that_steps_over_sequences_counts_them(make: Make) -> None:
    opened = make()
    remove_now(opened, Purge(seq=100), LOCAL)
    assert removed(opened) == 99
    publish(opened, [json.dumps({"subject": "s.1", "data": "x"})])
    assert seqs(opened) == {100}


def test_markers_that_an_undo_takes_count(make: Make) -> None:
    opened = make(max_age="60s", allow_msg_ttl=True, subject_delete_marker_ttl="1h")
    run = apply_now(opened, START + 99 * SECOND, LOCAL, Guards()).run
    before = seqs(opened)
    assert removed(opened) == 39 if 40 in before else 40
    undo_run(opened, run)
    assert removed(opened) == max(before)


@pytest.mark.parametrize("format_", ["delta", "parquet"])
def test_partitions_of_a_topic_have_their_own(tmp_path: Path, format_: str) -> None:
    world = World(tmp_path, format_)
    for partition in (0, 1, 1):
        world.topic.publish([line(partition=partition)])
    purged = world.topic.purge().apply()
    store = world.topic.opened.store
    assert store.snapshot().counters.removed == {}
    world.warehouse.undo(purged.run)
    assert store.snapshot().counters.removed == {}
    world.configure(message_expiry="1s", roll_after="1s")
    world.clock.now_ns += 10 * SECOND
    world.warehouse.apply(["clicks"])
    assert store.snapshot().counters.removed == {0: 0, 1: 1}
    partitions = world.topic.state().as_json()["partitions"]
    assert [partition["removed_seq"] for partition in partitions] == [0, 1]
