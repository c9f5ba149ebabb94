from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from retention.context.context import OpenedStream
from retention.core import headers
from retention.errors import RefusedError, RetentionError, UsageError
from retention.formats.jsonl import SkippedLine
from retention.ingest.idempotency import BatchIdentity
from retention.ingest.publish import publish
from retention.ingest.published import Ack, Published
from retention.schemas.deadlines import NEVER
from tests.support.plain_store import at, configured, opened_stream, store_of

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND


def line(subject: str = "orders.a", data: str = "x", **more: Any) -> str:
    return json.dumps({"subject": subject, "data": data, **more})


def answers(published: Published) -> list[tuple[int, bool]]:
    return [(ack.seq, ack.duplicate) for ack in published.acks()]


def stored(opened: OpenedStream) -> list[tuple[int, str, str]]:
    rows = store_of(opened).rows()
    payloads = [payload.decode() for payload in rows["payload"].to_pylist()]
    return list(zip(rows["seq"].to_pylist(), rows["subject"].to_pylist(), payloads, strict=True))


def refuses(opened: OpenedStream, *lines: str, kind: type[RetentionError] = RefusedError) -> str:
    """The error of a refused batch, with an unchanged stream."""
    before = len(store_of(opened).versions)
    with pytest.raises(kind) as caught:
        publish(opened, lines)
    assert len(store_of(opened).versions) <= max(before, 1)
    assert store_of(opened).leftovers() == []
    return str(caught.value)


@pytest.fixture
def orders(tmp_path: Path) -> OpenedStream:
    return opened_stream(tmp_path, NOW)


def test_each_line_is_acknowledged_with_its_sequence(orders: OpenedStream) -> None:
    published = publish(orders, [line(data="a"), "", line("orders.b", "b")])
    assert list(published.acks()) == [
        Ack("ORDERS", 1, duplicate=False),
        Ack("ORDERS", 2, duplicate=False),
    ]
    assert stored(orders) == [(1, "orders.a", "a"), (2, "orders.b", "b")]


def test_a_message_without_time_has_the_batchs_one_reading_of_the_clock(
    orders: OpenedStream,
) -> None:
    publish(orders, [line(), line(ts_ns=7)])
    assert store_of(orders).rows()["ts_ns"].to_pylist() == [NOW, 7]


def test_a_batch_of_a_writer_is_answered_the_second_time(orders: OpenedStream) -> None:
    publish(orders, [line()], BatchIdentity("loader", 3))
    again = publish(orders, [line("elsewhere")], BatchIdentity("loader", 3))
    assert again.appended.duplicate
    assert answers(again) == []
    assert len(stored(orders)) == 1


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_sizes_are_the_accounting_of_the_storage(tmp_path: Path, storage: str) -> None:
    opened = opened_stream(tmp_path, storage=storage, subjects=("sz.>",))
    publish(opened, [line("sz.a", "hello"), line("sz.a", "hello", headers={"a": "bc"})])
    expected = {"file": [39, 62], "memory": [25, 44]}
    assert store_of(opened).rows()["size"].to_pylist() == expected[storage]


def test_an_empty_batch_changes_nothing(orders: OpenedStream) -> None:
    assert answers(publish(orders, [])) == []
    assert store_of(orders).swaps == []


def test_a_line_that_is_no_message_is_named(orders: OpenedStream) -> None:
    error = refuses(orders, line(), "{", kind=UsageError)
    assert "line 2" in error


@pytest.mark.parametrize("subject", ["orders..a", "orders.*", "orders.>", "orders a", ".orders"])
def test_a_subject_that_cannot_be_published_to_is_named(orders: OpenedStream, subject: str) -> None:
    assert "line 3" in refuses(orders, line(), "", line(subject), kind=UsageError)


def test_a_subject_of_no_stream_is_refused(orders: OpenedStream) -> None:
    error = refuses(orders, line(), line("invoices.a"))
    assert "line 2: stream ORDERS refuses the message on 'invoices.a'" in error
    assert "takes orders.> only" in error


def test_the_first_refused_line_is_the_one_that_is_named(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, max_msg_size=10)
    assert "line 2" in refuses(opened, line(), line(data="x" * 11), line("invoices.a"))


def test_a_sealed_stream_takes_nothing(tmp_path: Path) -> None:
    assert "10109" in refuses(opened_stream(tmp_path, sealed=True), line())


def test_headers_and_payload_count_for_max_msg_size_the_subject_does_not(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, max_msg_size=21)
    publish(opened, [line(data="x" * 21), line(data="xx", headers={"a": "bc"})])
    assert "10054" in refuses(opened, line(data="xxx", headers={"a": "bc"}))


