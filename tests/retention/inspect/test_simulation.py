from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.units import DAY, HOUR
from retention.errors import RefusedError, UsageError
from retention.plan.simulation import SimulatedPass
from retention.views.notebook import ShownSimulation
from tests.support.sandboxes import NOW, configured, lines
from tests.support.topics import World

YEAR_BY_WEEKS = [NOW + week * 7 * DAY for week in range(0, 53, 9)]
POLICIES: list[dict[str, Any]] = [
    {"max_age": "90d"},
    {"max_msgs": 100, "max_msgs_per_subject": 30},
    {"max_bytes": 2_000, "max_age": "30d", "expiry": "each"},
    {"max_subjects": 2, "max_age": "200d", "whole_segments": False},
    {"max_age": "20d", "whole_segments": True},
    {"allow_msg_ttl": True, "max_age": "60d"},
]


class Clock:
    now_ns = NOW

    def __call__(self) -> int:
        return self.now_ns


def warehouse(folder: Path, clock: Clock, **settings: Any) -> Warehouse:
    """A stream S with 240 messages on five subjects, an hour apart, in segments of about fifty."""
    stream = {"name": "S", "subjects": ["s.>"], "segment_size": "4KiB", **settings}
    file = configured(folder, stream, engine="local")
    made = open_warehouse(file, clock=clock)
    of_subjects = [lines(48, f"s.{name}", NOW - 10 * DAY) for name in "abcde"]
    messages = [json.loads(line) for group in zip(*of_subjects, strict=True) for line in group]
    for start in range(0, 240, 30):
        for each in messages[start : start + 30]:
            if settings.get("allow_msg_ttl") and each["subject"] == "s.b":
                each["headers"] = {"Nats-TTL": f"{start + 1}h"}
        made.stream("S").publish([json.dumps(each) for each in messages[start : start + 30]])
    return made


def passes(simulation: ShownSimulation, name: str) -> list[SimulatedPass]:
    return next([*policy.passes] for policy in simulation.policies if policy.name == name)


@pytest.mark.parametrize("policy", POLICIES, ids="-".join)
def test_passes_of_a_year_keep_what_was_simulated(tmp_path: Path, policy: dict[str, Any]) -> None:
    clock = Clock()
    wh = warehouse(tmp_path, clock, **policy)
    simulated = passes(wh.stream("S").simulate(at=YEAR_BY_WEEKS), "configured")
    exact = passes(wh.stream("S").simulate(at=YEAR_BY_WEEKS, exact=True), "configured")
    removed = 0
    for bounds, single in zip(simulated, exact, strict=True):
        clock.now_ns = bounds.at_ns
        (outcome,) = wh.apply(["S"])
        assert outcome.value is not None
        removed += outcome.value.removed_messages
        kept = wh.stream("S").state().messages
        assert bounds.kept.lower <= kept <= bounds.kept.upper
        assert bounds.removed.lower <= removed <= bounds.removed.upper
        assert bounds.kept_bytes.lower <= wh.stream("S").state().bytes <= bounds.kept_bytes.upper
        assert single.removed.lower == single.removed.upper <= bounds.removed.upper


def test_bounds_know_that_a_ttl_frees_older_messages_after_it(tmp_path: Path) -> None:
    stream = {"name": "S", "subjects": ["s.>"], "max_age": "20d", "allow_msg_ttl": True}
    clock = Clock()
    wh = open_warehouse(configured(tmp_path, stream, engine="local"), clock=clock)
    brief = {"subject": "s.a", "data": "x", "ts_ns": NOW - DAY, "headers": {"Nats-TTL": "48h"}}
    old = {"subject": "s.b", "data": "y", "ts_ns": NOW - 18 * DAY}
    for message in (brief, old):
        wh.stream("S").publish([json.dumps(message)])
    (bounds,) = passes(wh.stream("S").simulate(at=[NOW + 3 * DAY]), "configured")
    for days in (2, 3):
        clock.now_ns = NOW + days * DAY
        wh.apply(["S"])
    assert wh.stream("S").state().messages == 0
    assert bounds.kept.lower == 0


