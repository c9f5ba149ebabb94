"""Syncs of a real Iggy server (`IGGY_SERVER` names its program; CI has none and replays its recorded answers)."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.compute as pc
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.errors import RefusedError, RetentionError, StorageError, UsageError
from retention.iggy.connection import Connection
from retention.iggy.settings import IggySettings, iggy_settings
from retention.iggy.topic import RemoteTopic
from retention.ingest.sync.iggy.run import run_topic_sync
from retention.ingest.sync.iggy.session import TopicSyncOptions
from retention.ingest.sync.options import SyncBounds

pytest.importorskip("apache_iggy")
from apache_iggy import Permissions, SendMessage, StreamPermissions, TopicPermissions

from tests.support.iggy_server import PASSWORD, PROGRAM, STREAM, USER, IggyServer

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not PROGRAM, reason="IGGY_SERVER names no program of a server"),
]

TOPIC = "clicks"
MIB = 1 << 20
KILLS = int(os.environ.get("RETENTION_IGGY_KILLS", "3"))
HANGS_S = 1_800
"""The wait after which a sync counts as hanging, seconds; a busy machine gives it little of its time."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[IggyServer]:
    running = IggyServer(tmp_path / "server")
    running.start()
    running.create_stream()
    running.create_topic(TOPIC, 2, segment_size=MIB)
    yield running
    running.stop()


