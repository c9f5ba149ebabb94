from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.api.stream import Stream
from retention.api.warehouse import Warehouse
from retention.core.counters import Counters
from retention.core.units import HOUR, SECOND
from retention.errors import DamagedError, RefusedError, StalePlanError, UsageError
from retention.inspect.lag import UNKNOWN_LAG, lag_of
from retention.planners.replayed import digests_of
from retention.storage import files
from retention.stores.replay_states import ReplayStates
from retention.views.segment_groups import groups_of
from retention.views.text import behind_text, explanation_text, lag_text
from tests.support.sandboxes import NOW, opened


def warehouse_of(folder: Path, now_ns: int = NOW, **settings: Any) -> Warehouse:
    config = {"name": "S", "subjects": ["*"], "mode": "replay", **settings}
    return opened(folder, config, now_ns=now_ns)


def stream_of(folder: Path, now_ns: int = NOW, **settings: Any) -> Stream:
    return warehouse_of(folder, now_ns, **settings).stream("S")


def append(stream: Stream, subjects: str, since: int = 0, headers: Any = None) -> None:
    """Append messages as they are, an hour ago, a second each."""
    stream.append(
        {
            "subject": each,
            "payload": b"x",
            "ts_ns": NOW - HOUR + (since + at) * SECOND,
            "headers": headers,
        }
        for at, each in enumerate(subjects)
    )


def seqs(stream: Stream) -> list[int]:
    return [seq for table in stream.messages() for seq in table["seq"].to_pylist()]


def test_a_pass_removes_what_the_server_would_have_removed(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_msgs=2, max_msgs_per_subject=1)
    append(stream, "ab")
    append(stream, "bb", since=2)
    assert stream.plan().apply().by_rule == {"max_msgs_per_subject": 2}
    assert seqs(stream) == [1, 4]
    append(stream, "c", since=4)
    assert stream.plan().plan.by_rule == {"max_msgs": 1}
    stream.plan().apply()
    assert seqs(stream) == [4, 5]
    assert stream.plan().plan.is_empty


