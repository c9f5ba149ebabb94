from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retention.core import headers
from retention.schemas.deadlines import NEVER

SECOND = 1_000_000_000
TS = 1_790_000_000 * SECOND


def block(*pairs: tuple[str, str]) -> bytes:
    return headers.build(pairs)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        *[("1", 1), ("01", 1), ("10", 10), ("1.5s", 1), ("1.9s", 1), ("2.999s", 2)],
        *[("1000ms", 1), ("1000000us", 1), ("1000000000ns", 1), ("1000000µs", 1)],
        *[("1h30m", 5400), ("1h1h", 7200), ("1.h", 3600), ("1.s", 1), (".5h", 1800), ("+5s", 5)],
        *[("never", -1), ("NEVER", -1), ("nEvEr", -1), ("", 0), ("00", 0), ("000", 0)],
        *[("7000000000", 7_000_000_000), ("2562047h", 2_562_047 * 3600)],
        *[("18446744073709551616", 0), ("18446744073709551617", 1)],
        *[("9223372036854775807", 2**63 - 1), ("99999999999999999999", 7_766_279_631_452_241_919)],
        *[("1" + "0" * 5000, 0), ("0" * 5000 + "7", 7)],
        *[("20000000.999999999s", 20_000_001), ("1.99999999999999999999s", 2)],
    ],
)
def test_a_ttl_is_read_as_the_server_reads_it(value: str, seconds: int) -> None:
    assert headers.parse_ttl(value) == seconds
    assert headers.parse_ttl(value.encode()) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *["0", "+0", "-0", "0s", "0.5s", "999ms", "1µs", "-1", "-1s", "-5m", "+1", "1.5", "0.5"],
        *["1e3", "1_000", "0x10", "never ", "5 ", "\t1", "1d", "1w", "1 h", "5,6", ".5s", "abc"],
        *[
            "\uff11",
            "2562048h",
            "9223372036854775808",
            ".s",
            "s",
            "+",
            "1s2",
            "9223372036854775808ns",
        ],
        *["9" * 5000, "1-1", "--1s", "1s-", "never5"],
    ],
)
def test_a_ttl_that_the_server_refuses_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="not a TTL"):
        headers.parse_ttl(value)


@pytest.mark.parametrize(
    ("ttl", "deadline"),
    [
        (0, None),
        (-1, NEVER),
        (5, TS + 5 * SECOND),
        (7_000_000_000, TS + 7_000_000_000 * SECOND),
        (9_223_372_036, TS + 9_223_372_036 * SECOND - 2**64),
        (2**63 - 1, TS - SECOND),
    ],
)
def test_a_deadline_wraps_like_a_64_bit_integer(ttl: int, deadline: int | None) -> None:
    assert headers.deadline_ns(TS, ttl) == deadline


def test_a_deadline_that_happens_to_be_the_last_instant_is_not_never() -> None:
    assert headers.deadline_ns(NEVER - SECOND, 1) == NEVER - 1
    column = pa.array([block(("Nats-TTL", "1"))])
    assert headers.ttl_deadlines(column, pa.array([NEVER - SECOND])).to_pylist() == [NEVER - 1]


def test_a_lookup_takes_the_first_exact_name_and_skips_spaces_only() -> None:
    stored = b"NATS/1.0\r\nX: Nats-TTL: 9\r\nnats-ttl: 8\r\nNats-TTL:  \t5 \r\nNats-TTL: 7\r\n\r\n"
    assert headers.lookup(stored, "Nats-TTL") == b"\t5 "
    assert headers.lookup(stored, "NATS-TTL") is None
    assert headers.lookup(None, "Nats-TTL") is None


def test_a_block_that_was_built_is_valid_and_gives_its_pairs_back() -> None:
    pairs = [("A", "1"), ("B", ""), ("A", "é: x"), ("C d", " ".join("xy"))]
    assert headers.build(pairs[:1]) == b"NATS/1.0\r\nA: 1\r\n\r\n"
    assert headers.is_valid(headers.build(pairs))
    assert headers.parse(headers.build(pairs)) == pairs
    assert headers.build([]) == b""


@pytest.mark.parametrize("pair", [("", "x"), ("a:b", "x"), ("a\r\nb", "x"), ("a", "x\ny")])
def test_a_pair_that_would_break_a_block_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="not valid as a header"):
        headers.build([pair])