@pytest.fixture
def warehouse(tmp_path: Path, server: IggyServer, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setenv("IGGY_USERNAME", USER)
    monkeypatch.setenv("IGGY_PASSWORD", PASSWORD)
    (tmp_path / "retention.yaml").write_text(
        f"topics: [{{name: {TOPIC}, stream: {STREAM}, partitions: 2, segment_size: 1MiB,"
        f' sync: {{server: "{server.address}"}}}}]',
        encoding="utf-8",
    )
    return open_warehouse(tmp_path / "retention.yaml", engine="local")


def batch(size: int, count: int, seed: int) -> list[SendMessage]:
    chance = random.Random(seed)
    return [
        SendMessage(chance.randbytes(size), {"n": n, "seed": str(seed)} if n % 2 else None)
        for n in range(count)
    ]


def digest_here(warehouse: Warehouse) -> dict[int, tuple[int, str]]:
    """Partition → count and digest of offsets, times, ids, headers and payloads."""
    digests = {0: (0, hashlib.sha256()), 1: (0, hashlib.sha256())}
    for table in warehouse.topic(TOPIC).messages():
        for row in table.to_pylist():
            count, digest = digests[row["partition"]]
            names = ("seq", "ts_ns", "origin_ts_ns", "msg_id", "headers", "payload")
            digest.update(repr([row[name] for name in names]).encode())
            digests[row["partition"]] = count + 1, digest
    return {number: (count, digest.hexdigest()) for number, (count, digest) in digests.items()}


def digest_there(server: IggyServer) -> dict[int, tuple[int, str]]:
    digests = {}
    with Connection(IggySettings(server.address, USER, PASSWORD)) as connection:
        remote = RemoteTopic(connection, STREAM, TOPIC)
        for partition in remote.info().partitions:
            digest, next_offset, count = hashlib.sha256(), 0, 0
            while (rows := remote.poll(partition.number, next_offset, 500).rows).num_rows:
                names = ("seq", "ts_ns", "origin_ts_ns", "msg_id", "headers", "payload")
                for row in rows.to_pylist():
                    digest.update(repr([row[name] for name in names]).encode())
                count, next_offset = count + rows.num_rows, rows["seq"][-1].as_py() + 1
            digests[partition.number] = count, digest.hexdigest()
    return digests


def test_a_copy_equals_the_server_and_an_import_of_its_logs(
    server: IggyServer, warehouse: Warehouse, tmp_path: Path
) -> None:
    for seed in range(40):
        server.send(TOPIC, seed % 2, batch(random.Random(seed).choice((1, 100, 9_000)), 50, seed))
        if seed == 20:
            assert warehouse.topic(TOPIC).sync(TopicSyncOptions(batch_messages=77)).behind == 0
    done = warehouse.topic(TOPIC).sync(TopicSyncOptions(batch_messages=333))
    assert done.missed_count == 0
    assert digest_here(warehouse) == digest_there(server)
    server.stop()
    (tmp_path / "import.yaml").write_text(
        f"topics: [{{name: imported, partitions: 2, segment_size: 1MiB}}]\nwarehouse: {tmp_path}",
        encoding="utf-8",
    )
    imported = open_warehouse(tmp_path / "import.yaml", engine="local").topic("imported")
    [directory] = (tmp_path / "server" / "data" / "streams").glob("*/topics/*")
    imported.import_iggy_log(directory)
    ours, theirs = (
        {
            (row["partition"], row["segment"], row["bytes"])
            for row in topic.opened.store.inventory(topic.opened.store.snapshot())
            .files.group_by(["partition", "segment"])
            .aggregate([("bytes", "sum")])
            .rename_columns(["partition", "segment", "bytes"])
            .to_pylist()
        }
        for topic in (warehouse.topic(TOPIC), imported)
    )
    assert ours == theirs


def test_a_killed_sync_and_a_stopped_server_lose_and_double_nothing(
    server: IggyServer, warehouse: Warehouse, tmp_path: Path
) -> None:
    chance = random.Random(7)
    program = str(Path(sys.executable).with_name("retention"))
    configured = ["--config", str(tmp_path / "retention.yaml")]
    command = [program, *configured, "sync", "iggy", TOPIC, "--batch-messages", "150"]
    sent = killed = 0
    began = time.monotonic()
    with (tmp_path / "out.log").open("wb") as out:
        for kill in range(KILLS):
            print(f"kill {kill + 1} of {KILLS} after {time.monotonic() - began:.0f} s", flush=True)
            for _ in range(8):
                server.send(TOPIC, sent % 2, batch(300, 100, sent))
                sent += 1
            process = subprocess.Popen(command, stdout=out, stderr=out)
            if kill % 3 == 2:
                time.sleep(chance.uniform(0.5, 2))
                server.stop(signal.SIGTERM)
                time.sleep(0.3)
                server.start()
                # A sync that begins while the server is away ends at once; one that has begun waits.
                if process.wait(HANGS_S):
                    assert b"start the server" in (tmp_path / "out.log").read_bytes()
            else:
                killed += _kill_at_work(process, warehouse, chance)
    print(f"{killed} syncs were killed before their end", flush=True)
    warehouse.topic(TOPIC).sync()
    here = digest_here(warehouse)
    assert here == digest_there(server)
    assert sum(count for count, _ in here.values()) == 100 * sent


def _kill_at_work(
    process: subprocess.Popen[bytes], warehouse: Warehouse, chance: random.Random
) -> bool:
    """Kill a sync a moment after its next commit; returns whether it had not ended by then."""
    store = warehouse.topic(TOPIC).opened.store
    before = store.snapshot().version if store.exists() else -1
    while process.poll() is None and (not store.exists() or store.snapshot().version <= before):
        time.sleep(0.01)
    time.sleep(chance.uniform(0, 0.3))
    process.kill()
    return process.wait(HANGS_S) < 0


def test_messages_that_a_killed_server_lost_stay_here_and_nothing_is_put_in_their_place(
    server: IggyServer, warehouse: Warehouse
) -> None:
    server.send(TOPIC, 0, batch(10, 20, 1))
    assert warehouse.topic(TOPIC).sync().messages == 20
    before = digest_here(warehouse)
    server.stop(signal.SIGKILL)
    server.start()
    with Connection(IggySettings(server.address, USER, PASSWORD)) as connection:
        kept = RemoteTopic(connection, STREAM, TOPIC).info().partitions[0].end
    for count, reason in ((0, "lost its newest messages"), (30, "is not the one that was copied")):
        server.send(TOPIC, 0, *[batch(10, count, 2)] * bool(count))
        if kept == 20:
            assert warehouse.topic(TOPIC).sync().behind == 0
            continue
        with pytest.raises(RefusedError, match=reason):
            warehouse.topic(TOPIC).sync()
        assert digest_here(warehouse) == before


def test_what_users_may_do_is_told_and_no_secret_is_shown(
    server: IggyServer, warehouse: Warehouse, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    server.send(TOPIC, 0, batch(10, 5, 1))
    rights = {
        "none": None,
        "poll": TopicPermissions(poll_messages=True),
        "read": TopicPermissions(read_topic=True),
    }
    for name, right in rights.items():
        permissions = right and Permissions(streams={0: StreamPermissions(topics={0: right})})
        server.create_user(name, permissions)
    where = f"@{server.address}"
    secret = PASSWORD.replace(" ", "%20")
    for user in ("none", "poll"):
        with pytest.raises(
            RefusedError, match="Unauthorized, when it was asked to read the topic"
        ) as refused:
            warehouse.topic(TOPIC).sync(TopicSyncOptions(f"iggy://{user}:{secret}{where}"))
        assert PASSWORD not in str(refused.value)
    read = TopicSyncOptions(f"iggy://read:{secret}{where}", with_consumers=True, with_config=True)
    assert warehouse.topic(TOPIC).sync(read).messages == 5
    for wrong in ("iggy://read:wrong", "iggy://iggypat-none"):
        with pytest.raises(RefusedError, match="it does not admit") as refused:
            warehouse.topic(TOPIC).sync(TopicSyncOptions(wrong + where))
        assert wrong.rpartition(":")[2].strip("/") not in str(refused.value)
    token = server.token("sync")
    assert warehouse.topic(TOPIC).sync(TopicSyncOptions(f"iggy://{token}{where}")).messages == 0
    shown = "".join(capfd.readouterr())
    stored = b"".join(
        path.read_bytes() for path in (tmp_path / "streams").rglob("*") if path.is_file()
    )
    for text in (PASSWORD, secret, token):
        assert text not in shown
        assert text.encode() not in stored


def test_a_server_with_tls_is_reached_with_its_certificate_only(tmp_path: Path) -> None:
    files = certificate(tmp_path)
    server = IggyServer(
        tmp_path / "server",
        {
            "IGGY_TCP_TLS_ENABLED": "true",
            "IGGY_TCP_TLS_SELF_SIGNED": "false",
            "IGGY_TCP_TLS_CERT_FILE": str(files["cert"]),
            "IGGY_TCP_TLS_KEY_FILE": str(files["key"]),
        },
    )
    server.start()
    try:
        place, secret = server.address, PASSWORD.replace(" ", "%20")
        given = f"iggy://{USER}:{secret}@{place}"
        tls = f"?tls=true&tls_domain=localhost&tls_ca_file={files['cert']}"
        with Connection(iggy_settings(given + tls)) as connection, pytest.raises(UsageError):
            RemoteTopic(connection, "none", "none").info()
        for wrong in ("", "?tls=true&tls_domain=localhost"):
            with pytest.raises(RetentionError, match=r"TLS|tls") as refused:
                Connection(iggy_settings(given + wrong)).__enter__()
            assert PASSWORD not in str(refused.value)
    finally:
        server.stop()


def test_a_server_that_is_away_is_told(server: IggyServer, warehouse: Warehouse) -> None:
    server.stop()
    with pytest.raises(StorageError, match=f"Iggy server {server.address}: .*start the server"):
        warehouse.topic(TOPIC).sync()


def test_a_server_that_stops_in_the_middle_is_told_and_the_next_sync_goes_on(
    server: IggyServer, warehouse: Warehouse
) -> None:
    server.send(TOPIC, 0, batch(10, 20, 1))

    class Stopping(Connection):
        left = 4
        """The topic, a poll, the topic before its commit, and the next poll are answered."""

        def request(self, code: int, body: bytes) -> bytes:
            answer = super().request(code, body)
            self.left -= 1
            if not self.left:
                server.signal(signal.SIGSTOP)
            return answer

    settings = IggySettings(server.address, USER, PASSWORD)
    opened = warehouse.topic(TOPIC).opened
    with (
        Stopping(settings, patience_s=0, answered_within_s=2) as connection,
        pytest.raises(StorageError, match=r"no answer within 2 seconds.*\(5 messages were copied"),
    ):
        run_topic_sync(opened, RemoteTopic(connection, STREAM, TOPIC), SyncBounds(batch_messages=5))
    server.signal(signal.SIGCONT)
    assert sum(count for count, _ in digest_here(warehouse).values()) == 5
    assert warehouse.topic(TOPIC).sync().messages == 15
    assert digest_here(warehouse) == digest_there(server)


def test_a_segment_of_unread_messages_stays_for_the_group_that_reads_there(
    server: IggyServer, warehouse: Warehouse
) -> None:
    for seed in range(30):
        server.send(TOPIC, 0, batch(100_000, 1, seed))
    server.store_offset(TOPIC, 0, 1, "worker", 12)
    done = warehouse.topic(TOPIC).sync(TopicSyncOptions(consumers=("worker",)))
    assert done.messages == 30
    plan = warehouse.topic(TOPIC).delete_segments(0, 2)
    assert plan.plan.removed_messages == 11
    plan.apply()
    rows = list(warehouse.topic(TOPIC).messages())
    assert min(pc.min(table["seq"]).as_py() for table in rows) == 11


def certificate(directory: Path) -> dict[str, Path]:
    """A self-signed certificate for localhost, and its key."""
    files = {"cert": directory / "cert.pem", "key": directory / "key.pem"}
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-keyout", str(files["key"]), "-out", str(files["cert"])),
        ],
        check=True,
        capture_output=True,
    )
    return files