def test_a_header_block_above_65535_bytes_is_refused(orders: OpenedStream) -> None:
    frame = len("NATS/1.0\r\na: \r\n\r\n")
    publish(orders, [line(headers={"a": "x" * (65_535 - frame)})])
    assert "10097" in refuses(orders, line(headers={"a": "x" * (65_536 - frame)}))


def test_a_ttl_without_allow_msg_ttl_is_refused(orders: OpenedStream) -> None:
    assert "10166" in refuses(orders, line(headers={"Nats-TTL": "5s"}))
    assert "10166" in refuses(orders, line(headers={"Nats-TTL": "never"}))
    assert "10165" in refuses(orders, line(headers={"Nats-TTL": "soon"}))
    publish(orders, [line(headers={"Nats-TTL": "00"}), line(headers={"nats-ttl": "5s"})])
    assert store_of(orders).rows()["deadline_ns"].to_pylist() == [None, None]


def test_a_ttl_becomes_a_deadline_where_it_is_allowed(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, NOW, allow_msg_ttl=True)
    ttls = ("5s", "never", "1h")
    publish(opened, [line(headers={"Nats-TTL": ttl}) for ttl in ttls])
    assert store_of(opened).rows()["deadline_ns"].to_pylist() == [
        NOW + 5 * SECOND,
        NEVER,
        NOW + 3600 * SECOND,
    ]
    assert "10165" in refuses(opened, line(headers={"Nats-TTL": "1d"}))


def ttls_as_stored(opened: OpenedStream, *ttls: str) -> list[bytes | None]:
    """The stored TTLs after these were published to an empty stream."""
    publish(opened, [line(headers=[["Nats-TTL", ttl], ["a", "b"]]) for ttl in ttls])
    blocks = store_of(opened).rows()["headers"].to_pylist()
    return [headers.lookup(block, "Nats-TTL") for block in blocks]


def test_a_ttl_below_that_of_a_marker_is_raised_to_it_in_the_stored_header(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, NOW, subject_delete_marker_ttl="10.9s", max_msgs_per_subject=2)
    given = ("5", "9.9s", "10", "11s", "never", "00")
    assert ttls_as_stored(opened, *given) == [b"10", b"10", b"10", b"11s", b"never", b"00"]
    rows = store_of(opened).rows()
    assert rows["headers"][0].as_py() == b"NATS/1.0\r\na: b\r\nNats-TTL: 10\r\n\r\n"
    assert rows["headers"][3].as_py() == b"NATS/1.0\r\nNats-TTL: 11s\r\na: b\r\n\r\n"
    assert rows["deadline_ns"][0].as_py() == NOW + 10 * SECOND
    block, subject, payload = len(rows["headers"][0].as_py()), len("orders.a"), len("x")
    assert rows["size"][0].as_py() == 34 + subject + block + payload


def test_a_ttl_stays_as_it_is_where_a_subject_holds_one_message(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, NOW, subject_delete_marker_ttl="10s", max_msgs_per_subject=1)
    assert ttls_as_stored(opened, "5", "9.9s") == [b"5", b"9.9s"]


def test_limits_at_the_door_count_a_raised_ttl_as_it_is_stored(tmp_path: Path) -> None:
    """Except `max_msg_size`, which the server checks earlier."""
    given = headers.build([("Nats-TTL", "5")])
    limits = {"subject_delete_marker_ttl": "1000s", "max_msg_size": len(given) + 1}
    opened = opened_stream(
        tmp_path, NOW, discard="new", max_bytes=34 + 8 + len(given) + 1, **limits
    )
    assert "10077" in refuses(opened, line(headers={"Nats-TTL": "5"}))
    opened = opened_stream(tmp_path / "b", NOW, **limits)
    publish(opened, [line(headers={"Nats-TTL": "5"})])
    assert store_of(opened).rows()["size"].to_pylist() == [34 + 8 + len(given) + 3 + 1]


def test_a_ttl_that_is_over_at_once_is_taken_and_due(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, NOW, allow_msg_ttl=True)
    assert ttls_as_stored(opened, "10000000000", "18446744073709551617", "18446744073709551616")
    passed, one_second, none = store_of(opened).rows()["deadline_ns"].to_pylist()
    assert passed < 0
    assert one_second == NOW + SECOND
    assert none is None


def test_an_id_seen_within_the_window_is_answered_with_its_original(orders: OpenedStream) -> None:
    tagged = {"Nats-Msg-Id": "one"}
    publish(orders, [line(), line(headers=tagged)])
    later = at(orders, NOW + 120 * SECOND - 1)
    assert answers(publish(later, [line(data="y", headers=tagged), line()])) == [
        (2, True),
        (3, False),
    ]
    assert [seq for seq, _, _ in stored(orders)] == [1, 2, 3]


