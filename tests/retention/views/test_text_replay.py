from __future__ import annotations

import json
from pathlib import Path

from retention.core.units import SECOND
from retention.views.text_replay import fate_rows, replay_text
from tests.support.sandboxes import NOW, opened


def test_every_kind_of_event_has_its_words(tmp_path: Path) -> None:
    stream = opened(tmp_path, {"name": "S", "subjects": ["*"]}).stream("S")
    given = [("a", "1"), ("b", "22"), ("c", "3"), ("a", "1")]
    stream.publish(
        json.dumps({"subject": subject, "data": data, "ts_ns": NOW - 9 * SECOND + number})
        for number, (subject, data) in enumerate(given)
    )
    limits = {"max_msgs": 1, "max_msg_size": 100, "subjects": ["a", "b"]}
    replay = stream.replay([NOW], **limits, max_age="5s", subject_delete_marker_ttl="1m")
    lines = "\n".join(replay_text(replay, [3, 4]))
    assert "would have removed 1 by max_age, 2 by max_msgs" in lines
    assert "would have refused 1 (no stream takes the subject)" in lines
    assert "would have written 1 delete marker" in lines
    assert "message 3 (c): refused, no stream takes the subject" in lines
    assert [row["seq"] for row in fate_rows(replay)] == [1, 2, 3, 4, None]
    nothing = "\n".join(replay_text(stream.replay([0])))
    assert "it would have held nothing; its last sequence was 0" in nothing


def test_duplicates_are_told(tmp_path: Path) -> None:
    stream = opened(tmp_path, {"name": "S", "subjects": ["*"], "duplicate_window": "100ms"}).stream(
        "S"
    )
    stream.publish(
        json.dumps(
            {"subject": "a", "headers": {"Nats-Msg-Id": "x"}, "ts_ns": NOW - number * SECOND}
        )
        for number in (2, 1)
    )
    lines = "\n".join(replay_text(stream.replay(duplicate_window="1m"), [2]))
    assert "would have answered 1 duplicate" in lines
    assert "message 2 (a): a duplicate of the server's 1, not stored" in lines