def test_policies_stand_side_by_side_and_nothing_is_written(tmp_path: Path) -> None:
    wh = warehouse(tmp_path, Clock(), max_msgs=200)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    simulation = wh.stream("S").simulate(
        {"one": {"max_msgs": -1, "max_msgs_per_subject": 1}}, [NOW], max_age="9d"
    )
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    kept = {policy.name: policy.passes[0].kept.upper for policy in simulation.policies}
    assert (kept["configured"], kept["one"]) == (200, 5)
    alone = passes(simulation, "changed")[0].alone
    assert alone["max_msgs"].lower == 40
    assert alone["max_age"].lower <= 125 <= alone["max_age"].upper
    frame = simulation.to_pandas()
    assert list(frame["policy"]) == ["configured", "one", "changed"]
    assert frame["kept_messages.lower"][1] == 5


def test_growth_is_of_the_rate_and_the_subjects_observed(tmp_path: Path) -> None:
    stream = warehouse(tmp_path, Clock(), max_msgs_per_subject=48).stream("S")
    (policy,) = stream.simulate(at=[NOW, NOW + 2 * DAY], growth="240/day").policies
    first, second = policy.passes
    assert (first.stored, second.stored) == (240, 720)
    assert first.kept.upper == 240
    assert second.kept.lower == second.kept.upper == 240
    observed = stream.simulate(at=[NOW], growth="history").growth
    assert observed.per_day == pytest.approx(239 * DAY / (47 * HOUR), rel=0.01)
    none_left = stream.simulate(at=[NOW + 400 * DAY], growth="1/day", max_age="1d").policies[1]
    assert none_left.passes[0].kept.lower <= 1 <= none_left.passes[0].kept.upper <= 7


def test_what_cannot_be_simulated_is_refused(tmp_path: Path) -> None:
    stream = warehouse(tmp_path, Clock()).stream("S")
    with pytest.raises(UsageError, match="did you mean max_age"):
        stream.simulate(max_ages="7d")
    with pytest.raises(UsageError, match="max_age: '7x' is not a duration"):
        stream.simulate(max_age="7x")
    with pytest.raises(UsageError, match="name"):
        stream.simulate({"configured": {"max_age": "7d"}})
    with pytest.raises(UsageError, match="no rows to read"):
        stream.simulate(exact=True, growth="5/day")
    with pytest.raises(RefusedError, match="growth none"):
        stream.simulate(growth="5/day", retention="interest")
    interest = stream.simulate(growth="none", retention="interest").policies[1]
    assert interest.passes[0].kept.lower <= 240


def test_a_topic_is_simulated_by_its_segments(tmp_path: Path) -> None:
    world = World(tmp_path, "parquet", {"message_expiry": "1d", "segment_size": "1MiB"})
    payload = "x" * 30_000
    for _ in range(4):
        world.topic.publish(
            [json.dumps({"partition": number % 2, "data": payload}) for number in range(60)]
        )
        world.clock.now_ns += HOUR * 10
    simulation = world.topic.simulate(at=["now", "now+3d"], message_expiry="never")
    now, later = passes(simulation, "configured")
    assert (now.stored, later.removed.lower) == (240, later.removed.upper)
    assert now.removed.upper < later.removed.upper
    assert [each.removed.upper for each in passes(simulation, "changed")] == [0, 0]
    grown = passes(world.topic.simulate(at=["now+1d"], growth="240/day"), "configured")[0]
    assert grown.stored == 480
    assert grown.removed.upper < 480
    world.clock.now_ns += 3 * DAY
    (outcome,) = world.warehouse.apply(["clicks"])
    assert outcome.value is not None
    assert outcome.value.removed_messages == later.removed.upper


def test_no_data_file_is_opened(tmp_path: Path) -> None:
    stream = warehouse(tmp_path, Clock()).stream("S")
    for file in tmp_path.glob("streams/S/messages/**/*.parquet"):
        file.unlink()
    simulation = stream.simulate(max_age="9d", max_msgs_per_subject=1)
    assert simulation.policies[1].passes[0].kept.upper == 5
