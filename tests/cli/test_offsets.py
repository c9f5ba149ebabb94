from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.sandboxes import Commands
from tests.support.topic_crashes import NAME, with_logs


@pytest.fixture(params=["delta", "parquet"])
def clicks(request: pytest.FixtureRequest, tmp_path: Path) -> Commands:
    with_logs(tmp_path, request.param)
    command = Commands(tmp_path)
    command.json("import", "iggy-log", tmp_path / "iggy", "--topic", NAME)
    return command


def test_an_offset_is_stored_shown_listed_and_deleted(clicks: Commands) -> None:
    done = clicks.json("offset", "store", NAME, 0, "billing", 19)
    assert (done["stream"], done["partition"], done["kind"]) == (NAME, 0, "consumer")
    assert (done["name"], done["offset"], done["lag"]) == ("1795796488", 19, 10)
    assert clicks.json("offset", "get", NAME, 0, "billing") == done
    clicks.json("offset", "store", NAME, 1, 2, 4, "--kind", "group")
    listed = clicks.json("offset", "ls", NAME)
    assert [(one["partition"], one["kind"], one["name"], one["offset"]) for one in listed] == [
        (0, "consumer", "1795796488", 19),
        (0, "consumer", "7", 12),
        (1, "group", "2", 4),
    ]
    table = clicks.run("offset", "ls", NAME).stdout
    assert "1795796488" in table
    assert "NUMBER" in table
    assert clicks.json("offset", "delete", NAME, 0, "billing")["deleted"]
    assert "was deleted" in clicks.run("offset", "delete", NAME, 0, "7").stdout
    assert [one["name"] for one in clicks.json("offset", "ls", NAME)] == ["2"]


def test_a_topic_is_purged_shown_and_brought_back(clicks: Commands) -> None:
    shown = clicks.run("purge", NAME, "--dry-run").stdout
    assert "40 messages" in shown
    assert "offsets begin at 0 again" in shown
    (entry,) = clicks.json("purge", NAME, "--yes")["streams"]
    assert (entry["removed_messages"], entry["by_rule"]) == (40, {"purge": 40})
    assert clicks.json("offset", "ls", NAME) == []
    (state,) = clicks.json("state", NAME)
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 0, -1)
    assert "removed nothing" in clicks.run("purge", NAME, "--yes").stdout
    [run] = [one["run"] for one in clicks.json("history") if one["removed_messages"]]
    assert clicks.json("undo", run)["restored_messages"] == 40
    assert len(clicks.json("offset", "ls", NAME)) == 1


def test_an_offset_that_is_not_there_and_one_beyond_the_end_are_named(clicks: Commands) -> None:
    done = clicks.run("offset", "get", NAME, 0, "billing")
    assert done.exit_code == 2
    assert "consumer 1795796488 has stored no offset in partition 0" in done.stderr
    done = clicks.run("offset", "store", NAME, 0, "billing", 30)
    assert done.exit_code == 2
    assert "partition 0 ends at 29" in done.stderr


def test_a_saved_plan_does_not_act_against_an_offset_that_came_behind_it(clicks: Commands) -> None:
    saved = clicks.folder / "plan.json"
    assert clicks.run("plan", NAME, "-o", saved).exit_code == 0
    clicks.json("offset", "store", NAME, 0, 7, 4)
    done = clicks.run("apply", saved, "--yes")
    assert done.exit_code == 75
    assert "plan again" in done.stderr
    assert clicks.json("state", NAME)[0]["messages"] == 40


def test_segments_are_deleted_by_command_recorded_and_undone(clicks: Commands) -> None:
    shown = clicks.run("delete-segments", NAME, 0, 2, "--dry-run")
    assert "remove 10 messages: delete_segments of partition 0, the oldest 2" in shown.stdout
    assert clicks.run("delete-segments", NAME, 0, 2).exit_code == 2
    [entry] = clicks.json("delete-segments", NAME, 0, 2, "--yes")["streams"]
    assert (entry["removed_messages"], entry["by_rule"]) == (10, {"delete_segments": 10})
    done = clicks.run("delete-segments", NAME, 0, 1, "--yes")
    assert "the oldest 1: no sealed segment is free; `retention offset ls clicks`" in done.stdout
    [record] = [one for one in clicks.json("history") if one["removed_messages"]]
    assert "delete_segments 10" in clicks.run("history").stdout
    assert clicks.json("undo", record["run"])["restored_messages"] == 10
    assert clicks.json("state", NAME)[0]["messages"] == 40


def test_where_only_the_active_segment_is_left_nobody_is_looked_for(clicks: Commands) -> None:
    clicks.json("offset", "delete", NAME, 0, 7)
    clicks.json("delete-segments", NAME, 0, 3, "--yes")
    done = clicks.run("delete-segments", NAME, 0, 1, "--yes")
    assert "delete_segments of partition 0, the oldest 1: none is sealed\n" in done.stdout


def test_an_estimate_of_a_topic_is_exact(clicks: Commands) -> None:
    [bounds] = clicks.json("plan", NAME, "--estimate")["streams"]
    [plan] = clicks.json("plan", NAME)["streams"]
    assert plan["removed_messages"] == 15
    for name in ("removed_messages", "removed_bytes", "files_read", "bytes_read"):
        assert set(bounds[name].values()) == {plan[name]}, name
    assert list(bounds["by_rule"]) == ["message_expiry"]
    assert bounds["segments"]["dropped"] == {"lower": 2, "upper": 2}


