from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.consumers import ack_subject
from retention.consumers.ack_subject import ACKS, VERBS, Malformed, parse
from tests.support.laws import law

PLAIN = "$JS.ACK.ORDERS.billing.2.7.11.1700000000000000000.5"
WITH_DOMAIN = "$JS.ACK.hub.ACCHASH.ORDERS.billing.2.7.11.1700000000000000000.5"


def parsed(*subjects: str | None) -> tuple[pa.Table, list[Malformed]]:
    return parse(pa.array(subjects, pa.string()), pa.array([b""] * len(subjects)))


@pytest.mark.parametrize("reply", [PLAIN, WITH_DOMAIN, f"{WITH_DOMAIN}.x7", f"{WITH_DOMAIN}.x7.y"])
def test_a_reply_is_read_in_every_form_that_servers_write(reply: str) -> None:
    acks, malformed = parsed(reply)
    assert malformed == []
    assert acks.schema == ACKS
    assert acks.to_pylist() == [
        {
            "row": 0,
            "stream": "ORDERS",
            "consumer": "billing",
            "verb": ack_subject.ACK,
            "deliveries": 2,
            "seq": 7,
            "consumer_seq": 11,
            "ts_ns": 1_700_000_000_000_000_000,
        }
    ]


@pytest.mark.parametrize("tokens", [3, 4, 5, 6, 7, 8, 10])
def test_replies_of_other_lengths_are_named_with_count_and_example(tokens: int) -> None:
    reply = ".".join(WITH_DOMAIN.split(".")[:tokens])
    acks, malformed = parsed(reply, PLAIN, reply)
    assert acks["row"].to_pylist() == [1]
    why = f"has {tokens} tokens; a reply has 9, or 11 and more with domain and account"
    assert malformed == [Malformed(why, 2, reply)]


@pytest.mark.parametrize("reply", [None, "", "$JS.ACK", "$JS.FC.ORDERS.billing.x", "orders.new"])
def test_what_does_not_begin_as_a_reply_is_none(reply: str | None) -> None:
    assert parsed(reply)[1] == [Malformed("does not begin with $JS.ACK.", 1, str(reply))]


@pytest.mark.parametrize(
    "number", ["", "-1", "+1", "1e3", "x", "٣", "9223372036854775808", "0" * 20]
)
@pytest.mark.parametrize("place", [4, 5, 6, 7, 8])
def test_a_number_that_is_none_makes_the_reply_malformed(number: str, place: int) -> None:
    tokens = PLAIN.split(".")
    tokens[place] = number
    acks, malformed = parsed(".".join(tokens))
    assert acks.num_rows == 0
    why = "has no whole numbers within 63 bits in its last five places"
    assert malformed == [Malformed(why, 1, ".".join(tokens))]


def test_the_largest_number_is_one() -> None:
    acks, _ = parsed(PLAIN.replace(".7.", ".9223372036854775807."), PLAIN.replace(".7.", ".007."))
    assert acks["seq"].to_pylist() == [2**63 - 1, 7]


@pytest.mark.parametrize(
    ("body", "verb"),
    [
        (None, "delivered"),
        (b"", "ack"),
        (b"+ACK", "ack"),
        (b"+OK", "ack"),
        (b"+ACK ", "unknown"),
        (b"+ack", "unknown"),
        (b"ok", "unknown"),
        (b"-NAK", "nak"),
        (b'-NAK {"delay": 1000000}', "nak"),
        (b"-NAK 10s", "nak"),
        (b"-NAKED", "nak"),
        (b"+WPI", "progress"),
        (b"+WPI.", "unknown"),
        (b"+TERM", "term"),
        (b"+TERM no such order", "term"),
        (b"+NXT", "next"),
        (b'+NXT {"batch": 5}', "next"),
        (b"\xff", "unknown"),
    ],
)
def test_a_body_means_what_it_means_to_the_server(body: bytes | None, verb: str) -> None:
    codes = ack_subject.verbs(pa.array([body], pa.binary()))
    assert VERBS[codes[0].as_py()] == verb


def test_a_log_in_chunks_reads_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    subjects = [
        f"$JS.ACK.S.c.1.{seq}.{seq}.0.0" if seq % 3 else f"bad.{seq}" for seq in range(1, 40)
    ]
    bodies = [[b"", b"-NAK", b"+TERM", None][seq % 4] for seq in range(1, 40)]
    whole = parse(pa.array(subjects), pa.array(bodies))
    monkeypatch.setattr(ack_subject, "_AT_ONCE", 7)
    cut = pa.chunked_array([subjects[:5], subjects[5:]])
    in_parts = parse(cut, pa.chunked_array([bodies[:20], bodies[20:]]))
    assert in_parts[0].combine_chunks() == whole[0].combine_chunks()
    assert in_parts[1] == whole[1] == [Malformed("does not begin with $JS.ACK.", 13, "bad.3")]


NAMES = st.text("a-é€😀", max_size=9)
NUMBERS = st.integers(0, 99) | st.integers(0, 2**63 - 1) | st.sampled_from([2**63 - 1, 10**18])
EDITS = st.sampled_from(["", ".", "x", "/", ":", "٣", "0" * 19, "9" * 19])


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[str], bool]:
    """Replies with the same number of tokens; and whether one of them was edited."""
    before, after = draw(st.sampled_from([(0, 0), (2, 0), (2, 1)]))
    numbers = st.lists(NUMBERS.map(str), min_size=5, max_size=5)
    names = st.lists(NAMES, min_size=2 + before, max_size=2 + before)
    rest = st.lists(NAMES, min_size=after, max_size=after)
    rows = draw(st.lists(st.tuples(names, numbers, rest), min_size=1, max_size=6))
    replies = [".".join(["$JS.ACK", *chain.from_iterable(row)]) for row in rows]
    is_edited = draw(st.booleans())
    if is_edited:
        row = draw(st.integers(0, len(replies) - 1))
        at = draw(st.integers(0, len(replies[row])))
        replies[row] = (
            replies[row][:at] + draw(EDITS) + replies[row][at + draw(st.integers(0, 2)) :]
        )
    return replies, is_edited


@law
@given(logs())
def test_bytes_and_texts_are_parsed_alike(log: tuple[list[str], bool]) -> None:
    replies, is_edited = log
    subjects = pa.array([PLAIN, *replies]).slice(1)
    bodies = pa.array([b"+ACK", None, b"-NAK", b"", b"+ACK", b"x"][: len(replies)], pa.binary())
    table, faults = ack_subject._parse_part((5, subjects, bodies))
    as_texts, faults_as_texts = ack_subject._parse_texts(5, subjects, bodies)
    assert table.equals(as_texts)
    assert faults == faults_as_texts
    assert is_edited or ack_subject._columns_by_bytes(subjects) is not None


def test_an_empty_log_has_no_acks() -> None:
    assert parsed() == (ACKS.empty_table(), [])