def test_a_duplicate_does_not_prolong_the_window(orders: OpenedStream) -> None:
    tagged = line(headers={"Nats-Msg-Id": "one"})
    publish(orders, [tagged])
    publish(at(orders, NOW + 100 * SECOND), [tagged])
    assert answers(publish(at(orders, NOW + 120 * SECOND), [tagged])) == [(2, False)]
    assert answers(publish(at(orders, NOW + 120 * SECOND), [tagged])) == [(2, True)]


def test_an_id_repeated_inside_a_batch_is_a_duplicate(orders: OpenedStream) -> None:
    tagged = line(headers={"Nats-Msg-Id": "one"})
    assert answers(publish(orders, [tagged, line(), tagged])) == [(1, False), (2, False), (1, True)]


def test_a_batch_of_duplicates_only_commits_nothing(orders: OpenedStream) -> None:
    tagged = line(headers={"Nats-Msg-Id": "one"})
    publish(orders, [tagged])
    assert answers(publish(orders, [tagged])) == [(1, True)]
    assert len(store_of(orders).swaps) == 1


def test_a_duplicate_is_answered_before_its_ttl_is_read_and_after_its_size(
    orders: OpenedStream,
) -> None:
    tagged = {"Nats-Msg-Id": "one"}
    publish(orders, [line(headers=tagged)])
    again = line(headers={**tagged, "Nats-TTL": "soon"})
    assert answers(publish(orders, [again])) == [(1, True)]
    assert "10054" in refuses(configured(orders, max_msg_size=40), again)


EXPECTED = [
    ({"Nats-Expected-Stream": "ORDERS"}, None),
    ({"Nats-Expected-Stream": "OTHER"}, 10060),
    ({"Nats-Expected-Last-Sequence": "3"}, None),
    ({"Nats-Expected-Last-Sequence": "2"}, 10071),
    ({"Nats-Expected-Last-Sequence": "-3"}, 10071),
    ({"Nats-Expected-Last-Sequence": "three"}, 10071),
    ({"Nats-Expected-Last-Subject-Sequence": "2"}, None),
    ({"Nats-Expected-Last-Subject-Sequence": "0"}, 10071),
    (
        {
            "Nats-Expected-Last-Subject-Sequence": "3",
            "Nats-Expected-Last-Subject-Sequence-Subject": "orders.*",
        },
        None,
    ),
    (
        {
            "Nats-Expected-Last-Subject-Sequence": "0",
            "Nats-Expected-Last-Subject-Sequence-Subject": "orders.none",
        },
        None,
    ),
    ({"Nats-Expected-Last-Subject-Sequence-Subject": "orders.a"}, 10193),
    ({"Nats-Expected-Last-Msg-Id": "last"}, None),
    ({"Nats-Expected-Last-Msg-Id": "first"}, 10070),
]


@pytest.mark.parametrize(("headers", "code"), EXPECTED)
def test_expectations_are_held_against_the_stream(
    orders: OpenedStream, headers: dict[str, str], code: int | None
) -> None:
    publish(
        orders,
        [
            line(headers={"Nats-Msg-Id": "first"}),
            line(),
            line("orders.b", headers={"Nats-Msg-Id": "last"}),
        ],
    )
    if code is None:
        assert answers(publish(orders, [line(headers=headers)])) == [(4, False)]
    else:
        assert f"server error {code}" in refuses(orders, line(headers=headers))


def test_expectations_count_what_the_batch_itself_stored(orders: OpenedStream) -> None:
    publish(
        orders,
        [
            line(headers={"Nats-Expected-Last-Sequence": "0"}),
            line(headers={"Nats-Expected-Last-Sequence": "1", "Nats-Msg-Id": "two"}),
            line(headers={"Nats-Expected-Last-Subject-Sequence": "2"}),
        ],
    )
    assert "wrong last sequence: 3" in refuses(
        orders, line(headers={"Nats-Expected-Last-Sequence": "1", "Nats-Msg-Id": "two"})
    )


def test_rollups_are_refused_for_what_they_ask(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, allow_rollup_hdrs=True)
    assert "10111" in refuses(opened_stream(tmp_path), line(headers={"Nats-Rollup": "sub"}))
    assert "10111" in refuses(opened, line(headers={"Nats-Rollup": "some"}))
    assert answers(publish(opened, [line(headers={"Nats-Rollup": ""})])) == [(1, False)]


def test_a_full_stream_refuses_under_discard_new(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, discard="new", max_msgs=2)
    publish(opened, [line()])
    assert "line 2" in refuses(opened, line(), line())
    publish(opened, [line()])
    assert "10077" in refuses(opened, line())


