"""Markers on real tables: in one commit with their removals, once, and never after a newer value."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.apply.guards import Guards
from retention.apply.run import apply_now
from retention.apply.undo import undo_run
from retention.core.units import HOUR
from retention.engines.select import Engines
from retention.errors import StalePlanError
from retention.plan.planfile import load_plans, save_plans
from retention.storage.crash_points import Step, watched_by
from tests.support.sandboxes import NOW, opened

DEVICES = {
    "name": "DEVICES",
    "subjects": ["device.>"],
    "allow_msg_ttl": True,
    "subject_delete_marker_ttl": "1h",
}
STORED_NS = NOW - 2 * HOUR
COMMITTING = {"delta": Step.DELTA_COMMITTING, "parquet": Step.ENTRY_SYNCED}
MARKER = b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 1h0m0s\r\nNats-Rollup: sub\r\n\r\n"


def line(subject: str, ttl: str | None = None, ts_ns: int = STORED_NS) -> str:
    headers = {} if ttl is None else {"headers": {"Nats-TTL": ttl}}
    return json.dumps({"subject": f"device.{subject}", "data": "on", "ts_ns": ts_ns, **headers})


@pytest.fixture(params=["delta", "parquet"])
def format_(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def devices(tmp_path: Path, format_: str) -> Stream:
    """Sequences 1 to 5: `dying` twice and `gone` have passed their TTL; `kept` has none, `later` is not due."""
    stream = opened(tmp_path, {**DEVICES, "format": format_}).new_stream("DEVICES")
    stream.publish(
        [
            line("dying", "1h"),
            line("kept"),
            line("dying", "1h"),
            line("gone", "1h"),
            line("later", "3h"),
        ]
    )
    return stream


def held(stream: Stream) -> list[tuple[int, str]]:
    return [(row["seq"], row["subject"].removeprefix("device.")) for row in rows(stream)]


def rows(stream: Stream) -> Iterator[dict[str, Any]]:
    for table in stream.messages():
        yield from table.to_pylist()


def apply(stream: Stream) -> Any:
    with Engines("local") as engines:
        return apply_now(stream.opened, NOW, engines, Guards())


def test_the_last_of_a_subject_leaves_a_marker_in_the_same_version(devices: Stream) -> None:
    report = apply(devices)
    assert held(devices) == [(2, "kept"), (5, "later"), (6, "dying"), (7, "gone")]
    assert (report.removed_messages, report.markers, report.by_rule) == (3, 2, {"msg_ttl": 3})
    marker = list(rows(devices))[2]
    assert (marker["headers"], marker["payload"], marker["ts_ns"]) == (MARKER, b"", NOW)
    assert marker["deadline_ns"] == NOW + HOUR
    assert marker["marker"]
    assert report.version_after == report.version_before + 1


def test_a_marker_is_not_written_again_by_the_next_pass_and_dies_silently(
    devices: Stream, tmp_path: Path, format_: str
) -> None:
    apply(devices)
    assert apply(devices).markers == 0
    later = opened(tmp_path, {**DEVICES, "format": format_}, now_ns=NOW + HOUR)
    [outcome] = later.apply(["DEVICES"], NOW + HOUR)
    assert outcome.value is not None, outcome.sentence
    assert (outcome.value.removed_messages, outcome.value.markers) == (3, 1)
    assert held(later.stream("DEVICES")) == [(2, "kept"), (8, "later")]


def test_the_next_message_follows_the_markers(devices: Stream) -> None:
    apply(devices)
    assert [ack.seq for ack in devices.publish([line("new")]).acks()] == [8]


def test_a_saved_plan_with_markers_is_refused_when_messages_came(
    devices: Stream, tmp_path: Path
) -> None:
    plan = devices.plan()
    save_plans(str(tmp_path / "plan.json"), [plan.plan])
    [saved] = load_plans(str(tmp_path / "plan.json"))
    assert saved.plan_id == plan.plan.plan_id
    assert saved.actions.markers.equals(plan.plan.actions.markers)
    devices.publish([line("gone", ts_ns=NOW)])
    with pytest.raises(StalePlanError, match="next sequence is 7"):
        plan.apply()
    assert [seq for seq, _ in held(devices)] == [1, 2, 3, 4, 5, 6]


def test_a_value_that_comes_before_the_commit_is_not_announced_as_dead(
    devices: Stream, tmp_path: Path, format_: str
) -> None:
    rival = opened(tmp_path, {**DEVICES, "format": format_}).stream("DEVICES")
    came: list[int] = []
    stopped: list[Step] = []

    def publish_once(step: Step) -> None:
        if step == COMMITTING[format_] and not stopped:
            stopped.append(step)
            came.extend(ack.seq for ack in rival.publish([line("gone", ts_ns=NOW)]).acks())

    with watched_by(publish_once):
        report = apply(devices)
    assert came == [6]
    assert held(devices) == [(2, "kept"), (5, "later"), (6, "gone"), (7, "dying")]
    assert report.markers == 1


def test_undoing_a_pass_takes_its_markers_back(devices: Stream) -> None:
    before = held(devices)
    run = apply(devices).run
    undo_run(devices.opened, run)
    assert held(devices) == before
    assert [ack.seq for ack in devices.publish([line("new")]).acks()] == [8]


def test_a_plan_says_which_markers_it_writes(devices: Stream) -> None:
    plan = devices.plan()
    assert plan.plan.actions.markers.to_pylist() == [
        {"seq": 6, "subject": "device.dying", "replaces": 3},
        {"seq": 7, "subject": "device.gone", "replaces": 4},
    ]
    assert plan.plan.summary()["markers"] == 2


def test_a_refused_marker_leaves_the_message_that_it_stands_for(
    tmp_path: Path, format_: str
) -> None:
    settings = {**DEVICES, "format": format_, "max_msgs": 2, "discard": "new"}
    stream = opened(tmp_path, settings).new_stream("DEVICES")
    stream.publish([line("dying", "1h"), line("kept")])
    report = apply(stream)
    assert (report.removed_messages, report.markers) == (0, 0)
    assert held(stream) == [(1, "dying"), (2, "kept")]


def test_people_are_told_how_many_markers_are_written(devices: Stream) -> None:
    plan = devices.plan()
    assert "3 by msg_ttl; write 2 delete markers" in str(plan)
    assert "3 by msg_ttl; wrote 2 delete markers" in str(plan.apply())
