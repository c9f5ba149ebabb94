from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.api.stream import Stream
from retention.core.units import HOUR, SECOND
from retention.errors import MissingMessageError, RefusedError, UsageError
from retention.views.notebook import ShownReplay
from retention.views.text_replay import replay_text
from tests.support.sandboxes import NOW, opened


def stream_of(folder: Path, **settings: Any) -> Stream:
    """S with a, b, b, b: a second each, an hour ago, in two files."""
    stream = opened(folder, {"name": "S", "subjects": ["*"], **settings}).stream("S")
    messages = [
        json.dumps({"subject": subject, "data": "x", "ts_ns": NOW - HOUR + number * SECOND})
        for number, subject in enumerate("abbb")
    ]
    stream.publish(messages[:2])
    stream.publish(messages[2:])
    return stream


def seqs(replay: ShownReplay, at: Any = None) -> list[int | None]:
    return replay.held(at)["seq"].to_pylist()


def test_limits_act_at_each_publish_and_nothing_is_written(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    replay = stream.replay(["now-1h", "now"], max_msgs=2, max_msgs_per_subject=1)
    assert (seqs(replay, NOW - HOUR), seqs(replay)) == ([1], [1, 4])
    assert [state.messages for state in replay.states] == [1, 2]
    assert replay.removed_by == {"max_msgs_per_subject": 2}
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    updated = stream.simulate(at=["now"], exact=True, max_msgs=2, max_msgs_per_subject=1)
    assert updated.policies[1].passes[0].kept.upper == 1


def test_a_frame_has_exact_integers(tmp_path: Path) -> None:
    frame = stream_of(tmp_path).replay(max_msgs=1).to_pandas()
    assert frame["removed_ns"][0] == NOW - HOUR + SECOND
    assert frame["removed_ns"].isna().tolist() == [False, False, False, True]
    assert frame["fate"].tolist() == ["removed"] * 3 + ["kept"]


def test_the_configured_limits_are_replayed_without_settings(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_msgs=3)
    assert seqs(stream.replay()) == [2, 3, 4]
    assert seqs(stream.replay(max_msgs=-1)) == [1, 2, 3, 4]


def test_messages_that_are_missing_are_told(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    assert stream.replay().missing == 0
    stream.delete(2).apply()
    replay = stream.replay()
    assert replay.missing == 1
    assert any("1 sequence has no message" in line for line in replay_text(replay))
    stream.delete(1, 4).apply()
    assert stream.replay().missing == 3
    with pytest.raises(MissingMessageError, match="has the sequence 2"):
        replay.fate(2)


def test_fates_are_told_in_sentences(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_age="1h", subject_delete_marker_ttl="5m")
    replay = stream.replay([NOW + 2 * HOUR], max_msgs=3, max_msg_size=2)
    lines = [*replay_text(replay, [1, 2])]
    assert lines[-2].endswith(
        "removed by max_msgs at 2027-01-15T07:00:03Z, when the server's 4 was stored"
    )
    assert "removed by max_age at 2027-01-15T08:00:01Z" in lines[-1]


UNANSWERABLE = [
    ({"retention": "interest"}, {"retention": "limits"}),
    ({"hold_for_consumers": {"max_age": "1d"}}, {"hold_for_consumers": None}),
    ({"sealed": True}, {"sealed": False}),
    ({"max_subjects": 2}, {"max_subjects": -1}),
    ({"delete_retention": "1d", "max_msgs_per_subject": 1}, {"delete_retention": 0}),
    ({"max_age": "1d", "expiry": "each"}, {"expiry": "head"}),
    ({"whole_segments": True}, {"whole_segments": False}),
]


@pytest.mark.parametrize(("settings", "remedy"), UNANSWERABLE, ids=str)
def test_a_replay_is_possible_after_the_remedy_of_its_refusal(
    tmp_path: Path, settings: dict[str, Any], remedy: dict[str, Any]
) -> None:
    stream = stream_of(tmp_path)
    with pytest.raises(RefusedError, match="nothing was replayed, because"):
        stream.replay(**settings)
    assert stream.replay(**settings | remedy).published == 4


def test_counters_cannot_be_replayed(tmp_path: Path) -> None:
    stream = opened(tmp_path, {"name": "S", "subjects": ["*"], "allow_msg_counter": True}).stream(
        "S"
    )
    stream.publish([json.dumps({"subject": "a", "headers": {"Nats-Incr": "1"}})])
    with pytest.raises(RefusedError, match="counters and schedules change what is published"):
        stream.replay()


def test_wrong_questions_are_usage_errors(tmp_path: Path) -> None:
    stream = stream_of(tmp_path)
    with pytest.raises(UsageError, match="did you mean max_msgs"):
        stream.replay(max_mgs=2)
    with pytest.raises(UsageError, match="is not an instant"):
        stream.replay(["soon"])
    with pytest.raises(UsageError, match="after the end of the replay"):
        stream.replay().held(NOW + SECOND)
    empty = opened(tmp_path / "other", {"name": "S"}).stream("S")
    with pytest.raises(UsageError, match="holds nothing to replay"):
        empty.replay()
