from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.context.context import OpenedStream
from retention.core.counters import Counters
from retention.core.message_rows import complete_rows, message_sizes
from retention.errors import DamagedError, RefusedError
from retention.formats.nats.backup import RAW_ROWS, write_backup
from retention.ingest.append import append_rows
from retention.ingest.import_nats import Imported, import_nats_backup
from retention.schemas.bounds import MAX_SEQ
from retention.stores.consumer_table import DIRECTORY, ConsumerTable
from tests.support.plain_store import configured, opened_stream, store_of

HEADERS = b"NATS/1.0\r\nNats-TTL: never\r\nx:y\r\n\r\n"
CONSUMER = {
    "billing": {
        "config": {"durable_name": "billing", "ack_policy": "explicit"},
        "state": {
            "delivered": {"consumer_seq": 3, "stream_seq": 4},
            "ack_floor": {"consumer_seq": 2, "stream_seq": 3},
            "pending": {"4": {"Sequence": 3, "Timestamp": 1_000_000_009}},
            "redelivered": {"4": 1},
        },
    }
}


def messages(*seqs: int) -> pa.Table:
    return pa.table(
        {
            "seq": seqs,
            "subject": ["orders.a" if seq % 2 else "elsewhere.b" for seq in seqs],
            "ts_ns": [1_000_000_007 - seq for seq in seqs],
            "headers": [HEADERS if seq % 3 == 0 else None for seq in seqs],
            "payload": [b"x" * (seq % 5) for seq in seqs],
        },
        schema=RAW_ROWS,
    )


def backup(
    folder: Path, rows: pa.Table, consumers: dict[str, Any] | None = None, /, **state: int
) -> Path:
    path = folder / "ORDERS.arc"
    counted = message_sizes(rows["subject"], rows["headers"], rows["payload"], "file")
    known = {
        "messages": rows.num_rows,
        "bytes": pc.sum(counted, min_count=0).as_py(),
        "first_seq": rows["seq"][0].as_py() if rows.num_rows else 0,
        "last_seq": rows["seq"][-1].as_py() if rows.num_rows else 0,
    }
    write_backup(path, {**known, **state}, consumers or {}, [rows])
    return path


def is_untouched(opened: OpenedStream) -> bool:
    return not store_of(opened).swaps and store_of(opened).leftovers() == []


def test_messages_keep_sequence_time_headers_and_payload(tmp_path: Path) -> None:
    given = messages(3, 4, 6, 9)
    opened = opened_stream(tmp_path)
    done = import_nats_backup(opened, backup(tmp_path, given))
    kept = store_of(opened).rows()
    assert kept.select(RAW_ROWS.names).cast(RAW_ROWS).equals(given)
    assert done == Imported("ORDERS", 4, pc.sum(kept["size"]).as_py(), 3, 9, already=False)


def test_no_limit_of_the_configuration_drops_or_alters_a_message(tmp_path: Path) -> None:
    opened = opened_stream(
        tmp_path, max_msgs=1, max_msg_size=1, discard="new", max_msgs_per_subject=1
    )
    assert import_nats_backup(opened, backup(tmp_path, messages(1, 2, 3))).messages == 3


NO_TTL = [
    *(
        b"NATS/1.0\r\nNats-TTL: %s\r\n\r\n" % ttl
        for ttl in (b"soon", b"1d", b"0", b"-1", b"5 ", b"00")
    ),
    b"NATS/1.0\r\nnats-ttl: 1\r\n\r\n",
    b"Nats-TTL: 1",
    b"\xff\x00 no header block at all",
    b"NATS/1.0\r\n\r\n",
    b"\r\n",
]


def test_headers_that_say_nothing_of_a_ttl_are_kept_and_have_none(tmp_path: Path) -> None:
    given = messages(*range(1, len(NO_TTL) + 1))
    given = given.set_column(3, "headers", pa.array(NO_TTL, pa.binary()))
    limits: dict[str, Any] = {"allow_msg_ttl": True, "max_age": "100ms"}
    opened = opened_stream(tmp_path, **limits)
    import_nats_backup(opened, backup(tmp_path, given))
    kept = store_of(opened).rows()
    assert kept["headers"].to_pylist() == NO_TTL
    assert kept["deadline_ns"].null_count == len(NO_TTL)


