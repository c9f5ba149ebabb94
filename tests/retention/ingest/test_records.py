"""Publishes and appends of frames, Arrow tables and dicts: the same result as JSON lines, for any frame library."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pytest

from retention.api.log import Log
from retention.errors import RefusedError, UsageError
from retention.formats.iggy.user_headers import build, typed_of
from tests.support.sandboxes import NOW, ORDERS, opened
from tests.support.topics import START, World

Row = dict[str, Any]
MAKERS: dict[str, Callable[[pa.Table], Any]] = {
    "pandas": lambda rows: rows.to_pandas(),
    "pandas with an index": lambda rows: (
        rows.to_pandas().iloc[::-1].iloc[::-1].set_axis(range(5, 5 + rows.num_rows))
    ),
    "polars": pl.from_arrow,
    "duckdb": lambda rows: duckdb.sql("from rows"),
    "arrow": lambda rows: rows,
    "arrow, lazily": lambda rows: rows.to_reader(7),
    "dicts": lambda rows: rows.to_pylist(),
    "dicts of pandas": lambda rows: rows.to_pandas().to_dict("records"),
    "an iterator": lambda rows: iter(rows.to_pylist()),
}


def some_rows(count: int = 40) -> list[Row]:
    """Messages in random order of time, some with headers, some without payload."""
    return [
        {
            "subject": f"orders.{number % 3}",
            "payload": None if number % 11 == 0 else bytes([number, 255]),
            "headers": b"NATS/1.0\r\na: b\r\n\r\n" if number % 4 == 0 else None,
            "ts_ns": NOW - 10**15 + number * 31 % 17 * 1_000_001,
        }
        for number in range(count)
    ]


def table(rows: list[Row]) -> pa.Table:
    kinds = {"payload": pa.binary(), "headers": pa.binary(), "key": pa.string(), "id": pa.string()}
    return pa.table(
        {name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]}
    )


def line(row: Row) -> str:
    given = {name: row[name] for name in ("subject", "ts_ns")}
    given["data_b64"] = b64encode(row["payload"] or b"").decode()
    return json.dumps(given | ({"headers": {"a": "b"}} if row["headers"] else {}))


def stored(stream: Log) -> list[Row]:
    columns = ["seq", "subject", "payload", "headers", "ts_ns", "size", "segment"]
    return [row for rows in stream.messages() for row in rows.select(columns).to_pylist()]


@pytest.mark.parametrize("maker", MAKERS)
def test_a_frame_is_published_as_its_lines_are(tmp_path: Path, maker: str) -> None:
    ours, theirs = (opened(tmp_path / name, ORDERS).stream("ORDERS") for name in ("a", "b"))
    published = ours.publish(MAKERS[maker](table(some_rows())), writer="w", batch=1)
    theirs.publish(map(line, some_rows()))
    assert stored(ours) == stored(theirs)
    assert [ack.seq for ack in published.acks()] == list(range(1, 41))
    assert ours.publish(MAKERS[maker](table(some_rows())), writer="w", batch=1).appended.duplicate


@pytest.mark.parametrize("maker", MAKERS)
def test_a_frame_is_appended_in_the_order_of_its_times(tmp_path: Path, maker: str) -> None:
    ours, theirs = (opened(tmp_path / name, ORDERS).stream("ORDERS") for name in ("a", "b"))
    rows = [row | {"payload": row["payload"] or b""} for row in some_rows()]
    appended = ours.append(MAKERS[maker](table(rows)), batch_id=1)
    assert (appended.first_seq, appended.last_seq, appended.messages) == (1, 40, 40)

    def order(row: Row) -> tuple[Any, ...]:
        has_headers = row["headers"] is not None
        return row["ts_ns"], row["subject"], has_headers, row["headers"], row["payload"] or b""

    theirs.publish(map(line, sorted(some_rows(), key=order)))
    assert stored(ours) == stored(theirs)
    assert ours.append(MAKERS[maker](table(rows)), batch_id=1).duplicate


@pytest.mark.parametrize("maker", MAKERS)
def test_a_frame_is_appended_in_the_order_of_its_columns(tmp_path: Path, maker: str) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    rows = [row | {"payload": str(n).encode(), "n": 40 - n} for n, row in enumerate(some_rows())]
    appended = stream.append(MAKERS[maker](table(rows)), order_by=["n"])
    assert appended.order_by == ("n",)
    assert [int(row["payload"]) for row in stored(stream)] == list(reversed(range(40)))


@pytest.mark.parametrize(
    ("rows", "options", "sentence"),
    [
        ([{"subject": "orders.a", "payload": None}], {}, "line 1: payload is null, which is not a message"),
        ([{"subject": "orders.a", "n": 1}, {"subject": "orders.a"}], {"order_by": "n"}, "line 2: it has no n"),
        ([{"subject": "orders.a", "n": 1}, {"subject": "orders.a", "n": "x"}], {"order_by": "n"}, "order_by n: its"),
        (['{"subject": "orders.a"}'], {"order_by": "n"}, "line 1: order_by needs records, and this is text"),
        ([{"subject": "s" * 65_536}], {}, "a row's subject has 65,536 bytes, 's{60}'…; it has at most 65,535"),
        ([{"subject": "orders.a"}], {"where": "n > 1", "payload": "all"}, "where='n > 1', payload='all': that is SQL"),
    ],
)  # fmt: skip
def test_what_a_frame_cannot_be_appended_by_is_refused(
    tmp_path: Path, rows: list[Any], options: dict[str, Any], sentence: str
) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    with pytest.raises(UsageError, match=sentence):
        stream.append(rows, **options)
    assert stored(stream) == []


def test_times_keep_their_nanoseconds_and_headers_may_be_objects_pairs_or_maps(
    tmp_path: Path,
) -> None:
    times = pd.to_datetime([NOW - 5, None, NOW - 7], utc=True)
    frame = pd.DataFrame(
        {
            "subject": pd.Categorical(["orders.a", "orders.b", "orders.a"]),
            "data": ["ä", "", "c"],
            "time": times,
            "headers": [{"a": "1"}, None, {"b": "2", "c": ["3", "4"]}],
        }
    )
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    stream.publish(frame.drop(columns="headers"))
    stream.publish(frame.to_dict("records"))
    pairs = pa.array([[("x", "y"), ("a", "z")]], pa.map_(pa.string(), pa.string()))
    stream.publish(pa.table({"subject": ["orders.a"], "payload": ["p"], "headers": pairs}))
    structs = pl.DataFrame({"subject": ["orders.a"], "payload": ["p"], "headers": [{"n": "v"}]})
    stream.publish(structs)
    at = datetime(2026, 11, 20, 12, tzinfo=UTC)
    stream.publish(
        {"subject": "orders.a", "payload": memoryview(b"m"), "time": at, "ts_ns": np.int64(9)},
        any_time=True,
    )
    stream.publish({"subject": "orders.a", "time": "2026-11-20T12:00:00Z"})
    rows = stored(stream)
    assert [row["ts_ns"] for row in rows[:3]] == [NOW - 5, NOW, NOW - 7]
    assert [row["payload"] for row in rows[:3]] == ["ä".encode(), b"", b"c"]
    assert [row["headers"] for row in rows[3:]] == [
        b"NATS/1.0\r\na: 1\r\n\r\n",
        None,
        b"NATS/1.0\r\nb: 2\r\nc: 3\r\nc: 4\r\n\r\n",
        b"NATS/1.0\r\nx: y\r\na: z\r\n\r\n",
        b"NATS/1.0\r\nn: v\r\n\r\n",
        None,
        None,
    ]
    assert rows[-2]["ts_ns"] == 9
    assert rows[-1]["ts_ns"] == int(at.timestamp()) * 10**9


class Broken:
    """A frame whose library fails during the read."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise ZeroDivisionError("the lazy query failed")


