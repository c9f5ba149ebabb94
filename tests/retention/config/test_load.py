from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from retention.config import Config, StreamConfig, explain_config, load_config, parse_stream
from retention.config.server_json import server_config
from retention.core.policy import UNLIMITED, ConsumerProtection, Policy, describe
from retention.core.units import DAY, HOUR, MINUTE, SECOND
from retention.errors import ConfigError

WHOLE = """\
warehouse: ./warehouse
defaults: {format: parquet, segment_size: 1MiB, segment_span: "off", grace: 1d, engine: local}
streams:
  - name: ORDERS
    subjects: [orders.>]
    retention: limits
    max_age: 30d
    max_msgs: 1000000
    max_bytes: 10GiB
    max_msgs_per_subject: 5
    discard: old
    allow_msg_ttl: true
    subject_delete_marker_ttl: 1h
    consumers: [{durable_name: billing, filter_subject: orders.paid, ack_policy: explicit}]
  - {name: CLICKS, format: delta, segment_span: 1h}
"""

INFO: dict[str, Any] = {
    "config": {
        "name": "EVENTS",
        "subjects": ["events.>"],
        "retention": "limits",
        "max_consumers": -1,
        "max_msgs_per_subject": -1,
        "max_msgs": 1000,
        "max_bytes": -1,
        "max_age": 86400000000000,
        "max_msg_size": -1,
        "storage": "file",
        "discard": "old",
        "num_replicas": 1,
        "duplicate_window": 120000000000,
        "placement": {"cluster": "C1", "tags": ["ssd"]},
        "sealed": False,
        "deny_delete": False,
        "deny_purge": False,
        "allow_rollup_hdrs": False,
        "allow_direct": True,
        "mirror_direct": False,
        "consumer_limits": {"inactive_threshold": 5000000000, "max_ack_pending": 10},
        "compression": "s2",
        "metadata": {"_nats.level": "1"},
        "persist_mode": "default",
        "republish": {"src": "events.>", "dest": "copy.>", "headers_only": True},
        "subject_transform": {"src": "events.*", "dest": "events.{{wildcard(1)}}"},
    },
    "created": "2026-11-20T10:00:00.123456789Z",
    "state": {"messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0},
    "cluster": {"leader": "n1"},
    "ts": "2026-11-20T10:00:00Z",
}


def load(folder: Path, text: str, name: str = "retention.yaml") -> Config:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        load(folder, text)
    prefix = f"{folder / 'retention.yaml'}:"
    lines = str(error.value).splitlines()
    assert all(line.startswith(prefix) for line in lines)
    return [line.removeprefix(prefix) for line in lines]


def test_every_key_of_a_stream_reaches_its_policy(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE)
    orders = config.stream("ORDERS")
    assert orders is not None
    assert orders.policy() == Policy(
        max_age_ns=30 * DAY,
        max_msgs=1_000_000,
        max_bytes=10 * 2**30,
        max_msgs_per_subject=5,
        allow_msg_ttl=True,
        subject_delete_marker_ttl_ns=HOUR,
    )
    assert orders.consumers[0].filter_subject == "orders.paid"
    assert orders.duplicate_window_ns == 2 * MINUTE


def test_a_stream_overrides_the_defaults_that_others_take(tmp_path: Path) -> None:
    config = load(tmp_path, WHOLE)
    orders, clicks = config.streams
    assert (orders.format, orders.segment_size, orders.segment_span_ns) == ("parquet", 2**20, None)
    assert (orders.grace_ns, orders.engine, orders.local_limit) == (DAY, "local", 64 * 2**20)
    assert (clicks.format, clicks.segment_span_ns, clicks.grace_ns) == ("delta", HOUR, DAY)


def test_a_stream_that_is_not_listed_takes_the_defaults_and_keeps_everything(
    tmp_path: Path,
) -> None:
    config = load(tmp_path, WHOLE)
    assert config.stream("OTHER") is None
    other = config.default_stream("OTHER")
    assert other.policy() == UNLIMITED
    assert other.format == "parquet"
    with pytest.raises(ConfigError, match=r"stream 'a\.b'.*is not a name"):
        config.default_stream("a.b")


def test_the_warehouse_is_relative_to_the_file(tmp_path: Path) -> None:
    assert load(tmp_path, WHOLE).warehouse == str(tmp_path / "warehouse")
    assert load(tmp_path, "streams: []").warehouse == str(tmp_path)
    assert load(tmp_path, "warehouse: /srv/w/").warehouse == "/srv/w"
    assert load(tmp_path, "warehouse: s3://bucket/w/").warehouse == "s3://bucket/w"


def test_a_warehouse_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Config.without_file("w") == Config(str(tmp_path / "w"))
    with pytest.raises(ConfigError, match="neither a path nor s3"):
        Config.without_file("gs://bucket/w")


@pytest.mark.parametrize("document", [INFO, INFO["config"]])
@pytest.mark.parametrize("indent", [None, 2, "\t"])
def test_what_the_server_says_of_a_stream_is_taken_as_it_is(
    tmp_path: Path, document: dict[str, Any], indent: int | str | None
) -> None:
    alone = load(tmp_path, json.dumps(document, indent=indent), "info.json")
    listed = load(tmp_path, json.dumps({"streams": [document]}, indent=indent))
    assert alone.streams == listed.streams == (parse_stream(document, "backup.json"),)
    assert alone.streams[0].policy() == Policy(max_age_ns=DAY, max_msgs=1000)


def test_a_mistake_in_json_is_found_on_its_line(tmp_path: Path) -> None:
    broken = INFO | {"config": INFO["config"] | {"max_age": "1 day"}}
    path = tmp_path / "info.json"
    path.write_text(json.dumps(broken, indent=2))
    line = 1 + [*map(str.strip, path.read_text().splitlines())].index('"max_age": "1 day",')
    with pytest.raises(ConfigError, match=rf"info\.json:{line}: config\.max_age: .*\"1d\""):
        load_config(path)


def test_all_mistakes_of_a_file_are_told_together(tmp_path: Path) -> None:
    text = """\
warehouse: gs://bucket
defaults: {formt: delta}
streams:
  - name: ORDERS
    subjects: [orders.>]
    max_age: 30 days
    max_byte: 10GiB
    max_msgs: 1e6
    max_age: 5d
    discard_new_per_subject: true
    retention: limit
    deny_purge: yes
    allow_atomic: true
    persist_mode: async
  - {name: PAID, subjects: [orders.paid], mirorr: {name: X}}
"""
    found = mistakes(tmp_path, text)
    expected = [
        "1: warehouse: 'gs://bucket' is neither a path nor s3://bucket/prefix",
        "2: defaults.formt: there is no such key; did you mean `format`?",
        "6: max_age: stream ORDERS: '30 days' is not a duration: write a number with a unit",
        "7: max_byte: stream ORDERS: there is no such key; did you mean `max_bytes`?",
        "8: max_msgs: stream ORDERS: 1000000.0 is not a count: write an integer, such as 1000000",
        "9: max_age: stream ORDERS: is there already, on line 6; remove one",
        "10: discard_new_per_subject: stream ORDERS: works only with a limit per subject",
        "10: discard_new_per_subject: stream ORDERS: works only with discard: new",
        "11: retention: stream ORDERS: 'limit' is not one of limits, interest, workqueue;"
        " did you mean `limits`?",
        "12: deny_purge: stream ORDERS: 'yes' is neither true nor false",
        "14: persist_mode: stream ORDERS: async excludes allow_atomic",
        "15: mirorr: stream PAID: there is no such key; did you mean `mirror`?",
        "15: subjects: stream PAID: 'orders.paid' overlaps with 'orders.>' of stream ORDERS;"
        " change one (server error 10065)",
    ]
    assert len(found) == len(expected)
    for line, beginning in zip(found, expected, strict=True):
        assert line.startswith(beginning)


def test_a_refusal_that_rests_on_a_broken_key_waits_until_that_is_read(tmp_path: Path) -> None:
    per_subject = "discard_new_per_subject: true, max_msgs_per_subject: 1"
    text = f"streams: [{{name: A, discard: nwe, {per_subject}}}]"
    (only,) = mistakes(tmp_path, text)
    assert "did you mean `new`?" in only


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("streams: [a", "1: is not YAML"),
        ("- a", "1: is not a mapping"),
        ("streams: {a: 1}", "1: streams: maps names to settings, and is a list; write `- name: a`, and below it its"),
        ("topics:\n  t:\n    partitions: 2", "1: topics: maps names to settings, and is a list; write `- name: t`"),
        ("tables: {T: {max_age: 1d}}", "1: tables: maps names to settings, and is a list; write `- name: T`"),
        ("buckets:\n  B:", "1: buckets: maps names to settings, and is a list; write `- name: B`"),
        ("streams: {name: A}", "1: streams: {'name': 'A'} is not a list; write [{'name': 'A'}]"),
        ("streams:\n  - a", "2: streams.0: 'a' is not a mapping"),
        ("streams:\n  - max_age: 1d", "2: name: is missing"),
        ("streams: [{name: 5}]", '1: name: stream 5: 5 is not text; quote it: "5"'),
        ("streams: [{name: A, subjects: a.>}]", "1: subjects: stream A: 'a.>' is not a list; write [a.>]"),
        ("streams: [{name: A, mirror: B}]", "1: mirror: stream A: 'B' is not a mapping"),
        ("streams: [{name: A, mirror: {nam: B}}]", "1: mirror.nam: stream A: there is no such key; did"),
        ("streams: [{name: A, maxAge: 1d}]", "1: maxAge: stream A: there is no such key; did you mean `max_age`"),
        ("streams: [{name: A, zzz: 1d}]", "1: zzz: stream A: there is no such key; docs/configuration.md"),
        ("streams: [{name: A}, {name: A}]", "1: name: stream A: another stream has this name"),
        ("streams: [{name: A, max_age: !x 1d}]", "1: max_age: stream A: the tag !x is not supported"),
        ("streams: &a [*a]", "1: nests more than 64 deep"),
        ("streams: [{name: A.B, sealed: true}]", "1: name: stream A.B: 'A.B' is not a name"),
        ("streams: [{name: A, max_age: 50ms}]", "1: max_age: stream A: 50ms is too short; write at least 100ms"),
        ("streams: [{name: A}, {name: B, subjects: [\"*\"]}]", "1: subjects: stream B: '*' overlaps with 'A'"),
        ("topics: [t]", "1: topics.0: 't' is not a mapping"),
        ("topics: [{name: t, partitions: 0}]", "1: partitions: topic t: 0 is out of range"),
        ("topics: [{name: t, partitions: 1001}]", "1: partitions: topic t: 1001 is out of range"),
        ("topics: [{name: t, segment_size: 1000}]", "1: segment_size: topic t: 1000 is out of range"),
        ("topics: [{name: t, max_topic_size: 0}]", "1: max_topic_size: topic t: 0 is refused"),
        ("topics: [{name: t, max_topic_size: 1MiB}]", "1: max_topic_size: topic t: 1048576 is less than one"),
        ("topics: [{name: t, message_expiry: soon}]", "1: message_expiry: topic t: 'soon' is not an expiry"),
        ("topics: [{name: t, message_expiry: 200y}]", "1: message_expiry: topic t: '200y' is out of range"),
        ("topics: [{name: ''}]", "1: name: a topic's name has 1 to 255 bytes"),
        ("topics: [{name: a/b, seed_names: true}]", "1: name: topic a/b: 'a/b' was not a name then"),
        ("topics: [{name: t}, {name: t}]", "1: name: topic t: a stream or another topic has this name"),
        ("streams: [{name: A}]\ntopics: [{name: A}]", "2: name: topic A: a stream or another topic has this name"),
        ("warehouse: s3://b\ntopics: [{name: t, format: parquet}]", "2: format: topic t: parquet is refused"),
        ("warehouse: s3://\n", "1: warehouse: 's3://' is neither"),
        ("warehouse: s3://b\ndefaults:\n  format: parquet", "3: defaults.format: parquet is refused"),
        ("warehouse: s3://b\nstreams: [{name: A, format: parquet}]", "2: format: stream A: parquet"),
        ("streams: [{name: A, format: parquet, vectors: true}]", "1: vectors: stream A: format: parquet has no"),
        ("defaults: {vectors: true}\nstreams: [{name: A, format: parquet}]", "2: vectors: stream A: format: parquet"),
        ("defaults: {vectors: true, format: parquet}", "1: defaults.vectors: format: parquet has no deletion"),
        ("topics: [{name: t, vectors: true}]", "1: vectors: topic t: there is no such key"),
        ("streams: [{name: A, segment_size: 0}]", "1: segment_size: stream A: 0 is out of range"),
        ("streams: [{name: A, grace: -1d}]", "1: grace: stream A: '-1d' is out of range"),
        ("streams: [{name: A, max_msg_size: 4GiB}]", "1: max_msg_size: stream A: '4GiB' is out of"),
        ("streams: [{name: A, hold_for_consumers: {consumers: billing, max_age: 1d}}]",
         "1: hold_for_consumers.consumers: stream A: 'billing' is neither all nor a list of names: write all, or [b"),
        ("streams: [{name: A, hold_for_consumers: {max_age: 1d, action: wrn}}]",
         "1: hold_for_consumers.action: stream A: 'wrn' is not one of hold, warn; did you mean `warn`?"),
        ("streams: [{name: A, hold_for_consumers: {consumers: all}}]",
         "1: hold_for_consumers: stream A: has no bound, so an abandoned consumer would keep everything"),
        ("streams: [{name: A, retention: interest, hold_for_consumers: {max_age: 1d}}]",
         "1: hold_for_consumers: stream A: interest itself keeps the messages that consumers need"),
        ("streams: [{name: A, expiry: each}]",
         "1: expiry: stream A: each decides which old messages are removed, and without max_age none is too old"),
        ("streams: [{name: A, delete_retention: -1d}]",
         "1: delete_retention: stream A: -1d must not be negative; write how long deletions are kept, or 0"),
        ("streams: [{name: A, delete_retention: 1d, deny_purge: true}]",
         "1: delete_retention: stream A: purges the subjects of old deletions, and deny_purge forbids purging"),
        ("streams: [{name: A, delete_retention: 1d, sealed: true}]",
         "1: delete_retention: stream A: purges the subjects of old deletions, and sealed forbids purging"),
        ("streams: [{name: A, delete_retention: 1d, whole_segments: true}]",
         "1: delete_retention: stream A: a deletion removed with its segment would restore the value"),
        ("streams: [{name: A, delete_retention: 1d, hold_for_consumers: {max_age: 1d}}]",
         "1: delete_retention: stream A: a deletion removed while an older value of its subject is held"),
        ("streams: [{name: A, max_subjects: 5, sealed: true}]",
         "1: max_subjects: stream A: removes whole subjects, and sealed keeps every message"),
        ("streams: [{name: A, max_subjects: 5, whole_segments: true}]",
         "1: max_subjects: stream A: removes subjects wherever their messages are"),
        ("streams: [{name: A, max_subjects: 5, hold_for_consumers: {max_age: 1d}}]",
         "1: max_subjects: stream A: a subject's last message would be removed while an older one is held"),
        ("streams: [{name: A, retention: interest, release_share: 20%}]",
         "1: release_share: stream A: files are rewritten as soon as consumers release messages in them, so no share "
         "can wait; delete this line"),
        ("streams: [{name: A, whole_segments: true, hold_for_consumers: {max_age: 1d}}]",
         "1: hold_for_consumers: stream A: whole segments are removed without reading a message"),
        ("streams: [{name: A, subject_delete_marker_ttl: 1h, hold_for_consumers: {max_age: 1d}}]",
         "1: hold_for_consumers: stream A: a delete marker announces that a subject's last message was removed"),
        ("streams: [{name: A, first_seq: -1}]", "1: first_seq: stream A: -1 is out of range"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_line_its_key_and_the_way_out(
    tmp_path: Path, text: str, complaint: str
) -> None:
    assert mistakes(tmp_path, text)[0].startswith(complaint)


def test_a_layout_holds_for_a_stream_or_for_all_but_those_of_which_only_whole_segments_go(
    tmp_path: Path,
) -> None:
    config = load(
        tmp_path,
        """
defaults: {layout: deadline}
streams:
  - {name: A}
  - {name: B, layout: sequence}
  - {name: C, whole_segments: true}
""",
    )
    assert [stream.most_files for stream in config.streams] == [16, 1, 1]
    assert StreamConfig(name="D").most_files == 1
    assert "layout" not in server_config(config.streams[0])
    assert "divided by deadline" in explain_config(config)[0]
    assert "divided by deadline" not in "".join(explain_config(config)[1:])


def test_a_layout_that_there_is_not_or_that_has_no_use_is_a_mistake(tmp_path: Path) -> None:
    text = """
streams:
  - {name: A, layout: deadlines}
  - name: B
    whole_segments: true
    layout: deadline
"""
    other, useless = mistakes(tmp_path, text)
    assert other.startswith("3: layout: stream A: 'deadlines' is")
    assert useless.startswith("6: layout: stream B: deadline divides segments")
    assert useless.endswith("write layout: sequence, or remove whole_segments")


def test_whole_segments_and_delete_markers_exclude_each_other(tmp_path: Path) -> None:
    text = """\
streams:
  - name: A
    subject_delete_marker_ttl: 1h
    whole_segments: true
"""
    (only,) = mistakes(tmp_path, text)
    assert only.startswith(
        "4: whole_segments: stream A: whole segments are removed without reading"
    )


@pytest.mark.parametrize(
    ("origin", "code"), [("mirror: {name: A}", 10030), ("sources: [{name: A}]", 10046)]
)
def test_a_copy_must_take_the_messages_of_its_origin(
    tmp_path: Path, origin: str, code: int
) -> None:
    text = f"""\
streams:
  - {{name: A, max_msg_size: 9}}
  - {{name: B, max_msg_size: 8, {origin}}}
"""
    (only,) = mistakes(tmp_path, text)
    assert only == (
        f"3: max_msg_size: stream B: 8 is below that of A; write 9 (server error {code})"
    )


def test_a_missing_file_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_config(tmp_path / "retention.yaml")
    (tmp_path / "retention.yaml").write_bytes(b"name: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "retention.yaml")


def test_a_byte_order_mark_is_taken_and_another_encoding_named(tmp_path: Path) -> None:
    file, text = tmp_path / "retention.yaml", "streams: [{name: A, max_age: 50ms}]"
    file.write_bytes(text.encode("utf-8-sig"))
    with pytest.raises(
        ConfigError, match=r"retention.yaml:1: max_age: stream A: 50ms is too short"
    ):
        load_config(file)
    file.write_bytes(text.encode("utf-16"))
    with pytest.raises(ConfigError, match=r"retention.yaml: begins as UTF-16; write it in UTF-8$"):
        load_config(file)


def test_a_negative_age_is_one_mistake(tmp_path: Path) -> None:
    (only,) = mistakes(tmp_path, "streams: [{name: A, max_age: -5}]")
    assert only.endswith(
        "-5ns is too short; write at least 100ms, or 0 for no limit (server error 10052)"
    )


def test_topics_may_be_there_as_long_as_they_are_empty(tmp_path: Path) -> None:
    assert load(tmp_path, "topics: []").streams == ()


def test_anchors_are_merged_and_what_is_written_wins(tmp_path: Path) -> None:
    text = """\
streams:
  - &base {name: NO, description: no, max_age: 1d, max_msgs: 010}
  - {<<: *base, name: ON, max_age: 2d}
"""
    first, second = load(tmp_path, text).streams
    assert (first.description, first.max_msgs) == ("no", 10)
    assert (second.max_age_ns, second.max_msgs) == (2 * DAY, 10)


def test_an_empty_value_is_an_absent_one(tmp_path: Path) -> None:
    (stream,) = load(tmp_path, "streams:\n  - name: A\n    max_age:\n    mirror: null").streams
    assert stream.policy() == UNLIMITED


def test_a_sealed_stream_is_normalised_as_the_server_seals_it() -> None:
    stream = StreamConfig(name="A", sealed=True, max_age=SECOND, allow_rollup_hdrs=True, max_msgs=3)
    assert stream.policy() == Policy(discard="new", max_msgs=3)
    assert (stream.deny_delete, stream.deny_purge, stream.allow_rollup_hdrs) == (True, True, False)


def test_delete_markers_switch_on_what_they_need() -> None:
    stream = StreamConfig(name="A", subject_delete_marker_ttl=SECOND, deny_purge=True)
    assert (stream.allow_msg_ttl, stream.allow_rollup_hdrs, stream.deny_purge) == (
        True,
        True,
        False,
    )


def test_streams_are_values() -> None:
    stream = StreamConfig(name="A", max_age=SECOND)
    with pytest.raises(ValueError, match="frozen"):
        stream.max_age = 5


def test_a_configuration_is_said_in_words(tmp_path: Path) -> None:
    text = "streams: [{name: ORDERS, max_age: 30d, max_msgs: 1000000}]"
    assert explain_config(load(tmp_path, text)) == [
        "ORDERS: a message is removed 30 days after it was stored, or when 1,000,000 newer ones exist."
        " Age removes messages from the lowest sequence on and"
        " stops at the first young one: old ones after it are kept as long as it is"
        " (`expiry: each` would remove them too)."
        " Kept as Delta in segments of 256 MiB or 1 day;"
        " removed files are kept 7 days."
    ]
    (nothing,) = explain_config(load(tmp_path, ""))
    assert "no stream is listed" in nothing


def test_a_table_of_keys_is_said_in_words(tmp_path: Path) -> None:
    text = "streams: [{name: KV_users, max_msgs_per_subject: 1, delete_retention: 7d, deny_delete: true}]"
    [words] = explain_config(load(tmp_path, text))
    assert words.startswith(
        "KV_users: a message is removed when 1 newer one on its subject exists, or 7 days after a deletion that is the "
        "last message on its subject."
    )


def test_reading_a_configuration_loads_no_table_library() -> None:
    code = (
        "import sys, retention.config, retention.core.subjects;"
        "print(sorted({'pyarrow', 'pyspark', 'deltalake', 'pandas'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_hold_is_read_in_the_units_of_the_file() -> None:
    rule = {"consumers": ["b", "a", "b"], "max_age": "30d", "max_bytes": "1GiB"}
    policy = parse_stream({"name": "A", "hold_for_consumers": rule}, "test").policy()
    assert policy.hold == ConsumerProtection(("b", "a"), "hold", 30 * DAY, 2**30)
    everybody = parse_stream({"name": "A", "hold_for_consumers": {"action": "warn"}}, "test")
    assert everybody.policy().hold == ConsumerProtection(None, "warn", None, None)
    assert "hold_for_consumers" not in server_config(everybody)


def test_an_archive_lies_beside_the_file_or_in_a_bucket(tmp_path: Path) -> None:
    place = tmp_path / "retention.yaml"
    place.write_text(
        "defaults: {archive: ../kept}\n"
        "streams: [{name: A}, {name: B, archive: 's3://lake/kept/'}]\n"
        "topics: [{name: t}]\n"
    )
    config = load_config(place)
    assert {one.name: one.archive for one in config.streams} == {
        "A": str(tmp_path.parent / "kept"),
        "B": "s3://lake/kept",
        "t": str(tmp_path.parent / "kept"),
    }
    assert config.default_stream("NEW").archive == str(tmp_path.parent / "kept")
    assert config.streams[1].policy().archive == "s3://lake/kept"
    assert "removed messages are copied to s3://lake/kept first" in describe(
        config.streams[1].policy()
    )
    assert "archive" not in server_config(config.streams[0])


@pytest.mark.parametrize(
    ("archive", "said"),
    [("ftp://x", "neither a path nor s3://"), ("./streams/A", "among the streams")],
)
def test_an_archive_that_cannot_be_is_refused_with_its_line(
    tmp_path: Path, archive: str, said: str
) -> None:
    place = tmp_path / "retention.yaml"
    place.write_text(f"streams:\n  - name: A\n    archive: {archive}\n")
    with pytest.raises(ConfigError, match=said) as refused:
        load_config(place)
    assert f"{place}:3: " in str(refused.value)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in pairwise("abcdefghi")
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB, ":1: aliases stand for more than 20,000 values"),
        (
            BOMB.replace("[x,", "{y: 1, z: [x,").replace("x]\n", "x]}\n"),
            ":1: aliases stand for more",
        ),
        ("streams: " + "[" * 1000 + "]" * 1000, ":1: nests more than 64 deep"),
        ("\n".join(f"{' ' * depth}a:" for depth in range(500)), ":65: nests more than 64 deep"),
        (f"streams:\n- {{name: A, max_msgs: {'9' * 5000}}}", ":2: max_msgs: stream A: '999"),
        (f"streams:\n- {{name: A, max_msgs: 0x{'f' * 9000}}}", ":2: max_msgs: stream A: '0xff"),
        (
            "streams:\n- {name: A, max_msgs: !!int abc}",
            ":2: max_msgs: stream A: 'abc' is not a value of",
        ),
        ("? [a, b]\n: c", ":1: a key is not plain text"),
        (f"x: {'y' * (17 << 20)}", ":1: is longer than 16 MiB"),
        (f"streams:\n- {{name: A, max_age: {'z' * 100_000}}}", ":2: max_age: stream A: 'zzz"),
    ],
    ids=["aliases", "mappings", "deep", "deep keys", "digits", "hex", "tag", "key", "size", "long"],
)
def test_a_hostile_file_is_one_short_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "retention.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert f"{file}{said}" in str(refused.value)
    assert len(str(refused.value)) < 1200