def test_an_imported_ttl_is_neither_raised_nor_refused(tmp_path: Path) -> None:
    given = messages(1, 2)
    blocks = [b"NATS/1.0\r\nNats-TTL: 1\r\n\r\n", b"junk\r\nNats-TTL: 2"]
    given = given.set_column(3, "headers", pa.array(blocks, pa.binary()))
    opened = opened_stream(tmp_path, subject_delete_marker_ttl="10s")
    import_nats_backup(opened, backup(tmp_path, given))
    kept = store_of(opened).rows()
    lives = pc.subtract(kept["deadline_ns"], kept["ts_ns"]).to_pylist()
    assert lives == [1_000_000_000, 2_000_000_000]
    assert kept["headers"].to_pylist() == blocks


def test_segments_roll_as_those_of_appends_do(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path, segment_size=80)
    import_nats_backup(opened, backup(tmp_path, messages(1, 5, 7, 20)))
    assert store_of(opened).rows()["segment"].to_pylist() == [1, 1, 1, 20]


def test_the_last_sequence_is_the_backups(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    assert import_nats_backup(opened, backup(tmp_path, messages(3), last_seq=17)).last_seq == 17
    more = complete_rows(messages(1).drop_columns(["seq"]), "file")
    assert append_rows(opened, [more]).first_seq == 18


def test_a_backup_without_messages_brings_its_last_sequence(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    done = import_nats_backup(opened, backup(tmp_path, messages(), first_seq=42, last_seq=41))
    assert (done.messages, done.first_seq, done.last_seq) == (0, 42, 41)
    assert store_of(opened).snapshot().counters.next_seq == {0: 42}


def test_the_same_file_again_is_a_no_op(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    path = backup(tmp_path, messages(1, 2))
    first = import_nats_backup(opened, path)
    again = import_nats_backup(opened, path.rename(tmp_path / "renamed.arc"))
    assert not first.already
    assert again == Imported("ORDERS", 2, first.bytes, 1, 2, already=True)
    assert len(store_of(opened).swaps) == 1


def test_another_file_is_refused_where_something_is_or_was(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    import_nats_backup(opened, backup(tmp_path, messages(1, 2)))
    other = backup(tmp_path, messages(1, 2, 3), CONSUMER)
    with pytest.raises(RefusedError, match="written to before, up to sequence 2"):
        import_nats_backup(opened, other)
    store = store_of(opened)
    files, known = store.versions[-1]
    store.versions.append((files.slice(0, 0), Counters(known.next_seq, known.open_base)))
    with pytest.raises(RefusedError):
        import_nats_backup(opened, other)
    assert not (Path(opened.root) / DIRECTORY).exists()


def test_consumers_are_kept_for_later(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    import_nats_backup(opened, backup(tmp_path, messages(1), CONSUMER))
    [record] = ConsumerTable(opened.root).live(opened.store.snapshot().counters)
    assert {record.consumer: {"config": record.config, "state": record.state.as_json()}} == CONSUMER


def test_a_consumer_that_cannot_be_read_is_named_and_nothing_is_imported(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    torn = {"billing": {"config": {}, "state": {"delivered": {"consumer_seq": 3}}}}
    with pytest.raises(DamagedError, match="consumer billing cannot be read"):
        import_nats_backup(opened, backup(tmp_path, messages(1), torn))
    assert is_untouched(opened)
    assert not (Path(opened.root) / DIRECTORY).exists()


def test_consumers_of_an_import_that_was_never_committed_belong_to_nothing(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    store_of(opened).before_commit.append(fail)
    with pytest.raises(OSError, match="no space"):
        import_nats_backup(opened, backup(tmp_path, messages(1), CONSUMER))
    table = ConsumerTable(opened.root)
    assert table.read("billing") is not None
    assert table.live(opened.store.snapshot().counters) == []
    other = {"billing": CONSUMER["billing"] | {"config": {"ack_policy": "none"}}}
    import_nats_backup(opened, backup(tmp_path, messages(1), other))
    [record] = table.live(opened.store.snapshot().counters)
    assert record.config == {"ack_policy": "none"}


def fail() -> None:
    raise OSError("no space")


GONE: dict[str, tuple[dict[str, int], list[tuple[str, int, int]], int]] = {
    "the first ones": (
        {"messages": 5, "first_seq": 1, "bytes": 999},
        [("messages", 5, 3), ("first_seq", 1, 3), ("bytes", 999, 157)],
        7,
    ),
    "some between": ({"messages": 4}, [("messages", 4, 3)], 7),
    "the last one, and a later one is there": (
        {"messages": 3, "last_seq": 6, "bytes": 120},
        [("last_seq", 6, 7), ("bytes", 120, 157)],
        7,
    ),
    "some behind the last": ({"last_seq": 9, "messages": 5}, [("messages", 5, 3)], 9),
    "fewer than none": ({"messages": 1}, [("messages", 1, 3)], 7),
}
"""The state document, its differences from 3, 5 and 7, and the last sequence after RESTORE."""


@pytest.mark.parametrize("gone", GONE)
def test_what_went_while_a_backup_was_written_is_told(tmp_path: Path, gone: str) -> None:
    state, told, last_seq = GONE[gone]
    opened = opened_stream(tmp_path)
    path = backup(tmp_path, messages(3, 5, 7), **state)
    done = import_nats_backup(opened, path)
    assert [(one.name, one.stated, one.held) for one in done.differences] == told
    assert (done.messages, done.first_seq, done.last_seq, done.bytes) == (3, 3, last_seq, 157)
    assert store_of(opened).rows()["seq"].to_pylist() == [3, 5, 7]
    assert store_of(opened).snapshot().counters.next_seq == {0: last_seq + 1}
    assert import_nats_backup(opened, path) == replace(done, already=True)


@pytest.mark.parametrize("gone", GONE)
def test_strict_refuses_what_differs(tmp_path: Path, gone: str) -> None:
    state, told, _ = GONE[gone]
    opened = opened_stream(tmp_path)
    name, stated, held = told[0]
    problem = f"{name} is {stated} in state.json and {held} in the archive"
    with pytest.raises(DamagedError, match=problem) as refused:
        import_nats_backup(opened, backup(tmp_path, messages(3, 5, 7), **state), strict=True)
    assert refused.value.exit_code == 6
    assert is_untouched(opened)


def test_strict_takes_what_agrees(tmp_path: Path) -> None:
    path = backup(tmp_path, messages(3, 5, 7))
    done = import_nats_backup(opened_stream(tmp_path), path, strict=True)
    assert (done.messages, done.differences) == (3, ())


def test_everything_may_go_while_a_backup_is_written(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    path = backup(tmp_path, messages(), messages=4, bytes=160, first_seq=2, last_seq=6)
    done = import_nats_backup(opened, path)
    assert (done.messages, done.first_seq, done.last_seq) == (0, 7, 6)
    assert [one.name for one in done.differences] == ["messages", "bytes"]
    assert store_of(opened).snapshot().counters.next_seq == {0: 7}


@pytest.mark.parametrize("wrong", [{"messages": 8}, {"first_seq": 4}, {"first_seq": 0}])
def test_what_no_server_restores_is_not_imported(tmp_path: Path, wrong: dict[str, int]) -> None:
    opened = opened_stream(tmp_path)
    with pytest.raises(DamagedError):
        import_nats_backup(opened, backup(tmp_path, messages(3, 5, 7), **wrong))
    assert is_untouched(opened)


def test_a_backup_of_the_other_storage_is_told_by_its_bytes(tmp_path: Path) -> None:
    opened = configured(opened_stream(tmp_path), storage="memory")
    path = backup(tmp_path, messages(1, 2))
    with pytest.raises(DamagedError, match="storage: file"):
        import_nats_backup(opened, path)
    assert is_untouched(opened)


def test_a_backup_cut_off_is_not_imported(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    path = backup(tmp_path, messages(1, 2, 3))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedError):
        import_nats_backup(opened, path)
    assert is_untouched(opened)


def named(config: dict[str, str], stream_seq: int = 1) -> dict[str, Any]:
    reach = {"consumer_seq": 1, "stream_seq": stream_seq}
    return {
        "config": {"ack_policy": "explicit", **config},
        "state": {"delivered": reach, "ack_floor": reach},
    }


NAMES: dict[str, tuple[dict[str, Any], set[str] | None]] = {
    "durable and name": ({"c": named({"durable_name": "c", "name": "c"})}, {"c"}),
    "its entry's": ({"c": named({})}, {"c"}),
    "its configuration's": ({"": named({"durable_name": "c", "name": "c"})}, {"c"}),
    "another than its entry's": ({"c": named({"durable_name": "d"})}, {"d"}),
    "two of one name": (
        {"c": named({"durable_name": "x"}), "d": named({"durable_name": "x"}, 2)},
        {"x"},
    ),
    "its own": ({"": named({"name": "x"})}, {"x"}),
    "another name": ({"c": named({"name": "x"})}, None),
    "different ones": ({"c": named({"durable_name": "d", "name": "e"})}, None),
    "one with a dot": ({"c": named({"durable_name": "a.b", "name": "a.b"})}, None),
    "one with a slash": ({"a/b": named({})}, None),
}
"""The result of RESTORE for consumers by name (`tests/live/test_backups.py`); None: refused."""


@pytest.mark.parametrize("name", NAMES)
def test_consumers_are_called_what_restore_calls_them(tmp_path: Path, name: str) -> None:
    consumers, names = NAMES[name]
    opened = opened_stream(tmp_path)
    path = backup(tmp_path, messages(1, 2), consumers)
    if names is None:
        with pytest.raises(DamagedError, match=r"consumer (c|a/b) cannot be read"):
            import_nats_backup(opened, path)
        assert is_untouched(opened)
        return
    import_nats_backup(opened, path)
    found = ConsumerTable(opened.root).live(store_of(opened).snapshot().counters)
    assert {one.consumer for one in found} == names
    reaches = [one["state"]["delivered"]["stream_seq"] for one in consumers.values()]
    assert [one.state.delivered.stream_seq for one in found] == [max(reaches)]


def test_a_consumer_without_any_name_is_given_one(tmp_path: Path) -> None:
    opened = opened_stream(tmp_path)
    path = backup(tmp_path, messages(1), {"": named({})})
    import_nats_backup(opened, path)
    assert import_nats_backup(opened, path).already
    (found,) = ConsumerTable(opened.root).live(store_of(opened).snapshot().counters)
    assert re.fullmatch("[0-9a-f]{8}", found.consumer)


@pytest.mark.parametrize(
    ("seqs", "state", "problem"),
    [
        ((3,), {"last_seq": 2**64 - 1}, "last_seq is 18446744073709551615 in state.json"),
        ((3,), {"messages": -1}, "messages is -1 in state.json"),
        ((3,), {"bytes": 2**63}, "bytes is 9223372036854775808 in state.json"),
        ((3, MAX_SEQ + 1), {"messages": 1, "last_seq": 3}, f"it holds sequence {MAX_SEQ + 1}"),
        ((2**63 - 1,), {"first_seq": 3, "last_seq": 3}, f"it holds sequence {2**63 - 1}"),
        ((-1,), {"messages": 1, "first_seq": 3, "last_seq": 3}, f"it holds sequence {2**64 - 1}"),
    ],
)
def test_numbers_beyond_a_tables_are_refused(
    tmp_path: Path, seqs: tuple[int, ...], state: dict[str, int], problem: str
) -> None:
    opened = opened_stream(tmp_path)
    rows = messages(*range(1, len(seqs) + 1))
    given = rows.set_column(0, "seq", pa.array(seqs, pa.int64()))
    with pytest.raises(DamagedError, match=re.escape(problem)):
        import_nats_backup(opened, backup(tmp_path, given, **state))
    assert is_untouched(opened)
