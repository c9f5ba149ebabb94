from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from retention.core import headers
from retention.core.message_rows import complete_rows
from retention.formats.nats.backup import read_backup
from tests.retention.ingest.test_import_nats import NAMES
from tests.support import nats_oracle
from tests.support.nats_oracle import Message, Nats, ServerError

pytestmark = pytest.mark.live

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with nats_oracle.server() as running:
        yield running


def snapshot_of(nats: Nats, name: str, directory: Path) -> pa.Table:
    nats.snapshot(name, directory / name)
    batches = list(read_backup(directory / name).batches())
    return pa.concat_tables(batches) if batches else nats_oracle.raw_rows([])


@pytest.mark.parametrize("storage", ["file", "memory"])
def test_a_written_backup_survives_the_server_unchanged(
    nats: Nats, tmp_path: Path, storage: str
) -> None:
    name = f"RT_{storage}"
    block = headers.build([("A", "b"), ("Nats-TTL", "never"), ("Nats-Msg-Id", "é")])
    stored = [
        Message(3, f"{name}.a", START + 2, block, b"x" * 300_000),
        Message(4, f"{name}.é", START + 1, b"", b""),
        Message(900, f"{name}.a", START, b"", bytes(range(256)) * 4_000),
    ]
    consumer = {
        "config": {"durable_name": "c", "name": "c", "ack_policy": "explicit"},
        "state": {
            "delivered": {"consumer_seq": 2, "stream_seq": 4},
            "ack_floor": {"consumer_seq": 1, "stream_seq": 3},
            "pending": {"4": {"Sequence": 2, "Timestamp": START}},
        },
    }
    config = {"storage": storage}
    state = nats.restore(name, config, stored, last_seq=1_000, consumers={"c": consumer})["state"]
    rows = nats_oracle.raw_rows(stored)
    assert state["bytes"] == pc.sum(complete_rows(rows, storage)["size"]).as_py()  # type: ignore[arg-type]
    assert (state["first_seq"], state["last_seq"]) == (3, 1_000)
    assert nats.survivors(name) == stored
    assert snapshot_of(nats, name, tmp_path).equals(rows)
    backup = read_backup(tmp_path / name)
    assert backup.consumers["c"]["state"]["ack_floor"] == {"consumer_seq": 1, "stream_seq": 3}
    assert list(backup.consumers["c"]["state"]["pending"]) == ["4"]


def test_the_pages_client_backs_a_stream_up(nats: Nats, tmp_path: Path) -> None:
    nats.request("STREAM.CREATE.PAGE", {"name": "PAGE", "subjects": ["PAGE.>"]})
    payloads = [bytes([number % 256]) * 1_000 + os.urandom(1_000) for number in range(500)]
    nats.publish(("PAGE.a", payload, None) for payload in payloads)
    page = Path(__file__).parents[2] / "docs/semantics/publish-and-import.md"
    [client] = re.findall(r"```python\n(import asyncio[^`]*)```", page.read_text())
    (tmp_path / "backup.py").write_text(client)
    archive = tmp_path / "PAGE.arc"
    command = [sys.executable, str(tmp_path / "backup.py"), nats.url, "PAGE", str(archive)]
    subprocess.run(command, check=True)
    rows = pa.concat_tables(read_backup(archive).batches())
    assert rows["payload"].to_pylist() == payloads
    command[3] = "NONE"
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (refused.returncode, refused.stderr.strip()) == (1, "stream not found")


def test_an_empty_stream_with_a_past_survives_the_server(nats: Nats, tmp_path: Path) -> None:
    nats.restore("EMPTY", {}, [], last_seq=41)
    assert snapshot_of(nats, "EMPTY", tmp_path).num_rows == 0
    assert read_backup(tmp_path / "EMPTY").state["last_seq"] == 41


