"""Reads of a bucket by the broker's own client and by this engine are equal."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nats.js import api

from retention.api.warehouse import open_warehouse
from retention.inspect.state import BucketState
from tests.support import nats_oracle
from tests.support.nats_oracle import Nats
from tests.support.sandboxes import NOW, configured

pytestmark = pytest.mark.live

SAID = {None: "put", "PUT": "put", "DEL": "delete", "PURGE": "purge"}
EXPIRED_WITHIN = 10.0

Watched = dict[str, tuple[int, str, bytes]]
"""Key → revision, operation and value."""


async def filled(client: Any) -> Watched:
    """Create a bucket with the client, and watch it."""
    stream = client.jetstream()
    bucket = await stream.create_key_value(api.KeyValueConfig("B", history=3))
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c.d", b"4"), ("e", b"5")):
        await bucket.put(key, value)
    await bucket.delete("b")
    await bucket.purge("c.d")
    await bucket.delete("e")
    await bucket.put("e", b"6")
    watched = await bucket.watchall()
    found = {}
    while entry := await watched.updates(timeout=EXPIRED_WITHIN):
        value = entry.value or b""
        found[f"$KV.B.{entry.key}"] = (entry.revision, SAID[entry.operation], value)
    await watched.stop()
    return found


async def expired(nats: Nats) -> None:
    """An expired value leaves the server's own marker."""
    while True:
        request = {"last_by_subj": "$KV.M.a"}
        stored = (await nats._api("STREAM.MSG.GET.KV_M", request))["message"]
        if "hdrs" in stored and "data" not in stored:
            return
        await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def backups(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watched]:
    """Backups of two buckets, and the client's watch events of the first."""
    folder = tmp_path_factory.mktemp("backups")
    with nats_oracle.server() as nats:
        watched = nats._run(filled(nats._client))
        markers = {"allow_msg_ttl": True, "subject_delete_marker_ttl": 3_600_000_000_000}
        config = {"name": "KV_M", "subjects": ["$KV.M.>"], "max_msgs_per_subject": 1, **markers}
        nats.request("STREAM.CREATE.KV_M", config)
        nats.publish_one("$KV.M.b", b"stays")
        nats.publish_one("$KV.M.a", b"goes", {"Nats-TTL": "1"})
        nats._run(asyncio.wait_for(expired(nats), EXPIRED_WITHIN))
        for name in ("KV_B", "KV_M"):
            nats.snapshot(name, folder / name)
    return folder, watched


@pytest.mark.parametrize("table_format", ["delta", "parquet"])
def test_a_bucket_is_read_as_its_client_reads_it(
    tmp_path: Path, backups: tuple[Path, Watched], table_format: str
) -> None:
    folder, watched = backups
    lake = open_warehouse(configured(tmp_path, format=table_format), clock=lambda: NOW)
    for name in ("KV_B", "KV_M"):
        lake.new_stream(name).import_nats_backup(folder / name)
    rows = lake.stream("KV_B").latest().to_arrow().to_pylist()
    found = {row["subject"]: (row["seq"], row["operation"], row["payload"]) for row in rows}
    assert found == watched
    assert set(SAID.values()) == {operation for _, operation, _ in watched.values()}
    assert lake.stream("KV_B").state().bucket == BucketState("B", keys=4, live_keys=2, deletions=2)
    last = lake.stream("KV_M").latest().to_arrow()
    assert last["operation"].to_pylist() == ["put", "purge"]
    assert lake.stream("KV_M").state().bucket == BucketState("M", keys=2, live_keys=1, deletions=1)