def test_what_a_server_would_refuse_goes_by_a_name_of_its_own(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, discard="new", max_msgs=2)
    append(stream, "ab", headers=b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    append(stream, "cd", since=2)
    refused = stream.explain(4)
    assert refused.rule == "refused"
    assert "would have refused it: maximum messages exceeded (error code 10077)" in refused.sentence
    assert "a duplicate of its message 1" in stream.explain(2).sentence
    assert explanation_text(stream.explain(2)) == [stream.explain(2).sentence]
    assert stream.plan().apply().by_rule == {"refused": 1, "duplicate": 1}
    assert seqs(stream) == [1, 3]


def test_an_id_counts_after_its_message_was_removed(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_msgs=1)
    given = b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n"
    append(stream, "a", headers=given)
    append(stream, "b", since=1)
    stream.plan().apply()
    append(stream, "c", since=2, headers=given)
    assert stream.plan().apply().by_rule == {"duplicate": 1}
    assert seqs(stream) == [2]


def test_a_held_message_does_not_count_and_goes_when_the_hold_does(tmp_path: Path) -> None:
    warehouse = warehouse_of(tmp_path, max_msgs=2)
    stream = warehouse.stream("S")
    append(stream, "abc")
    hold = warehouse.hold("S", from_seq=1, to_seq=1, reason="case 7")
    stream.plan().apply()
    assert seqs(stream) == [1, 2, 3]
    append(stream, "d", since=3)
    assert stream.plan().apply().by_rule == {"max_msgs": 1}
    assert seqs(stream) == [1, 3, 4]
    assert "legal hold" in stream.explain(1).sentence
    warehouse.release_hold(hold.id, reason="closed")
    assert "max_msgs at 2027-01-15T07:00:02Z, when it stored its message 3" in str(
        stream.explain(1).sentence
    )
    assert stream.plan().apply().by_rule == {"max_msgs": 1}
    assert seqs(stream) == [3, 4]


def test_a_changed_configuration_acts_as_an_update_at_the_next_pass(tmp_path: Path) -> None:
    append(stream := stream_of(tmp_path, max_msgs=4), "aabb")
    stream.plan().apply()
    append(stream, "cd", since=4)
    changed = stream_of(tmp_path, discard="new", max_msgs=2, max_msgs_per_subject=1)
    assert changed.plan().apply().by_rule == {"max_msgs": 2, "max_msgs_per_subject": 1}
    assert seqs(changed) == [4, 5, 6]
    append(changed, "e", since=6)
    assert changed.plan().apply().by_rule == {"refused": 1}


def test_an_undo_takes_the_replay_back(tmp_path: Path) -> None:
    append(stream := stream_of(tmp_path, max_msgs=9), "ab")
    stream.plan().apply()
    warehouse = warehouse_of(tmp_path, max_msgs=1)
    mistaken = warehouse.stream("S")
    append(mistaken, "cd", since=2)
    first = mistaken.plan().apply()
    append(mistaken, "e", since=4)
    second = mistaken.plan().apply()
    assert seqs(mistaken) == [5]
    with pytest.raises(RefusedError, match=f"undo that one first: `retention undo S {second.run}"):
        warehouse.undo(first.run)
    warehouse.undo(second.run)
    warehouse.undo(first.run)
    assert mistaken.plan().plan.by_rule == {"max_msgs": 4}
    mended = stream_of(tmp_path, max_msgs=9)
    assert mended.plan().plan.is_empty
    assert seqs(mended) == [1, 2, 3, 4, 5]


def test_a_pass_without_its_record_removes_nothing_until_it_begins_anew(tmp_path: Path) -> None:
    append(stream := stream_of(tmp_path, max_msgs=2), "abc")
    stream.plan().apply()
    append(stream, "d", since=3)
    [record] = (tmp_path / "streams" / "S" / "_retention" / "replay").iterdir()
    content = record.read_bytes()
    for damaged in (content[:-9], content[:40] + b"?" + content[41:]):
        record.write_bytes(damaged)
        with pytest.raises(DamagedError, match=r"cannot be read .*nothing was removed"):
            stream.plan()
    record.unlink()
    with pytest.raises(
        DamagedError,
        match=r"replay, number \d+: this record .* is missing; .*`retention repair replay S --yes`",
    ):
        stream.plan()
    repair = stream.repair_lost_replay()
    assert repair.plan.is_needed
    assert repair.apply().is_done
    assert not stream.repair_lost_replay().plan.is_needed
    assert stream.plan().apply().by_rule == {"max_msgs": 1}
    assert seqs(stream) == [3, 4]


def test_a_saved_plan_is_for_the_messages_that_it_saw(tmp_path: Path) -> None:
    append(stream := stream_of(tmp_path, max_msgs=2), "abc")
    planned = stream.plan()
    append(stream, "d", since=3)
    with pytest.raises(StalePlanError, match="its replay removes others now"):
        planned.apply()
    assert seqs(stream) == [1, 2, 3, 4]


def test_a_pass_by_an_update_ends_the_replay(tmp_path: Path) -> None:
    append(stream := stream_of(tmp_path, max_msgs=3), "abcd")
    stream.plan().apply()
    assert stream_of(tmp_path, mode="update", max_msgs=2).plan().apply().by_rule == {"max_msgs": 1}
    append(stream, "e", since=5)
    assert stream.plan().plan.is_empty
    assert seqs(stream) == [3, 4, 5]


def test_a_synced_message_was_accepted_whatever_its_headers_expect(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, subjects=[], sync={"stream": "S"}, max_msgs=2)
    expects = b"NATS/1.0\r\nNats-Expected-Stream: T\r\nNats-Rollup: sub\r\n\r\n"
    rows = stream_of(tmp_path, subjects=[], duplicate_window=0)
    append(rows, "abc", headers=expects)
    assert stream.plan().plan.by_rule == {"max_msgs": 1}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"retention": "interest"}, "retention: stream S: interest excludes mode: replay"),
        ({"subject_delete_marker_ttl": "1m"}, "a marker would need a sequence that a later"),
        ({"max_subjects": 3}, "no server has it"),
        ({"expiry": "each", "max_age": "1h"}, "no server has it"),
        ({"sealed": True}, "takes no publish"),
    ],
)
def test_what_no_replay_can_answer_is_refused(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        stream_of(tmp_path, **settings)


def test_other_limits_are_replayed(tmp_path: Path) -> None:
    append(stream := stream_of(tmp_path, max_msgs=3), "abcd")
    assert stream.replay(max_msgs=1).held()["seq"].to_pylist() == [4]
    assert (stream.state().lag, stream.state().overdue) == (UNKNOWN_LAG, None)


def test_a_lag_is_not_known_and_as_urgent_as_the_last_pass_is_old(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_msgs=3)
    append(stream, "abcd")
    assert lag_text(stream.state()) == "lag not known: a pass replays"
    assert behind_text(stream.state(), NOW, most_ns=0) == ""
    lag = lag_of(stream.opened, NOW)
    assert lag is not None
    assert (lag.since_ns, lag.behind_ns(NOW)) == (NOW - HOUR, None)
    stream.plan().apply()
    assert lag_of(stream.opened, NOW) == replace(UNKNOWN_LAG, since_ns=NOW)
    stream.delete([2, 3, 4]).apply()
    assert lag_text(stream.state()) == "up to date"


def test_reasons_are_those_of_a_server_at_each_publish(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_msgs=2)
    append(stream, "abc")
    later = "max_msgs, exceeded on a server with these limits when it stored a later message"
    [line, *_] = groups_of(stream.plan().plan)
    assert line.reasons == (later,)
    stream.plan().apply()
    assert later in stream.explain(1).sentence


def test_an_undo_says_what_the_next_pass_removes_again(tmp_path: Path) -> None:
    warehouse = warehouse_of(tmp_path, discard="new", max_msgs=2)
    append(stream := warehouse.stream("S"), "ab", headers=b"NATS/1.0\r\nNats-Msg-Id: x\r\n\r\n")
    append(stream, "cd", since=2)
    run = stream.plan().apply().run
    again = warehouse.show_undo(run)["removed_again"]
    assert again["rules"] == ("duplicate", "refused")
    assert (
        "first lower duplicate_window, or raise the limits that refuse them, or set"
        in again["sentence"]
    )
    updating = warehouse_of(tmp_path, mode="update", max_msgs=2)
    assert updating.show_undo(run)["removed_again"] is None


def test_erased_ids_leave_every_record_and_nothing_is_removed_on_a_guess(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, max_msgs_per_subject=1)
    for at, (subject, message_id) in enumerate([("a", b"x"), ("a", b"kept"), ("b", b"y")]):
        block = b"NATS/1.0\r\nNats-Msg-Id: " + message_id + b"\r\n\r\n"
        append(stream, subject, since=at, headers=block)
    stream.plan().apply()
    assert {"x", "kept", "y"} == recorded_ids(stream, "x", "kept", "y")
    stream.erase(seqs=3, reason="request 7").apply()
    assert recorded_ids(stream, "x", "kept", "y") == {"x", "kept"}
    assert (
        ReplayStates(stream.opened.layout, counters_of(stream)).forget(digested(stream, "x")) == 1
    )
    assert recorded_ids(stream, "x", "kept", "y") == {"kept"}
    append(stream, "c", since=3, headers=b"NATS/1.0\r\nNats-Expected-Last-Msg-Id: y\r\n\r\n")
    assert stream.plan().plan.is_empty


def digested(stream: Stream, *message_ids: str) -> pa.Array:
    return digests_of(stream.opened.store.snapshot().table_id)(list(message_ids))


def counters_of(stream: Stream) -> Counters:
    store = stream.opened.store
    return store.inventory(store.snapshot()).counters


def recorded_ids(stream: Stream, *message_ids: str) -> set[str]:
    """Those of some ids that the record which counts has, among the remembered ones or as the last one."""
    state = ReplayStates(stream.opened.layout, counters_of(stream)).read()
    assert state is not None
    known = {*state.ids["digest"].to_pylist(), state.last_id}
    digests = zip(message_ids, digested(stream, *message_ids).to_pylist(), strict=True)
    return {message_id for message_id, digest in digests if digest in known}


def test_records_are_kept_as_long_as_an_undo_needs_them(tmp_path: Path) -> None:
    place = tmp_path / "streams" / "S" / "_retention" / "replay"
    for number in range(4):
        stream = stream_of(tmp_path, NOW + number * HOUR, max_msgs=1, grace="90m")
        append(stream, "ab", since=2 * number)
        stream.plan().apply()
        assert len(files.names(str(place))) == min(number + 1, 3)