def _failing() -> Iterator[Row]:
    yield {"subject": "orders.a"}
    yield {"subject": "orders.a", "payload": 5}


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "type NoneType has no messages"),
    "a number": (lambda: 5, "type int has no messages"),
    "a text": (lambda: "lines.jsonl", r"type str has no messages.*Path"),
    "a file that is not there": (lambda: Path("/nowhere.jsonl"), "nowhere.jsonl: cannot be read"),
    "a list of numbers": (lambda: [1, 2], "line 1: it is a int, neither JSON text nor a dict"),
    "a dict without a subject": (lambda: {"payload": "x"}, "line 1: subject is required"),
    "a key that no message has": (
        lambda: [{"subject": "orders.a", "body": "x"}],
        "line 1: unknown key body; known are data",
    ),
    "a payload that is a number": (_failing, "line 2: payload must be text or bytes"),
    "a payload twice": (
        lambda: {"subject": "orders.a", "data": "x", "payload": "y"},
        "payload, data and data_b64 exclude each other",
    ),
    "headers that are none": (
        lambda: {"subject": "orders.a", "headers": b"a: b"},
        "headers are bytes, but not a header block",
    ),
    "a column that no message has": (
        lambda: pl.DataFrame({"subject": ["orders.a"], "seq": [1]}),
        "line 1: unknown key seq; known are data, .*, ts_ns; in a frame or a dict also payload for data, and time for",
    ),
    "times without a zone": (
        lambda: pd.DataFrame({"subject": ["orders.a"], "time": pd.to_datetime(["2026-11-20"])}),
        r"the times in the column time have no time zone.*tz_localize",
    ),
    "a time without a zone": (
        lambda: {"subject": "orders.a", "time": datetime(2026, 11, 20)},  # noqa: DTZ001
        "line 1: time 2026-11-20 00:00:00 has no time zone",
    ),
    "times with fractions": (
        lambda: pd.DataFrame({"subject": ["orders.a"], "ts_ns": [1.5]}),
        "line 1: ts_ns must be an integer",
    ),
    "times beyond 64 bits": (
        lambda: pa.table(
            {"subject": ["orders.a"], "time": pa.array([10**12], pa.timestamp("s", "UTC"))}
        ),
        r"line 1: time \+33658-09-27T01:46:40Z is outside 1677-09-21 to 2262-04-11.*1,000 times smaller it is 2001",
    ),
    "a time that no 64 bits hold": (
        lambda: {"subject": "orders.a", "time": datetime(9999, 12, 31, tzinfo=UTC)},
        "line 1: time 9999-12-31T00:00:00Z is outside 1677-09-21 to 2262-04-11",
    ),
    "milliseconds": (
        lambda: pl.DataFrame({"subject": ["orders.a"], "ts_ns": [NOW // 10**6]}),
        "line 1: ts_ns 1800000000000 is 1970.*; it is 2027-01-15T08:00:00Z if milliseconds are meant",
    ),
    "times that were seconds": (
        lambda: pa.table(
            {"subject": ["orders.a"], "time": pa.array([NOW // 10**9], pa.timestamp("ms", "UTC"))}
        ),
        "line 1: time 1970-01-21T20:00:00Z is before 1990; read in a unit 1,000 times larger it is 2027-01-15T08",
    ),
    "mixed values": (
        lambda: pd.DataFrame({"subject": ["orders.a", "orders.b"], "payload": [b"x", 5]}),
        "the rows of this DataFrame cannot be read as columns of Arrow",
    ),
    "texts of pandas": (lambda: pd.Series(["orders.a"]), "line 1: it is not JSON"),
    "one column": (lambda: pl.Series(["orders.a"]), "the rows of this Series cannot be read"),
    "two columns of one name": (
        lambda: pa.table([["orders.a"], ["x"], ["y"]], names=["subject", "payload", "payload"]),
        "two columns have the name payload",
    ),
    "a frame that fails": (Broken, r"this Broken cannot be read .*the lazy query failed"),
}


@pytest.mark.parametrize("way", ["publish", "append"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_message_is_refused_in_a_sentence(tmp_path: Path, case: str, way: str) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    given, sentence = REFUSED[case]
    with pytest.raises(UsageError, match=sentence):
        getattr(stream, way)(given())
    assert stored(stream) == []


def test_the_servers_rules_are_those_of_publishing(tmp_path: Path) -> None:
    stream = opened(tmp_path, ORDERS).stream("ORDERS")
    elsewhere = pd.DataFrame({"subject": ["orders.a", "other"], "payload": [b"", b""]})
    with pytest.raises(RefusedError, match="line 2: stream ORDERS refuses the message on 'other'"):
        stream.publish(elsewhere)
    assert stream.append(elsewhere).messages == 2
    assert stream.append(elsewhere.iloc[:0]).messages == 0
    with pytest.raises(UsageError, match="a row's subject is 'a b'"):
        stream.append({"subject": "a b"})


def topic_rows(count: int = 60) -> list[Row]:
    """Messages for a topic: by partition, by key and by neither, some with ids and headers, with ties in time."""
    block = build([(typed_of("n"), typed_of(7))])
    return [
        {
            "payload": f"{number * 7919 % count:05}".encode(),
            "partition": number % 3 if number % 5 == 0 else None,
            "key": f"k{number % 7}" if number % 5 in (1, 2) else None,
            "id": str(2**127 + number) if number % 4 == 0 else None,
            "headers": block if number % 6 == 0 else None,
            "origin_ts_ns": START + number * 31 % 17 * 1_000_000,
        }
        for number in range(count)
    ]


def topic_line(row: Row) -> str:
    given = {name: row[name] for name in ("partition", "key", "id", "origin_ts_ns")}
    given["data_b64"] = b64encode(row["payload"]).decode()
    given["headers_b64"] = b64encode(row["headers"]).decode() if row["headers"] else None
    return json.dumps({name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize("maker", ["pandas", "polars", "dicts", "dicts of pandas"])
def test_a_topic_takes_frames_as_it_takes_lines(tmp_path: Path, maker: str) -> None:
    rows = topic_rows()
    given = table(rows)
    if maker.endswith("pandas"):
        # An integer column with nulls is a float column in pandas by default.
        given = given.set_column(1, "partition", given["partition"].cast(pa.int64()))
    published, lined, appended, ordered = (
        World(tmp_path / name, "parquet", {"partitions": 3}) for name in ("a", "b", "c", "d")
    )
    frame = MAKERS[maker](given)
    if isinstance(frame, pd.DataFrame):
        frame["partition"] = frame["partition"].astype("Int64")
    elif maker == "dicts of pandas":
        frame = [row | {"partition": whole(row["partition"])} for row in frame]
    published.topic.publish(frame)
    lined.topic.publish(map(topic_line, rows))
    assert published.rows() == lined.rows()
    appended.topic.append(frame, "app", 1)

    def order(row: Row) -> tuple[Any, ...]:
        rest = (row["id"] or "", row["headers"] or b"", row["payload"])
        return row["origin_ts_ns"], *rest

    ordered.topic.publish(map(topic_line, sorted(rows, key=order)))
    assert appended.rows() == ordered.rows()
    assert appended.topic.append(frame, "app", 1).duplicate


def whole(number: float) -> float | int:
    return number if number != number else int(number)  # noqa: PLR0124


@pytest.mark.parametrize(
    ("row", "error", "why"),
    [
        ({"payload": b""}, RefusedError, "InvalidMessagePayloadLength"),
        ({"partition": 2}, RefusedError, "PartitionNotFound"),
        ({"partition": 0, "key": b"k"}, UsageError, "exclude each other"),
        ({"id": "x"}, UsageError, "id must be a whole number"),
        ({"headers": b"\x02"}, UsageError, "the user headers end within the length"),
        ({"time": NOW}, UsageError, "unknown key time"),
    ],
)
def test_rows_that_a_topic_cannot_take_are_refused(
    tmp_path: Path, row: Row, error: type[Exception], why: str
) -> None:
    world = World(tmp_path, "parquet")
    for way in (world.topic.publish, world.topic.append):
        with pytest.raises(error, match=f"line 2: .*{why}"):
            way([{"payload": b"x"}, {"payload": b"x"} | row])
    assert world.topic.state().messages == 0
