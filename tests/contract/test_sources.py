"""Sources on an object store: listed by its own client, and identified by ETags."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from retention.errors import RefusedError, UsageError
from retention.ingest import table_source
from retention.ingest.table_source import TableSource, ingest
from retention.storage import files, listing
from retention.storage.listing import list_files
from tests.support.list_reader import reading
from tests.support.plain_store import opened_stream, store_of


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_source, "_reading", reading)


def test_objects_come_once_and_a_changed_one_is_refused(bucket: str, tmp_path: Path) -> None:
    opened, source = opened_stream(tmp_path), TableSource(f"{bucket}/lines/", "json")
    with pytest.raises(UsageError, match="there is no such directory"):
        ingest(opened, source)
    for name in ("a b[1].json", "2026/c%20d.json", "_hidden.json"):
        files.replace(f"{bucket}/lines/{name}", b"1\n")
    assert ingest(opened, source).messages == 2
    files.replace(f"{bucket}/lines/a b[1].json", b"1\n")
    assert (
        ingest(opened, TableSource(f"{bucket}/lines".replace("s3://", "s3a://"), "json")).messages
        == 0
    )
    files.replace(f"{bucket}/lines/a b[1].json", b"2\n")
    with pytest.raises(
        RefusedError, match=r"a b\[1\].json changed after it was taken \(2 bytes then, 2 now\)"
    ):
        ingest(opened, source)
    assert (
        ingest(
            opened, TableSource(source.location, "json", skip=frozenset(["a b[1].json"]))
        ).messages
        == 0
    )
    assert ingest(opened, source).messages == 0


def test_both_clients_list_the_same(bucket: str) -> None:
    for name in ("a b[1].json", "x=ü/c%20d.json", "e#f?g.json"):
        files.replace(f"{bucket}/listed/{name}", b"1\n")
    found = {(file.path, file.length) for file in list_files(f"{bucket}/listed")}
    assert found == {(file.path, file.length) for file in listing._by_arrow(f"{bucket}/listed")}
    assert all(file.etag for file in list_files(f"{bucket}/listed"))


def test_a_delta_table_is_followed_there(bucket: str, tmp_path: Path) -> None:
    opened, place = opened_stream(tmp_path), f"{bucket}/table"
    for payload in "ab":
        rows = pa.table({"payload": [payload]})
        write_deltalake(place, rows, mode="append", storage_options=files.storage_options())
        assert ingest(opened, TableSource(place)).messages == 1
    assert ingest(opened, TableSource(place)).messages == 0
    assert store_of(opened).rows()["payload"].to_pylist() == [b"a", b"b"]