def test_a_large_live_stream_is_read_as_published(nats: Nats, tmp_path: Path) -> None:
    def payload(number: int) -> bytes:
        note = "the quick brown fox jumps over the lazy dog " * (number % 3)
        return (
            f'{{"id": {number}, "customer": "customer {number % 977}", "note": "{note}"}}'.encode()
        )

    count = 200_000
    subjects = [f"BIG.{number % 100}" for number in range(count)]
    payloads = [payload(number) for number in range(count)]
    ids = [{"Nats-Msg-Id": str(number)} if number % 4 == 0 else None for number in range(count)]
    nats.request("STREAM.CREATE.BIG", {"name": "BIG", "subjects": ["BIG.>"]})
    nats.publish(zip(subjects, payloads, ids, strict=True))
    read = snapshot_of(nats, "BIG", tmp_path)
    assert (tmp_path / "BIG").stat().st_size < pc.sum(pc.binary_length(read["payload"])).as_py() / 2
    assert read["seq"].to_pylist() == list(range(1, count + 1))
    assert read["subject"].to_pylist() == subjects
    assert read["payload"].to_pylist() == payloads
    found = headers.msg_ids(read["headers"]).to_pylist()
    assert found == [given and given["Nats-Msg-Id"] for given in ids]
    times = read["ts_ns"].to_numpy()
    assert (times[1:] >= times[:-1]).all()
    assert times[0] > START


@pytest.mark.parametrize("value", ["5", "1.9s", "1h30m", "00", "20000000.999999999s", "7000000000"])
def test_the_server_takes_the_ttls_that_are_taken_here(nats: Nats, value: str) -> None:
    ensure_ttl_stream(nats)
    assert headers.parse_ttl(value) >= 0
    assert "error" not in nats.publish_one("TTL.a", b"", {"Nats-TTL": value})


@pytest.mark.parametrize(
    "value", ["0", "1d", "+1", "0.5s", "2562048h", "9223372036854775808", "1_000"]
)
def test_the_server_refuses_the_ttls_that_are_refused_here(nats: Nats, value: str) -> None:
    ensure_ttl_stream(nats)
    with pytest.raises(ValueError, match="not a TTL"):
        headers.parse_ttl(value)
    answer = nats.publish_one("TTL.a", b"", {"Nats-TTL": value})
    assert answer["error"]["err_code"] == 10165


def ensure_ttl_stream(nats: Nats) -> None:
    nats.request("STREAM.CREATE.TTL", {"name": "TTL", "subjects": ["TTL.>"], "allow_msg_ttl": True})


def test_an_update_removes_from_a_restored_stream(nats: Nats) -> None:
    stored = [Message(seq, f"UP.{seq % 2}", START + seq) for seq in (2, 3, 5, 8, 9)]
    config = nats.restore("UP", {}, stored)["config"]
    assert nats.update({**config, "max_msgs_per_subject": 1})["state"]["messages"] == 2
    assert nats.survivors("UP") == stored[3:]
    nats.delete("UP")
    with pytest.raises(ServerError) as refused:
        nats.info("UP")
    assert refused.value.code == 10059


@pytest.mark.parametrize("name", NAMES)
def test_restore_calls_consumers_so(nats: Nats, name: str) -> None:
    consumers, names = NAMES[name]
    stream = f"NAMES_{list(NAMES).index(name)}"
    stored = [Message(seq, f"{stream}.a", START, b"", b"") for seq in (1, 2)]
    if names is None:
        with pytest.raises(ServerError, match="failed to add consumer"):
            nats.restore(stream, {}, stored, consumers=consumers)
        return
    nats.restore(stream, {}, stored, consumers=consumers)
    assert {*nats.request(f"CONSUMER.NAMES.{stream}", {})["consumers"]} == names
    (called,) = names
    reaches = [one["state"]["delivered"]["stream_seq"] for one in consumers.values()]
    info = nats.request(f"CONSUMER.INFO.{stream}.{called}", {})
    assert info["delivered"]["stream_seq"] == max(reaches)


def test_restore_makes_a_name_up_where_there_is_none(nats: Nats) -> None:
    stored = [Message(1, "NAMELESS.a", START, b"", b"")]
    consumer = next(iter(NAMES["its entry's"][0].values()))
    nats.restore("NAMELESS", {}, stored, consumers={"": consumer})
    (called,) = nats.request("CONSUMER.NAMES.NAMELESS", {})["consumers"]
    assert len(called) == 8
