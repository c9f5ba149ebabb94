"""Publishing to topics: placement, stored fields, refusals, and exactly-once."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from xxhash import xxh32_intdigest

from retention.errors import RefusedError, UsageError
from retention.formats.iggy.user_headers import parse
from retention.layout.partitioner import TURN
from tests.support.topics import NAME, SECOND, START, World, line

FORMATS = ("delta", "parquet")
RECORD, FRAMING = 48, 256


@pytest.fixture(params=FORMATS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(tmp_path, request.param)


@pytest.fixture
def one(tmp_path: Path) -> World:
    return World(tmp_path, "parquet")


def test_messages_go_where_they_say_and_the_others_in_turn(world: World) -> None:
    acks = world.topic.publish(
        [line("a", partition=1), line("b"), line("c", key="k"), line("d", partition=1), line("e")]
    ).acks()
    of_key = xxh32_intdigest(b"k") % 2
    assert [ack.partition for ack in acks] == [1, 0, of_key, 1, 0]
    world.topic.publish([line("f"), line("g")])
    in_turn = {row["payload"]: row["partition"] for row in world.rows()}
    assert (in_turn[b"f"], in_turn[b"g"]) == (1, 1)
    world.topic.publish([line("h")])
    assert {row["payload"]: row["partition"] for row in world.rows()}[b"h"] == 0


def test_offsets_begin_at_0_in_each_partition_and_go_on(world: World) -> None:
    published = world.topic.publish([line("a", partition=0), line("b", partition=1)])
    assert published.appended.partitions == {0: (0, 0), 1: (0, 0)}
    published = world.topic.publish([line(data, partition=1) for data in "cd"])
    assert published.appended.partitions == {1: (1, 2)}
    assert published.summary() == "2 messages stored; partition 1: 1 to 2"
    assert world.places() == [(0, 0, 0, b"a"), (1, 0, 0, b"b"), (1, 0, 1, b"c"), (1, 0, 2, b"d")]


def test_a_batch_has_one_time_that_rises_also_when_the_clock_does_not(world: World) -> None:
    world.topic.publish([line("a", partition=0), line("b", partition=0)])
    world.clock.now_ns = START - 5 * SECOND
    world.topic.publish([line("c", partition=0), line("d", partition=1)])
    assert {row["payload"]: row["ts_ns"] - START for row in world.rows()} == {
        b"a": 0,
        b"b": 0,
        b"c": 1_000,
        b"d": -5 * SECOND,
    }


def test_servers_of_08_stamp_what_the_clock_says(one: World) -> None:
    one.configure(profile="v8", segment_size="1KiB")
    one.topic.publish([line("a", partition=0)])
    one.clock.now_ns -= SECOND
    one.topic.publish([line("b", partition=0)])
    assert [(row["ts_ns"] - START, row["size"]) for row in one.rows()] == [(0, 65), (-SECOND, 65)]


def test_what_a_producer_says_is_kept(world: World) -> None:
    typed = {"kind": "uint32", "value": b64encode((7).to_bytes(4, "little")).decode()}
    said: dict[str, Any] = {"id": str(2**128 - 1), "origin_ts_ns": START - 1_234_567}
    world.topic.publish([line("a", headers={"name": "x", "ok": True, "n": typed}, **said)])
    [row] = world.rows()
    assert (row["msg_id"], row["subject"]) == (str(2**128 - 1), NAME)
    assert row["origin_ts_ns"] == START - 1_235_000
    pairs = [(key.text, value.kind, value.value) for key, value in parse(row["headers"])]
    assert pairs == [("name", "string", "x"), ("ok", "bool", True), ("n", "uint32", 7)]
    assert row["size"] == FRAMING + RECORD + 1 + len(row["headers"])


def test_who_gives_no_id_gets_one_of_its_own(world: World) -> None:
    world.topic.publish([line("a", partition=0), line("b", id=0), line("c", partition=1)])
    world.topic.publish([line("d", partition=0)])
    ids = [row["msg_id"] for row in world.rows()]
    assert len(set(ids)) == 4
    assert all(0 < int(one) < 2**128 for one in ids)


def test_a_batch_of_a_writer_is_written_once(world: World) -> None:
    published = world.topic.publish([line("a")], "app", 7)
    assert not published.appended.duplicate
    again = world.topic.publish([line("a")], "app", 7)
    assert again.appended.duplicate
    assert list(again.acks()) == []
    assert world.topic.publish([], "app", 8).appended.messages == 0
    assert world.topic.publish([line("b")], "app", 8).appended.duplicate
    assert len(world.rows()) == 1


def test_no_writer_takes_the_name_under_which_turns_are_counted(one: World) -> None:
    with pytest.raises(UsageError, match="reserved for the engine"):
        one.topic.publish([line()], TURN, 7)


def test_nothing_published_writes_nothing(world: World) -> None:
    assert world.topic.publish([]).summary() == "nothing was new; nothing was written"
    assert world.topic.state().version == 0


def test_segments_are_sealed_where_the_profile_does(world: World) -> None:
    half = "x" * (512 * 1024)
    for _ in range(5):
        world.topic.publish([line(half, partition=0)])
    assert [segment for _, segment, _, _ in world.places()] == [0, 0, 2, 2, 4]
    assert world.open_base() == {0: 4}
    world.topic.publish([line(half, partition=0)])
    assert world.open_base() == {0: 6}
    [state, _] = world.topic.state().topic.partitions  # type: ignore[union-attr]
    assert (state.segments, state.active, state.last_seq) == (4, 6, 5)


def test_servers_of_08_take_one_batch_more(one: World) -> None:
    one.configure(profile="v8", segment_size="1KiB")
    for _ in range(7):
        one.topic.publish([line("x" * 448, partition=0)])
    assert [segment for _, segment, _, _ in one.places()] == [0, 0, 0, 3, 3, 3, 6]


def test_a_large_publish_is_cut_into_batches_that_the_server_would_take(one: World) -> None:
    one.configure(max_message_size=2_000)
    one.topic.publish([line("x" * 952, partition=0) for _ in range(4)])
    assert [(row["ts_ns"] - START, row["size"]) for row in one.rows()] == [
        (at, 1_000 + FRAMING) for at in (0, 1_000, 2_000, 3_000)
    ]
    one.configure(max_message_size=2_256)
    one.topic.publish([line("x" * 952, partition=1) for _ in range(3)])
    sizes = [row["size"] for row in one.rows() if row["partition"] == 1]
    assert sizes == [1_256, 1_000, 1_256]


@pytest.mark.parametrize("profile", ["modern", "v8"])
@pytest.mark.parametrize("format_", FORMATS)
def test_the_same_batches_in_several_runs_become_the_same_segments(
    tmp_path: Path, format_: str, profile: str
) -> None:
    said = {"profile": profile, "segment_size": "1MiB", "max_message_size": 700_000}
    lines = [
        line(f"{number}" * 300_000, partition=number % 2, id=number + 1) for number in range(8)
    ]
    at_once, one_by_one = (World(tmp_path / name, format_, said) for name in ("once", "each"))
    at_once.topic.publish(lines)
    for batch in (slice(0, 4), slice(4, 8)):
        one_by_one.topic.publish(lines[batch])
    assert one_by_one.rows() == at_once.rows()
    assert one_by_one.open_base() == at_once.open_base()
    assert at_once.open_base()[0] == (4 if profile == "modern" else 0)


def test_a_full_topic_takes_everything_and_the_next_pass_trims_it(one: World) -> None:
    one.configure(max_topic_size="1MiB", max_message_size="1MiB", partitions=1)
    for _ in range(4):
        one.topic.publish([line("x" * 1_048_000)])
    assert len(one.rows()) == 4
    assert one.topic.plan().plan.by_rule == {"max_topic_size": 2}


def test_behind_a_purge_everything_is_published_as_to_a_new_topic(world: World) -> None:
    lines = [line("a", partition=0), line("b"), line("c", partition=0)]
    world.topic.publish(lines, writer="w", batch=7)
    first = world.places()
    world.topic.publish([line("d")], writer="w", batch=8)
    world.topic.store_offset(0, "consumer", 1, 1)
    run = world.topic.purge().apply().run
    assert (world.places(), world.topic.offsets()) == ([], [])
    again = world.topic.publish(lines, writer="w", batch=7)
    assert not again.appended.duplicate
    assert world.places() == first
    with pytest.raises(RefusedError, match=r"epoch|since"):
        world.warehouse.undo(run)
    assert world.places() == first


def test_after_a_removal_offsets_go_on_and_reading_from_below_begins_at_what_is_kept(
    world: World,
) -> None:
    world.configure(message_expiry="60s")
    for _ in range(3):
        world.topic.publish([line("x" * 1_048_576, partition=0)])
    world.clock.now_ns += 61 * SECOND
    [outcome] = world.warehouse.apply()
    assert outcome.value is not None
    assert outcome.value.removed_messages == 3
    assert world.topic.publish([line("y", partition=0)]).appended.partitions == {0: (3, 3)}
    assert world.places() == [(0, 3, 3, b"y")]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            line(partition=2),
            "(server error 3007, PartitionNotFound): the topic has partitions 0 to 1",
        ),
        (line(key=""), "(server error 4028, InvalidKeyValueLength)"),
        (line(key="k" * 256), "(server error 4028, InvalidKeyValueLength)"),
        (line(""), "(server error 4025, InvalidMessagePayloadLength): it has no payload"),
        (
            line(headers=[[f"{number}", "v" * 255] for number in range(400)]),
            "(server error 4017, TooBigUserHeaders)",
        ),
        (line("x" * 3_000), "(server error 3, InvalidCommand)"),
    ],
)
def test_what_a_server_refuses_is_refused_by_its_name(one: World, said: str, why: str) -> None:
    one.configure(max_message_size=3_000)
    with pytest.raises(RefusedError) as refused:
        one.topic.publish([line("fine"), "", said])
    assert str(refused.value).startswith(f"line 3: topic {NAME} refuses the message {why}")
    assert one.topic.state().messages == 0


def test_a_payload_of_more_than_the_server_takes_is_refused(
    one: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("retention.dialects.iggy_checks.MOST_PAYLOAD_BYTES", 3)
    with pytest.raises(RefusedError, match="server error 4022, TooBigMessagePayload"):
        one.topic.publish([line("four")])


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ('{"data": "x", "ts_ns": 1}', "unknown key ts_ns"),
        ('{"subject": "other", "data": "x"}', "subject can only be the topic's name, 'clicks'"),
        (line(partition=1, key="k"), "partition and key exclude each other"),
        (line(partition="1"), "partition must be a whole number"),
        (line(partition=2**32), "partition must be a whole number"),
        (line(partition=True), "partition must be a whole number"),
        (line(id=2**128), "id must be a whole number of 128 bits at most"),
        (line(id="x"), "id must be a whole number"),
        (line(origin_ts_ns=-1), "origin_ts_ns must not be before 1970"),
        (line(key="k", key_b64="aw=="), "key and key_b64 exclude each other"),
        (line(key_b64="?"), "key_b64 is not base64"),
        (line(headers="x"), "headers must be pairs, or an object"),
        (line(headers={"": "v"}), "the user headers claim 0 bytes"),
        (line(headers={"k": "v" * 256}), "the user headers claim 256 bytes"),
        (line(headers=[["k", "v"], ["k", "w"]]), "the user header 'k' occurs twice"),
        (line(headers={"k": None}), "a user header is a string"),
        (line(headers={"k": 2**127}), "has more than 128 bits"),
        (line(headers={"k": {"kind": "x", "value": ""}}), "'x' is not a kind"),
        (line(headers={"k": {"kind": "int8", "value": "AAA="}}), "a int8 of 2 bytes"),
        (line(headers_b64="AAAA"), "the user headers end within the length"),
        (line(headers={}, headers_b64=""), "headers and headers_b64 exclude each other"),
        ("[]", "it is not a JSON object"),
        ("{", "it is not JSON"),
    ],
)
def test_a_line_that_is_no_message_is_named(one: World, said: str, why: str) -> None:
    with pytest.raises(UsageError, match=r"^line 2: ") as refused:
        one.topic.publish([line(), said])
    assert why in str(refused.value)
    assert not isinstance(refused.value, RefusedError)
    assert one.topic.state().messages == 0