def test_max_bytes_under_discard_new_refuses_what_goes_above(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, discard="new", max_bytes=2 * 39)
    publish(opened, [line(), line()])
    assert "maximum bytes exceeded" in refuses(opened, line(data=""))


def test_discard_old_refuses_nothing_for_room(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, max_msgs=1, max_bytes=1, max_msgs_per_subject=1)
    assert answers(publish(opened, [line(), line()])) == [(1, False), (2, False)]


def test_a_subject_at_its_own_limit_replaces_in_a_full_stream(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, discard="new", max_msgs=2, max_msgs_per_subject=1)
    publish(opened, [line("orders.a"), line("orders.b")])
    publish(opened, [line("orders.a"), line("orders.a")])
    assert "maximum messages exceeded" in refuses(opened, line("orders.c"))


def test_what_a_limit_per_subject_will_remove_takes_no_room(tmp_path: Path) -> None:
    opened = opened_stream(
        tmp_path, discard="new", max_msgs=2, max_bytes=78, max_msgs_per_subject=1
    )
    publish(opened, [line(data="y"), line(), line(), line()])
    publish(opened, [line("orders.b")])
    assert "10077" in refuses(opened, line("orders.c"))


def test_a_replacement_above_max_bytes_must_not_be_larger(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, discard="new", max_bytes=60, max_msgs_per_subject=1)
    publish(opened, [line(data="x" * 20)])
    publish(opened, [line(data="x" * 20)])
    assert "maximum bytes exceeded" in refuses(opened, line(data="x" * 21))
    publish(opened, [line(data="x" * 10)])
    assert "maximum bytes exceeded" in refuses(opened, line(data="x" * 11))


def test_discard_new_per_subject_refuses_the_next_of_a_subject(tmp_path: Path) -> None:
    opened = opened_stream(
        tmp_path, discard="new", max_msgs_per_subject=2, discard_new_per_subject=True
    )
    publish(opened, [line(), line()])
    assert "maximum messages per subject exceeded" in refuses(opened, line())
    publish(opened, [line("orders.b")])


def test_plain_messages_need_nothing_from_the_table(orders: OpenedStream) -> None:
    publish(orders, [line()])
    publish(orders, [line(headers={"trace": "1"})])
    assert store_of(orders).subject_reads == 0


def test_a_subject_transform_renames_what_it_matches(tmp_path: Path) -> None:
    transform = {"src": "orders.*.>", "dest": "kept.{{wildcard(1)}}.x.>"}
    opened = opened_stream(tmp_path, subject_transform=transform)
    publish(opened, [line("orders.a.b.c"), line("orders.a")])
    assert [subject for _, subject, _ in stored(opened)] == ["kept.a.x.b.c", "orders.a"]


def test_a_subject_transform_that_cuts_a_character_is_refused(tmp_path: Path) -> None:
    transform = {"src": "orders.*", "dest": "orders.{{left(1,2)}}"}
    opened = opened_stream(tmp_path, subject_transform=transform)
    publish(opened, [line("orders.abc")])
    assert [subject for _, subject, _ in stored(opened)] == ["orders.ab"]
    problem = refuses(opened, line("orders.aéc"))
    assert "makes b'orders.a\\xc3' of its subject, which is not UTF-8" in problem


def test_a_subject_that_would_be_cut_leaves_out_its_line_alone(tmp_path: Path) -> None:
    transform = {"src": "orders.*", "dest": "orders.{{left(1,2)}}"}
    opened = opened_stream(tmp_path, subject_transform=transform)
    left: list[SkippedLine] = []
    given = [line("orders.abc"), line("orders.aéc"), line("orders.éc"), line("orders.aéd")]
    publish(opened, given, leave_out=left.extend)
    assert [subject for _, subject, _ in stored(opened)] == ["orders.ab", "orders.é"]
    assert [one.line for one in left] == [2, 4]
    assert left[0].reason == (
        "the subject transform makes b'orders.a\\xc3' of its subject, which is not UTF-8 (it counts bytes), and a "
        "table cannot hold that"
    )


def test_a_mirror_takes_no_publishes(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, subjects=(), mirror={"name": "SOURCE"})
    assert "takes no subject" in refuses(opened, line())


def test_after_a_lost_race_the_checks_are_made_again(orders: OpenedStream) -> None:
    store = store_of(orders)
    tagged = line(headers={"Nats-Msg-Id": "one"})
    rival = at(orders, NOW)
    object.__setattr__(rival, "root", orders.root + "-rival")

    def come_first() -> None:
        publish(rival, [line(data="rival", headers={"Nats-Msg-Id": "one"})])

    store.before_commit += [come_first, lambda: None]
    assert answers(publish(orders, [tagged, line(data="new")])) == [(1, True), (2, False)]
    assert [payload for _, _, payload in stored(orders)] == ["rival", "new"]
