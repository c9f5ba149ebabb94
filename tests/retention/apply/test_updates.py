from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream_consumers import StreamConsumers
from retention.apply.guards import Guards
from retention.apply.requested import remove_now
from retention.apply.run import apply_now
from retention.apply.saved_plan import apply_plan
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import RefusedError
from retention.history.runs import history_of
from retention.ingest.publish import publish
from retention.planners.shown import plan_stream
from retention.rules.requests import purge_request
from retention.stores.consumer_table import ConsumerTable
from tests.retention.planners.test_interest import keep, progress
from tests.support.laying import SECOND, START, laid_stream

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
LOCAL = Engines("local")
Make = Callable[..., OpenedStream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """A stream of two segments of ten messages on s.0, s.1 and s.2 in turn."""

    return partial(laid_stream, tmp_path, request.param, NOW, segments=2)


def settled(opened: OpenedStream, name: str, seq: int) -> None:
    """Add a consumer that has settled everything up to a sequence."""
    StreamConsumers(opened).add({"durable_name": name, "ack_policy": "explicit"})
    table = ConsumerTable(opened.root)
    record = table.read(name)
    assert record is not None
    after = type(record)(**vars(record) | {"state": progress(seq, seq)})
    table.update(name, partial(keep, after))


def test_from_limits_to_interest_and_back_by_the_next_pass(make: Make) -> None:
    apply_now(make(), AS_OF, LOCAL, Guards())
    settled(make(), "billing", 7)
    assert apply_now(make(), AS_OF, LOCAL, Guards()).removed_messages == 0
    switched = make(retention="interest")
    assert apply_now(switched, AS_OF, LOCAL, Guards()).by_rule == {"interest": 7}
    settled(switched, "audit", 12)
    StreamConsumers(switched).remove("billing")
    assert apply_now(make(), AS_OF, LOCAL, Guards()).removed_messages == 0
    assert apply_now(switched, AS_OF, LOCAL, Guards()).by_rule == {"interest": 5}


CHANGES = [("limits", "workqueue"), ("interest", "workqueue"), ("workqueue", "limits")]
SERVERS = r"to/from workqueue, server error 10052\); nothing was changed; write retention: {}"


@pytest.mark.parametrize(("before", "after"), [*CHANGES, ("workqueue", "interest")])
def test_to_and_from_a_work_queue_is_refused_before_anything_is_decided(
    make: Make, before: str, after: str
) -> None:
    apply_now(make(retention=before), AS_OF, LOCAL, Guards())
    listed = [{"durable_name": "late", "ack_policy": "explicit"}]
    changed = make(retention=after, consumers=listed, allow_rollup_hdrs=True)
    plan = plan_stream(changed, AS_OF, LOCAL)
    acts: list[Callable[[], object]] = [
        lambda: apply_now(changed, AS_OF, LOCAL, Guards()),
        lambda: apply_plan(changed, plan, LOCAL, Guards()),
        lambda: remove_now(changed, purge_request(None, None, None), LOCAL),
        lambda: publish(changed, ['{"subject": "s.0", "headers": {"Nats-Rollup": "all"}}']),
    ]
    version = changed.store.snapshot().version
    for act in acts:
        with pytest.raises(RefusedError, match=SERVERS.format(before)):
            act()
    assert changed.store.snapshot().version == version
    assert ConsumerTable(changed.root).read("late") is None
    assert apply_now(make(retention=before), AS_OF, LOCAL, Guards()).removed_messages == 0


def test_a_run_that_was_interrupted_tells_the_policy_too(make: Make) -> None:
    opened = make(retention="workqueue", max_msgs=5)
    apply_now(opened, AS_OF, LOCAL, Guards())
    history = history_of(opened.warehouse, opened.name)
    [done] = [*Path(history.directory).glob("*.done.json")]
    done.unlink()
    with pytest.raises(RefusedError, match="10052"):
        apply_now(make(), AS_OF, LOCAL, Guards())


TIGHT = [{"max_ack_pending": 999}, {"inactive_threshold": "59m"}]


@pytest.mark.parametrize("limits", TIGHT)
@pytest.mark.parametrize("retention", ["limits", "interest"])
def test_limits_below_stored_consumers_are_refused_with_their_names(
    make: Make, limits: dict[str, Any], retention: str
) -> None:
    opened = make(retention=retention)
    for name in ("b", "a"):
        config = {"durable_name": name, "ack_policy": "explicit", "inactive_threshold": "1h"}
        StreamConsumers(opened).add(config)
    StreamConsumers(opened).add({"durable_name": "none", "ack_policy": "none"})
    tight = make(retention=retention, consumer_limits=limits, max_msgs=5)
    with pytest.raises(RefusedError, match=r"violates consumers: a, b; server error 10069"):
        apply_now(tight, AS_OF, LOCAL, Guards())
    met = make(consumer_limits={"max_ack_pending": 1000, "inactive_threshold": "1h"})
    assert apply_now(met, AS_OF, LOCAL, Guards()).removed_messages == 0


def test_listed_consumers_follow_the_limits(make: Make) -> None:
    listed = [{"durable_name": "c", "ack_policy": "explicit"}]
    apply_now(make(retention="interest", consumers=listed), AS_OF, LOCAL, Guards())
    limits = {"max_ack_pending": 10}
    opened = make(retention="interest", consumers=listed, consumer_limits=limits)
    apply_now(opened, AS_OF, LOCAL, Guards())
    record = ConsumerTable(opened.root).read("c")
    assert record is not None
    assert record.config["max_ack_pending"] == 10


def test_fewer_consumers_than_there_are_is_no_mistake_but_one_more_is(make: Make) -> None:
    for name in ("a", "b"):
        StreamConsumers(make()).add({"durable_name": name, "ack_policy": "explicit"})
    opened = make(max_consumers=1)
    apply_now(opened, AS_OF, LOCAL, Guards())
    consumers = StreamConsumers(opened)
    consumers.update({"durable_name": "a", "ack_policy": "explicit", "description": "x"})
    with pytest.raises(RefusedError, match="max_consumers: 1 is reached"):
        consumers.add({"durable_name": "c", "ack_policy": "explicit"})