def test_segments_of_a_stream_are_not_deleted_by_command(clicks: Commands) -> None:
    place = clicks.folder / "retention.yaml"
    stream = {"name": "ORDERS", "subjects": ["orders.>"]}
    place.write_text(json.dumps(json.loads(place.read_text()) | {"streams": [stream]}))
    done = clicks.run("delete-segments", "ORDERS", 0, 1, "--yes")
    assert done.exit_code == 2
    assert "ORDERS: is not a topic" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["purge", NAME, "--keep", 1, "--dry-run"], 4, "a purge removes everything"),
        (["delete", NAME, 1, "--yes"], 4, "only whole segments are removed"),
        (["delete", NAME, 1, "--erase", "--yes"], 4, "only whole segments are removed"),
        (["mirror", NAME], 2, "import iggy-log DIR --topic clicks"),
        (["consumer", "ls", NAME], 2, "offset ls clicks"),
        (["consumer", "add", NAME, "billing"], 2, "offset ls clicks"),
        (["consumer", "info", NAME, "billing"], 2, "offset ls clicks"),
        (["consumer", "rm", NAME, "billing", "--yes"], 2, "offset ls clicks"),
        (["consumer", "subscribe", "x", "--stream", NAME], 2, "offset ls clicks"),
        (["consumer", "subscribe", NAME], 2, "no stream has 'clicks'"),
        (["export", "nats-backup", NAME, "out.arc"], 2, "messages clicks --format jsonl"),
        (["import", "nats-backup", "none.arc", "--stream", NAME], 2, "import iggy-log DIR"),
        (["offset", "ls", "nobody"], 2, "is not a topic"),
    ],
)
def test_what_makes_no_sense_on_a_topic_says_so_and_changes_nothing(
    clicks: Commands, arguments: list[object], code: int, said: str
) -> None:
    before = clicks.json("state", NAME), clicks.json("history", NAME)
    done = clicks.run(*arguments, stdin='{"subject": "clicks", "data": "x"}\n')
    assert done.exit_code == code, done.output
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert (clicks.json("state", NAME), clicks.json("history", NAME)) == before


def test_messages_are_published_to_partitions_and_answered_with_them(clicks: Commands) -> None:
    lines = '{"data": "a", "partition": 1}\n{"data": "b", "key": "k", "headers": {"n": 7}}\n'
    acks = clicks.json("publish", NAME, "-", "--writer", "app", "--batch", 1, stdin=lines)
    assert acks[0] == {"stream": NAME, "seq": 10, "duplicate": False, "partition": 1}
    again = clicks.json("publish", NAME, "-", "--writer", "app", "--batch", 1, stdin=lines)
    assert again == [{"stream": NAME, "batch": 1, "duplicate": True}]
    told = clicks.run("publish", NAME, stdin='{"data": "c", "partition": 0}\n')
    assert told.stdout == "clicks: 1 message stored; partition 0: 31 to 31\n"
    done = clicks.run("publish", NAME, stdin='{"data": "x", "partition": 2}\n')
    assert done.exit_code == 4
    assert "server error 3007, PartitionNotFound" in done.stderr


def test_reading_from_below_the_log_begins_at_what_is_kept(clicks: Commands) -> None:
    clicks.json("delete-segments", NAME, 0, 1, "--yes")
    told = clicks.json("messages", NAME, "--partition", 0, "--from-seq", 3)
    assert [one["seq"] for one in told] == list(range(10, 30))


def test_consumers_are_shown_of_streams_beside_topics(clicks: Commands) -> None:
    assert clicks.json("state", "--consumers")[0]["consumers"] == []


def test_a_stream_cannot_take_from_a_topic(clicks: Commands) -> None:
    place = clicks.folder / "retention.yaml"
    taking = {"name": "COPY", "subjects": [], "mirror": {"name": NAME}}
    place.write_text(json.dumps(json.loads(place.read_text()) | {"streams": [taking]}))
    done = clicks.run("mirror", "COPY")
    assert done.exit_code == 2
    assert "clicks: is a topic, from which COPY cannot take" in done.stderr


def test_statistics_of_topics_are_a_table_and_rows(clicks: Commands) -> None:
    rows = clicks.json("stats")
    assert [row["level"] for row in rows] == ["total", "topic", "partition", "partition"]
    assert (rows[0]["messages"], rows[2]["last_seq"]) == (40, 29)
    assert clicks.json("stats", NAME) == rows
    assert "total" in clicks.run("stats").stdout
    assert "MISSING" in clicks.run("state").stdout
    assert clicks.run("stats", "nobody").exit_code == 2


def test_a_plan_says_what_waits_for_whom(clicks: Commands) -> None:
    [entry] = clicks.json("plan", NAME)["streams"]
    [partition] = entry["held"]["partitions"]
    [reader] = partition["readers"]
    assert (partition["partition"], reader["name"], reader["offset"]) == (0, "7", 12)
    assert (reader["segments"], reader["messages"], partition["by_rule"]) == (
        1,
        10,
        {"message_expiry": 10},
    )
    assert "waits for consumer 7, which has read up to 12" in clicks.run("plan", NAME).stdout


def test_settings_that_cannot_be_read_are_a_finding_and_leave_the_others_alone(
    clicks: Commands, tmp_path: Path
) -> None:
    place = tmp_path / "retention.yaml"
    config = json.loads(place.read_text())
    config["topics"].append({"name": "views"})
    place.write_text(json.dumps(config))
    kept = tmp_path / "streams" / NAME / "_retention" / "topic.json"
    kept.write_text("{}")
    done = clicks.run("state")
    assert done.exit_code == 5
    assert "views" in done.stdout
    assert "the settings that this topic keeps" in done.stderr
    found = clicks.run("doctor")
    assert found.exit_code == 6
    assert "the settings that this topic keeps" in found.stdout
