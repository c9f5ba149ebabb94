"""Syncs on an object store: messages are copied once, in the same commit as the position."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from retention.api.warehouse import open_warehouse
from retention.errors import BusyError
from retention.ingest.sync.session import SyncOptions
from retention.storage import files
from retention.stores.lease import lease
from tests.support.nats_oracle import Nats, server
from tests.support.sandboxes import NOW

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def nats() -> Iterator[Nats]:
    with server() as started:
        started.request("STREAM.CREATE.S", {"name": "S", "subjects": ["s.>"]})
        yield started


@pytest.mark.thorough
def test_a_copy_on_an_object_store_is_in_step(nats: Nats, bucket: str) -> None:
    streams = [{"name": "S", "sync": {"server": nats.url}}]
    files.replace(f"{bucket}/retention.yaml", json.dumps({"streams": streams}).encode())
    copy = open_warehouse(bucket, engine="local", clock=lambda: NOW).new_stream("S")
    for first in (0, 7):
        nats.publish([(f"s.{at}", b"%d" % at, {"A": "b"}) for at in range(first, first + 7)])
        done = copy.sync(SyncOptions(batch_messages=3, with_config=True, with_consumers=True))
        assert (done.messages, done.commits) == (7, 3)
    rows = pa.concat_tables(copy.messages())
    assert rows["seq"].to_pylist() == list(range(1, 15))
    assert rows["payload"].to_pylist() == [b"%d" % at for at in range(14)]
    with lease(copy.opened.root, "sync", lambda: NOW), pytest.raises(BusyError):
        copy.sync()
