from __future__ import annotations

import base64
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from retention.api.warehouse import Warehouse
from retention.core.message_rows import complete_rows
from retention.engines.select import Engines
from retention.formats.nats.backup import RAW_ROWS
from retention.ingest.import_nats import import_nats_backup
from retention.planners.table import plan_table
from tests.support import nats_oracle
from tests.support.laying import NEVER_BLOCK
from tests.support.nats_oracle import Message, Nats
from tests.support.update_cases import COMPARED, Case, expected, left_in, warehouse_of

pytestmark = pytest.mark.live

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
UNIT = 10 * MINUTE
GUARD = 4 * MINUTE
"""Ages are whole units and age limits half units, so the test has that much time before a message crosses a cutoff."""

STREAMS = int(os.environ.get("RETENTION_LIVE_STREAMS", "25"))
TWICE = max(30, STREAMS // 2)
"""Streams with two updates."""
NUMBERS = ("messages", "bytes", "first_seq", "last_seq")
SOON = (10 + STREAMS // 10) * SECOND
"""The expiry of TTLs: after all restores (a restore drops expired messages), and before the update."""
BLOCKS = (
    b"",
    b"",
    NEVER_BLOCK,
    b"NATS/1.0\r\nX-Trace: abc\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: one\r\nNats-TTL: 3600\r\n\r\n",
    b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
)
UNLIMITED = {"max_msgs": -1, "max_bytes": -1, "max_msgs_per_subject": -1, "max_age": 0}
WITHOUT_TTL = {"allow_msg_ttl": False, "subject_delete_marker_ttl": 0}
EXPIRY = (
    WITHOUT_TTL,
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": 0},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": 100 * SECOND},
    {"allow_msg_ttl": True, "subject_delete_marker_ttl": 7_205 * SECOND + 1},
)


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with nats_oracle.server() as running:
        yield running


def now_ns() -> int:
    return time.time_ns()  # noqa: TID251  (the server has the machine's clock)


def random_messages(chance: random.Random, name: str, now: int) -> list[Message]:
    """Up to 30 messages with gaps between sequences and mostly rising times."""
    age, seq, messages = chance.randint(30, 60), chance.choice([0, 0, 999]), []
    for _ in range(chance.choice([0, 1, 5, 12, 20, 30])):
        seq += chance.choice([1, 1, 1, 2, 5])
        age = max(1, age - chance.choice([0, 1, 2, -4]))
        subject = f"{name}.{chance.choice(['a', 'b', 'é', 'x.y'])}"
        payload = bytes([chance.randrange(256)]) * chance.choice([0, 1, 20, 90])
        dying = b"NATS/1.0\r\nNats-TTL: %d\r\n\r\n" % ((age * UNIT + SOON) // SECOND)
        block = dying if chance.random() < 0.7 else chance.choice(BLOCKS)
        messages.append(Message(seq, subject, now - age * UNIT, block, payload))
    return messages


def random_limits(chance: random.Random, messages: list[Message]) -> dict[str, Any]:
    size = sum(30 + len(m.subject) + len(m.headers) + len(m.payload) for m in messages)
    limits = {
        "max_msgs": chance.randint(1, len(messages) + 2),
        "max_bytes": chance.randint(1, size + 50),
        "max_msgs_per_subject": chance.randint(1, 5),
        "max_age": chance.randint(2, 60) * UNIT + UNIT // 2,
    }
    chosen = chance.sample(sorted(limits), chance.randint(0, 4))
    more: dict[str, Any] = {"discard": chance.choice(["old", "old", "new"])}
    if chance.random() < 0.1:
        more |= {"max_msg_size": 60}
    return UNLIMITED | {name: limits[name] for name in chosen} | more | chance.choice(EXPIRY)


def random_case(chance: random.Random, number: int, now: int) -> Case:
    name = f"LIVE-{number}"
    messages = random_messages(chance, name, now)
    last_seq = (messages[-1].seq if messages else 0) + chance.choice([0, 0, 7])
    storage = "memory" if number % 3 == 0 else "file"
    config = random_limits(chance, messages) | {"storage": storage}
    return Case(name, now, config, last_seq, nats_oracle.raw_rows(messages), {})


def judged_by_server(nats: Nats, case: Case, as_of_ns: int) -> Case:
    """The case with the server's result; its stream is deleted afterwards."""
    config = nats.info(case.id)["config"]
    state = nats.update(config | case.config)["state"]
    held = nats.survivors(case.id)
    nats.delete(case.id)
    kept = [message for message in held if message.seq <= case.last_seq]
    rows = nats_oracle.raw_rows(kept).to_pylist()
    assert rows == [row for row in case.rows.to_pylist() if row["seq"] in {m.seq for m in kept}]
    markers = [
        {"seq": m.seq, "subject": m.subject, "header_b64": base64.b64encode(m.headers)}
        for m in held[len(kept) :]
    ]
    numbers = {name: state[name] for name in NUMBERS}
    expect = {"kept": [m.seq for m in kept], "markers": markers, **numbers}
    return replace(case, as_of_ns=as_of_ns, expect=expect)


def test_random_streams_end_as_a_running_server_ends_them(nats: Nats, tmp_path: Path) -> None:
    chance = random.Random(215_1)
    begun = now_ns()
    cases = [random_case(chance, number, begun) for number in range(STREAMS)]
    for case in cases:
        unlimited = UNLIMITED | {"storage": case.config["storage"]}
        nats.restore(case.id, unlimited, case.rows, case.last_seq)
        nats.snapshot(case.id, tmp_path / case.id)
    assert now_ns() < begun + SOON, "too slow: TTLs ended before everything was restored"
    time.sleep((begun + SOON + SECOND - now_ns()) / SECOND)
    as_of_ns = now_ns()
    judged = [judged_by_server(nats, case, as_of_ns) for case in cases]
    assert now_ns() - begun < GUARD, "too slow for the guard band around the age limits"

    for format_, mine in (("delta", judged[::2]), ("parquet", judged[1::2])):
        warehouse = warehouse_of(tmp_path / format_, mine, format_, "local")
        for case in mine:
            import_nats_backup(warehouse.stream(case.id).opened, tmp_path / case.id)
        outcomes = warehouse.apply(as_of=as_of_ns)
        assert [outcome.sentence for outcome in outcomes if outcome.error] == []
        for case in mine:
            assert left_in(warehouse, case.id) == expected(case), case.config
    removed = [case.rows.num_rows - case.expect["messages"] for case in judged]
    assert sum(count > 0 for count in removed) > STREAMS // 2
    assert sum(case.expect["messages"] > 0 for case in judged) > STREAMS // 2
    assert sum(len(case.expect["markers"]) for case in judged) > STREAMS // 4


def again(chance: random.Random, case: Case) -> Case:
    """The same stream with other limits; settings that a server does not allow to be disabled remain enabled."""
    limits = {"max_msg_size": -1} | random_limits(chance, nats_oracle.messages_of(case.rows))
    if case.config["allow_msg_ttl"] or case.config["subject_delete_marker_ttl"]:
        limits |= {name: case.config[name] for name in WITHOUT_TTL}
    return replace(case, config=limits | {"storage": case.config["storage"]})


def held_by_server(nats: Nats, case: Case) -> dict[str, Any]:
    """The content of a stream right after an update, without times, because markers have the server's times."""
    state = nats.update(nats.info(case.id)["config"] | case.config)["state"]
    held = [(m.seq, m.subject, m.headers, m.payload) for m in nats.survivors(case.id)]
    return {name: state[name] for name in NUMBERS} | {"rows": held}


def held_by_us(warehouse: Warehouse, name: str) -> dict[str, Any]:
    """The content of our stream."""
    left = left_in(warehouse, name)
    held = [
        (row["seq"], row["subject"], row["headers"] or b"", row["payload"]) for row in left["rows"]
    ]
    return left | {"rows": held}


def refused_by_us(warehouse: Warehouse, name: str, as_of_ns: int) -> bool:
    """Whether a pass cannot store a marker; a server retries only after two seconds or more."""
    with Engines("local") as engines:
        opened = warehouse.stream(name).opened
        return bool(plan_table(opened, as_of_ns, engines).planning.refused)


@pytest.mark.thorough
@pytest.mark.thorough
def test_a_second_pass_ends_streams_as_a_second_update_of_the_server_does(
    nats: Nats, tmp_path: Path
) -> None:
    """Markers of the first pass are messages for the second: they are counted, trimmed and evicted."""
    chance = random.Random(215_2)
    begun = now_ns()
    cases = [random_case(chance, number, begun) for number in range(TWICE)]
    for case in cases:
        unlimited = UNLIMITED | {"storage": case.config["storage"]}
        nats.restore(case.id, unlimited, case.rows, case.last_seq)
        nats.snapshot(case.id, tmp_path / case.id)
    time.sleep(max(0, begun + SOON + SECOND - now_ns()) / SECOND)
    first_ns = now_ns()
    seconds = [again(chance, case) for case in cases]
    told = {}
    for case, second in zip(cases, seconds, strict=True):
        told[case.id] = [held_by_server(nats, one) for one in (case, second)]
        nats.delete(case.id)
    assert now_ns() - begun < GUARD, "too slow for the guard band around the age limits"
    compared = 0
    for format_, at in (("delta", 0), ("parquet", 1)):
        mine = [replace(case, as_of_ns=first_ns) for case in cases[at::2]]
        warehouse = warehouse_of(tmp_path / format_, mine, format_, "local")
        for case in mine:
            import_nats_backup(warehouse.stream(case.id).opened, tmp_path / case.id)
        settled = [case for case in mine if not refused_by_us(warehouse, case.id, first_ns)]
        assert_as_told(warehouse, mine, first_ns, [told[case.id][0] for case in mine])
        tighter = [replace(one, as_of_ns=first_ns + SECOND) for one in seconds[at::2]]
        warehouse = warehouse_of(tmp_path / format_, tighter, format_, "local")
        second_told = [told[case.id][1] for case in settled]
        assert_as_told(warehouse, settled, first_ns + SECOND, second_told)
        compared += sum(told[case.id][0] != told[case.id][1] for case in settled)
    assert compared > TWICE // 8


def assert_as_told(
    warehouse: Warehouse, cases: Sequence[Case], as_of_ns: int, told: Sequence[dict[str, Any]]
) -> None:
    """Compare our streams after a pass with the server's."""
    outcomes = warehouse.apply([case.id for case in cases], as_of_ns)
    assert [outcome.sentence for outcome in outcomes if outcome.error] == []
    for case, theirs in zip(cases, told, strict=True):
        assert held_by_us(warehouse, case.id) == theirs, warehouse.config.stream(case.id)


def large_stream(name: str, count: int) -> pa.Table:
    """Compressible JSON payloads, a quarter of them with headers, at every other sequence."""
    numbers = np.arange(count)
    note = "the quick brown fox, again and again"
    return pa.table(
        {
            "seq": numbers * 2 + 5,
            "subject": [f"{name}.{number % 100}" for number in numbers],
            "ts_ns": now_ns() - MINUTE + numbers,
            "headers": pa.array([None, None, None, BLOCKS[4]] * (count // 4), pa.binary()),
            "payload": [f'{{"id": {number}, "note": "{note}"}}'.encode() for number in numbers],
        }
    ).cast(RAW_ROWS)


@pytest.mark.thorough
def test_a_large_compressible_snapshot_is_imported_as_the_server_holds_it(
    nats: Nats, tmp_path: Path
) -> None:
    rows = large_stream("LARGE", 200_000)
    state = nats.restore("LARGE", {}, rows)["state"]
    nats.snapshot("LARGE", tmp_path / "LARGE")
    assert (tmp_path / "LARGE").stat().st_size < rows["payload"].nbytes / 2
    for format_ in ("delta", "parquet"):
        case = Case("LARGE", now_ns(), {**UNLIMITED, **WITHOUT_TTL}, 0, rows, {})
        stream = warehouse_of(tmp_path / format_, [case], format_, "local").stream("LARGE")
        import_nats_backup(stream.opened, tmp_path / "LARGE")
        held = pa.concat_tables(stream.messages())
        assert held.select(COMPARED).cast(RAW_ROWS).equals(rows)
        assert held["size"].equals(complete_rows(rows, "file")["size"])
        ours = stream.state(as_of=0)
        for number in NUMBERS:
            assert getattr(ours, number) == state[number]
