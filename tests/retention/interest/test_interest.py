from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream_consumers import StreamConsumers
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.context.context import OpenedStream
from retention.engines.select import Engines
from retention.errors import DamagedError, RefusedError
from retention.ingest.publish import publish
from retention.planners.shown import plan_stream
from retention.stores.consumer_table import ConsumerTable
from tests.retention.planners.test_interest import left, progress, stand
from tests.support.laying import SECOND, START, even_segments, laid_stream, lay

NOW = START + 100 * SECOND
AS_OF = START + 75 * SECOND
LOCAL = Engines("local")
Make = Callable[..., OpenedStream]


@pytest.fixture(params=["delta", "parquet"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    def made(**settings: Any) -> OpenedStream:
        strict: dict[str, Any] = {"retention": "interest", "max_msgs": 1}
        return laid_stream(tmp_path, request.param, NOW, **strict | settings)

    return made


def refused(opened: OpenedStream, text: str) -> None:
    """Assert that a plan and a pass are refused with these words, and nothing changes."""
    before = left(opened)
    for act in (plan_stream, partial(apply_now, guards=Guards())):
        with pytest.raises(RefusedError, match=text):
            act(opened, AS_OF, engines=LOCAL)
    assert left(opened) == before


def test_two_consumers_of_a_work_queue_that_take_the_same_are_named(make: Make) -> None:
    opened = make(retention="workqueue")
    lay(opened, even_segments(1, 10))
    stand(opened, "one", progress(0, 0), "s.*")
    stand(opened, "other", progress(5, 5), "s.1")
    words = r"consumers one and other of a work queue .*10100\); nothing was removed; give them"
    refused(opened, words)
    StreamConsumers(opened).remove("other")
    assert apply_now(opened, AS_OF, LOCAL, Guards()).by_rule == {"max_msgs": 9}


def test_a_filter_that_looks_like_a_wildcard_and_is_none_is_named(make: Make) -> None:
    opened = make(unmatched="remove")
    lay(opened, even_segments(1, 10))
    stand(opened, "odd", progress(0, 0), "s.*b.>")
    refused(opened, r"filter 's\.\*b\.>' of consumer odd .* nothing was removed; give it other")
    publish(opened, ['{"subject": "s.9"}'])
    assert left(opened) == list(range(1, 12))


def test_consumers_that_are_newer_than_the_messages_are_named_and_kept(make: Make) -> None:
    opened = make()
    lay(opened, even_segments(2, 10))
    stand(opened, "ahead", progress(15, 15))
    for lost in (f"{opened.root}/messages", f"{opened.root}/_retention"):
        shutil.rmtree(lost)
    opened = make()
    assert StreamConsumers(opened).list() == []
    publish(opened, [json.dumps({"subject": "s.0"})] * 14)
    refused(
        opened, r"consumer ahead is impossible: .*15.* last sequence of the stream, 14; .*import"
    )
    assert [consumer.name for consumer in StreamConsumers(opened).list()] == ["ahead"]
    publish(opened, ['{"subject": "s.0"}'])
    assert apply_now(opened, AS_OF, LOCAL, Guards()).by_rule == {"interest": 15}


def test_consumers_that_are_older_than_the_messages_need_more_and_nothing_else(make: Make) -> None:
    opened = make(max_msgs=-1)
    lay(opened, even_segments(2, 10))
    stand(opened, "behind", progress(3, 3))
    old = shutil.copytree(f"{opened.root}/consumers", f"{opened.root}/../kept")
    stand(opened, "behind", progress(9, 9))
    plan = plan_stream(opened, AS_OF, LOCAL)
    shutil.rmtree(f"{opened.root}/consumers")
    shutil.copytree(old, f"{opened.root}/consumers")
    record = ConsumerTable(opened.root).read("behind")
    assert record is not None
    assert plan.pins.consumers is not None
    assert record.version < plan.pins.consumers[0].version
    assert apply_now(opened, AS_OF, LOCAL, Guards()).by_rule == {"interest": 3}


def test_consumers_of_which_every_record_is_gone_are_not_taken_for_none(make: Make) -> None:
    settings: dict[str, Any] = {"max_msgs": -1, "unmatched": "remove"}
    slow = {"durable_name": "slow", "ack_policy": "explicit"}
    opened = make(**settings)
    lay(opened, even_segments(1, 10))
    StreamConsumers(opened).add(slow)
    kept = shutil.move(f"{opened.root}/consumers", f"{opened.root}/../kept")
    for lost in (opened, make(**settings, consumers=[slow])):
        with pytest.raises(DamagedError, match=r"there is no consumer record, but .* log counts"):
            apply_now(lost, AS_OF, LOCAL, Guards())
    assert left(opened) == list(range(1, 11))
    shutil.move(kept, f"{opened.root}/consumers")
    assert apply_now(opened, AS_OF, LOCAL, Guards()).by_rule == {}
