from __future__ import annotations

from pathlib import Path

from retention.doctor.synced import check_synced
from retention.ingest.sync.configuration import keep_configuration
from retention.ingest.sync.iggy.configuration import settings_there
from retention.ingest.sync.iggy.run import run_topic_sync
from retention.ingest.sync.run import run_sync
from tests.support.recorded_stream import RecordedStream, messages
from tests.support.recorded_topic import STREAM, TOPIC, RecordedServer
from tests.support.sandboxes import ORDERS, opened
from tests.support.topics import World

COPY = {"name": "COPY", "sync": {"context": "prod"}}


def test_the_doctor_says_what_a_pass_would_remove(tmp_path: Path) -> None:
    """`a, b, b, b`: a server with both limits keeps 1 and 4, a pass with both keeps 4 alone."""
    both = {**COPY, "max_msgs": 2, "max_msgs_per_subject": 1}
    stream = opened(tmp_path, both).new_stream("COPY")
    remote = RecordedStream.of(messages(1, 4))
    subjects = ["a", "b", "b", "b"]
    place = remote.rows.schema.get_field_index("subject")
    remote.rows = remote.rows.set_column(place, remote.rows.schema.field("subject"), [subjects])
    run_sync(stream.opened, remote)
    (finding,) = check_synced(stream.opened)
    assert (finding.result, "last values" in finding.detail) == ("warning", True)
    assert stream.plan().plan.removed_messages == 3
    assert "`mode: replay`" in finding.remedy
    replayed = opened(tmp_path, {**both, "mode": "replay"}).stream("COPY")
    assert [each.result for each in check_synced(replayed.opened)] == ["ok"]
    assert replayed.plan().plan.removed_messages == 2
    one = opened(tmp_path, {**COPY, "max_msgs_per_subject": 1}).stream("COPY")
    (finding,) = check_synced(one.opened)
    assert finding.result == "ok"
    assert one.plan().plan.removed_messages == 2


def test_the_doctor_compares_the_servers_limits_if_they_were_kept(tmp_path: Path) -> None:
    stream = opened(tmp_path, COPY).new_stream("COPY")
    keep_configuration(stream.opened, {"name": "S", "max_age": 3_600 * 10**9})
    (finding,) = check_synced(stream.opened)
    assert "max_age is off here and 1h on the server" in finding.detail
    Path(stream.opened.root, "_retention", "server-config.json").write_text("no", encoding="utf-8")
    assert [each.result for each in check_synced(stream.opened)] == ["ok"]


def test_the_doctor_compares_the_limits_of_a_servers_topic(tmp_path: Path) -> None:
    server = RecordedServer("first")
    sync = {"server": "127.0.0.1:1", "stream": STREAM, "topic": TOPIC}
    world = World(tmp_path, "delta", {"sync": sync})
    run_topic_sync(world.topic.opened, server.topic)
    assert [each.result for each in check_synced(world.topic.opened)] == ["ok"]
    keep_configuration(world.topic.opened, settings_there(server.topic.info()))
    (finding,) = check_synced(world.topic.opened)
    assert finding.result == "warning"
    assert (
        "at the last `sync iggy --with-config`, the configurations differ: message_expiry is not "
        "set here and 1h on the server"
    ) in finding.detail
    world.configure(message_expiry="1h")
    assert [each.result for each in check_synced(world.topic.opened)] == ["ok"]


def test_other_streams_have_no_such_finding(tmp_path: Path) -> None:
    assert list(check_synced(opened(tmp_path, ORDERS).new_stream("ORDERS").opened)) == []
