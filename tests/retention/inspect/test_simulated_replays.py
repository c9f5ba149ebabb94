from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.core.units import DAY, HOUR
from retention.errors import RefusedError, UsageError
from retention.plan.simulation import SimulatedPass
from retention.views.notebook import ShownSimulation
from tests.support.sandboxes import NOW, configured

AT = [NOW - 3 * HOUR, NOW, NOW + DAY, NOW + 40 * DAY]
LIMITS: dict[str, Any] = {"max_msgs": 30, "max_msgs_per_subject": 4, "max_age": "20d"}
VARIANTS: dict[str, dict[str, Any]] = {
    "fewer": {"max_msgs": 7},
    "refusing": {"discard": "new", "max_bytes": 1_500, "max_age": "0s"},
    "brief": {"max_age": "90m", "allow_msg_ttl": True},
    "long ones": {"max_msg_size": 30, "deny_purge": True},
    "none": {"max_msgs": -1, "max_msgs_per_subject": -1, "max_age": "0s"},
}


class Clock:
    now_ns = NOW

    def __call__(self) -> int:
        return self.now_ns


def warehouse(folder: Path, clock: Clock, **settings: Any) -> Warehouse:
    stream = {"name": "S", "subjects": ["s.>"], "mode": "replay", **LIMITS, **settings}
    folder.mkdir(exist_ok=True)
    file = configured(folder, stream, engine="local")
    return open_warehouse(file, clock=clock)


def publish(wh: Warehouse, count: int, last_ns: int) -> None:
    """Publish messages of random subjects and sizes, ten minutes apart."""
    chance = random.Random(count)
    wh.stream("S").append(
        {
            "subject": f"s.{chance.choice('abcdef')}",
            "payload": bytes(chance.randrange(60)),
            "ts_ns": last_ns - (count - at) * HOUR // 6,
        }
        for at in range(count)
    )


def passes(simulation: ShownSimulation, name: str) -> list[SimulatedPass]:
    return next([*policy.passes] for policy in simulation.policies if policy.name == name)


def test_before_the_first_pass_a_simulation_is_a_replay(tmp_path: Path) -> None:
    wh = warehouse(tmp_path, Clock())
    publish(wh, 80, NOW)
    stream = wh.stream("S")
    simulated = stream.simulate(VARIANTS, at=AT)
    for name, settings in {"configured": {}, **VARIANTS}.items():
        replay = stream.replay(**settings, at=AT)
        of_name = passes(simulated, name)
        published = [sum(at_ns >= NOW - (80 - at) * HOUR // 6 for at in range(80)) for at_ns in AT]
        later = [80 - each for each in published]
        kept = [(each.kept.lower, each.kept.upper) for each in of_name]
        held = [state.messages for state in replay.states]
        assert kept == [(each + more,) * 2 for each, more in zip(held, later, strict=True)], name
    assert simulated.policies[0].cost.files_read.lower > 0
    assert passes(simulated, "configured")[1].alone == {}


@pytest.mark.parametrize("name", ["configured", *VARIANTS])
def test_a_pass_keeps_what_was_simulated(tmp_path: Path, name: str) -> None:
    clock = Clock()
    wh = warehouse(tmp_path, clock)
    publish(wh, 60, NOW - 5 * HOUR)
    wh.stream("S").plan().apply()
    publish(wh, 40, NOW)
    at = [NOW, NOW + DAY]
    simulated = passes(wh.stream("S").simulate(VARIANTS, at=at), name)
    changed = warehouse(tmp_path, clock, **VARIANTS.get(name, {}))
    for each in simulated[:1] if name == "configured" else simulated[1:]:
        clock.now_ns = each.at_ns
        report = changed.stream("S").plan().apply()
        removed = {rule: number.lower for rule, number in each.by_rule.items()}
        assert (report.removed_messages, report.by_rule) == (each.removed.upper, removed)
        state = changed.stream("S").state()
        assert (state.messages, state.bytes) == (each.kept.lower, each.kept_bytes.lower)


def test_a_mode_is_simulated_beside_the_other(tmp_path: Path) -> None:
    settings = {"max_msgs": 2, "max_msgs_per_subject": 1, "max_age": "0s"}
    for mode, other, kept in (("update", "replay", (1, 2)), ("replay", "update", (2, 1))):
        stream = warehouse(tmp_path / mode, Clock(), **settings, mode=mode).stream("S")
        stream.publish([json.dumps({"subject": f"s.{each}", "data": "x"}) for each in "abbb"])
        simulated = stream.simulate(at=[NOW], mode=other, exact=True)
        assert (
            tuple(passes(simulated, name)[0].kept.lower for name in ("configured", "changed"))
            == kept
        )


def test_what_a_replay_cannot_answer_is_refused(tmp_path: Path) -> None:
    wh = warehouse(tmp_path, Clock())
    publish(wh, 10, NOW)
    stream = wh.stream("S")
    with pytest.raises(RefusedError, match=r"messages to come are not known.*--growth none"):
        stream.simulate(growth="100/day")
    with pytest.raises(UsageError, match="max_subjects"):
        stream.simulate(max_subjects=3)
    with pytest.raises(UsageError, match="max_msg_size is not one of its limits"):
        stream.simulate(mode="update", max_msg_size=10)
    refused = stream.simulate(at=[NOW], max_msg_size=10).policies[1].passes[0].by_rule["refused"]
    assert refused.lower > 0
