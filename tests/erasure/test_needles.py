"""The needles of messages: what is searched, what is too short, and what survivors have."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from retention.core import headers
from retention.erasure.encodings import MIN_BYTES
from retention.erasure.needles import HEAD_BYTES, KINDS, Needles, needles_of_rows
from retention.schemas.messages import MESSAGES
from tests.support.laws import law


def strings(needles: Needles) -> dict[str, set[bytes]]:
    by_kind: dict[str, set[bytes]] = {}
    for string, kind in zip(needles.strings.to_pylist(), needles.kinds, strict=True):
        by_kind.setdefault(KINDS[kind], set()).add(string)
    return by_kind


def payloads(*values: bytes) -> pa.Table:
    return pa.table({"payload": pa.array(values, pa.binary())})


def test_each_value_of_a_message_is_a_needle() -> None:
    block = headers.build([("Nats-Msg-Id", "header-id-0017"), ("X-Name", "Zo\u00eb Zuckerberg")])
    row = {
        "partition": 0, "segment": 0, "seq": 1, "subject": "$KV.people.customer-0017", "ts_ns": 0,
        "headers": block, "payload": b"the payload of it", "size": 1, "msg_id": "column-id-0017",
    }  # fmt: skip
    found = strings(needles_of_rows([pa.Table.from_pylist([row], MESSAGES)]))
    assert found == {
        "subject": {b"$KV.people.customer-0017"},
        "key": {b"customer-0017"},
        "payload": {b"the payload of it"},
        "header": {"Zo\u00eb Zuckerberg".encode()},
        "msg_id": {b"header-id-0017", b"column-id-0017"},
    }


def test_no_rows_have_no_needles() -> None:
    for rows in ([], [MESSAGES.empty_table()]):
        needles = needles_of_rows(rows).without([])
        assert (len(needles), needles.too_short, needles.shared) == (0, 0, 0)


def test_short_values_are_counted_once_each() -> None:
    rows = payloads(b"short", b"short", b"other", b"", b"exactly12byt")
    needles = needles_of_rows([rows, rows])
    assert (strings(needles), needles.too_short) == ({"payload": {b"exactly12byt"}}, 2)


def test_a_value_that_a_survivor_has_is_left_out_and_counted() -> None:
    needles = needles_of_rows([payloads(b"shared value 1", b"shared value 2", b"only removed")])
    left = needles.without([payloads(b"shared value 1"), payloads(b"<< shared value 2 >>")])
    assert (strings(left), left.shared) == ({"payload": {b"only removed"}}, 2)


def test_two_survivors_side_by_side_do_not_contain_what_neither_has() -> None:
    needles = needles_of_rows([payloads(b"first second")])
    assert len(needles.without([payloads(b"x first ", b"second y")])) == 1


def test_survivors_may_lie_in_a_slice() -> None:
    needles = needles_of_rows([payloads(b"shared value 1", b"shared value 2")])
    left = needles.without([payloads(b"shared value 1", b"shared value 2", b"").slice(1)])
    assert strings(left) == {"payload": {b"shared value 1"}}


def test_a_long_value_is_searched_by_its_head_unless_a_survivor_has_that() -> None:
    head = b'{"kind": "order", "customer": {"'
    assert len(head) == HEAD_BYTES
    value = head + b'name": "Zoe"}}'
    needles = needles_of_rows([payloads(value)])
    assert strings(needles.without([])) == {"payload": {head}}
    left = needles.without([payloads(head + b'name": "Bob"}}')])
    assert (strings(left), left.shared) == ({"payload": {value}}, 0)
    assert needles.without([payloads(value)]).shared == 1


def test_a_head_ends_with_a_character() -> None:
    subject = "x" * 31 + "\u00e9 and more"
    needles = needles_of_rows([pa.table({"subject": [subject]})]).without([])
    assert strings(needles) == {"subject": {b"x" * 31}}


def test_a_very_long_value_is_searched_by_parts_from_all_over_it() -> None:
    value = bytes(range(256)) * 40
    marked = value[:5_000] + b"unique in the middle of it" + value[5_000:]
    needles = needles_of_rows([payloads(marked)])
    parts = strings(needles)["payload"]
    assert marked[:HEAD_BYTES] in parts
    assert marked[-64:] in parts
    assert all(part in marked and len(part) <= 64 for part in parts)
    assert len(needles) >= 8


@law
@given(
    st.lists(st.text("ab", min_size=1, max_size=40).map(str.encode), min_size=1, max_size=8),
    st.lists(st.text("ab", max_size=60).map(str.encode), max_size=8),
)
def test_what_is_left_is_exactly_what_no_survivor_has(
    removed: list[bytes], survivors: list[bytes]
) -> None:
    needles = needles_of_rows([payloads(*removed)])
    left = needles.without([payloads(*survivors)])
    searched = strings(left).get("payload", set())
    assert not any(string in survivor for string in searched for survivor in survivors)
    long_enough = {value for value in removed if len(value) >= MIN_BYTES}
    contained = {value for value in long_enough if any(value in other for other in survivors)}
    assert all(any(part in value for part in searched) for value in long_enough - contained)
    assert left.shared == len(contained)
    assert left.too_short == len({*removed} - long_enough)