@pytest.mark.parametrize(
    "stored",
    [
        *[b"", b"NATS/1.0\r\n", b"A: b\r\n\r\n", b"NATS/1.0\r\nA: b\r\n", b"NATS/1.0\r\nA\r\n\r\n"],
        b"NATS/1.0\r\nA: " + b"x" * 65_535 + b"\r\n\r\n",
    ],
)
def test_a_broken_or_overlong_block_is_not_valid(stored: bytes) -> None:
    assert not headers.is_valid(stored)


def test_columns_without_headers_have_no_deadline_no_marker_and_no_id() -> None:
    column = pa.chunked_array([[None, None], [None]], type=pa.binary())
    assert headers.ttl_deadlines(column, pa.array([1, 2, 3])).null_count == 3
    assert headers.is_marker(column).to_pylist() == [False] * 3
    assert headers.msg_ids(column) == pa.nulls(3, pa.string())
    empty = pa.chunked_array([], type=pa.binary())
    assert headers.is_marker(empty).to_pylist() == []


def test_a_marker_has_any_marker_reason_or_is_exactly_a_purge() -> None:
    marked = {
        block(("Nats-Marker-Reason", "Whatever")): True,
        block(("Nats-Marker-Reason", "")): False,
        block(("KV-Operation", "PURGE")): True,
        block(("KV-Operation", "purge")): False,
        block(("KV-Operation", "DEL")): False,
        block(("KV-Operation", "PURGE "), ("Nats-Marker-Reason", "MaxAge")): True,
        block(("kv-operation", "PURGE")): False,
    }
    assert headers.is_marker(pa.array(marked)).to_pylist() == list(marked.values())


def test_message_ids_are_text_and_empty_ones_are_none() -> None:
    ids = ["a-1", "", "é"]
    column = pa.array([block(("Nats-Msg-Id", one)) for one in ids] + [block(("X", "y"))])
    assert headers.msg_ids(column).to_pylist() == ["a-1", None, "é", None]
    odd = pa.array([b"NATS/1.0\r\nNats-Msg-Id: \xff\r\n\r\n", None])
    assert headers.msg_ids(odd).to_pylist() == ["\\xff", None]


values = st.sampled_from(["5s", "never", "00", "", "10000000000", "abc", "1h", " 7", "x\ty"])
names = st.sampled_from(["Nats-TTL", "nats-ttl", "Nats-Msg-Id", "X", "KV-Operation"])
blocks = st.one_of(st.none(), st.lists(st.tuples(names, values), max_size=4).map(headers.build))


@given(st.lists(blocks, max_size=12))
def test_columns_agree_with_looking_up_each_message(stored: list[bytes | None]) -> None:
    def one(given: bytes | None, ts_ns: int) -> int | None:
        try:
            return headers.deadline_ns(
                ts_ns, headers.parse_ttl(headers.lookup(given, "Nats-TTL") or b"")
            )
        except ValueError:
            return None

    times = TS + np.arange(len(stored))
    column = pa.chunked_array([stored[:5], stored[5:]], type=pa.binary())
    expected = [one(given, int(at)) for given, at in zip(stored, times, strict=True)]
    assert headers.ttl_deadlines(column, pa.array(times)).to_pylist() == expected
    ids = [headers.lookup(given, "Nats-Msg-Id") or None for given in stored]
    assert headers.msg_ids(column).to_pylist() == [given and given.decode() for given in ids]


def test_all_ttls_are_read_at_once() -> None:
    given = ["5", "1.9s", "never", "00", "soon", "0"]
    blocks = [headers.build([("Nats-TTL", ttl)]) for ttl in given]
    found = headers.ttls(pa.array([*blocks, None, headers.build([("nats-ttl", "5")])]))
    unreadable = headers.UNREADABLE_TTL
    assert found.tolist() == [5, 1, headers.NEVER_TTL, 0, unreadable, unreadable, 0, 0]


def test_a_new_ttl_takes_the_place_of_all_and_stands_last() -> None:
    pairs = [("Nats-TTL", "5"), ("Nats-TTL", "6"), ("a", "Nats-TTL: 1"), ("Nats-TTL", "7")]
    blocks = [headers.build(given) for given in (pairs, pairs[:1], [("X-Nats-TTL", "5")])]
    told = [
        headers.parse(block)
        for block in headers.with_ttl(pa.chunked_array([blocks]), 9).to_pylist()
    ]
    last = ("Nats-TTL", "9")
    assert told == [[("a", "Nats-TTL: 1"), last], [last], [("X-Nats-TTL", "5"), last]]
