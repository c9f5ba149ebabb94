"""Legal holds and erasures on an object store: what was erased is in no object of the bucket."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from retention.api.warehouse import Warehouse, open_warehouse
from retention.doctor.place import check_versions
from retention.errors import RefusedError
from retention.storage import files
from retention.storage.bucket_versions import bucket_versions
from tests.erasure.test_erase import EVE, TOKENS
from tests.support.strangers_search import hiding_places


def copied(bucket: str, folder: Path) -> str:
    """A copy of every object of a bucket, for a stranger's search."""
    for path in files.walk(bucket):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(files.read_bytes(f"{bucket}/{path}") or b"")
    return str(folder)


def test_what_was_erased_is_in_no_object(bucket: str, tmp_path: Path) -> None:
    place = f"{bucket}/lake"
    config = {"streams": [{"name": "ORDERS", "subjects": ["orders.>"]}]}
    files.replace(f"{place}/retention.yaml", json.dumps(config).encode())
    warehouse = open_warehouse(place, engine="local")
    stream = warehouse.new_stream("ORDERS")
    lines = [
        {"subject": EVE, "data": "payload-8c1e5a7733d0"},
        {"subject": "orders.bob", "data": "another payload"},
    ]
    for _ in range(3):
        stream.publish(json.dumps(line).encode() for line in lines)
    stream.purge(EVE, keep=2).apply()
    hold = warehouse.hold("ORDERS", subject=EVE, to_seq=3, reason="case 41", owner="legal")
    with pytest.raises(RefusedError, match=hold.id):
        stream.erase(EVE, reason="request 7")
    warehouse.release_hold(hold.id, reason="closed")
    assert hiding_places(copied(bucket, tmp_path / "before"), TOKENS)
    report = stream.erase(EVE, reason="request 7").apply()
    assert report.is_done, report.traces
    assert hiding_places(copied(bucket, tmp_path / "after"), TOKENS) == []
    assert [row["seq"] for rows in stream.messages() for row in rows.to_pylist()] == [2, 4, 6]
    assert stream.verify().damages == ()


def client() -> Any:
    """A client of the object store, as its owner has one."""
    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])


@pytest.fixture
def versioned(server: dict[str, str]) -> str:
    """A bucket with versioning."""
    del server
    name = f"versioned-{uuid.uuid4().hex[:8]}"
    client().create_bucket(Bucket=name)
    status = {"Status": "Enabled"}
    client().put_bucket_versioning(Bucket=name, VersioningConfiguration=status)
    return name


def archived(place: str, archive: str) -> Warehouse:
    """A warehouse whose archive has messages of a person."""
    stream = {"name": "ORDERS", "subjects": ["orders.>"], "archive": archive}
    files.replace(f"{place}/retention.yaml", json.dumps({"streams": [stream]}).encode())
    warehouse = open_warehouse(place, engine="local")
    orders = warehouse.new_stream("ORDERS")
    for number in range(3):
        eve = {"subject": EVE, "data": f"payload-8c1e5a7733d0 {number}"}
        bob = {"subject": "orders.bob", "data": "another payload"}
        orders.publish(json.dumps(line).encode() for line in (eve, bob))
    orders.purge("orders.>", keep=3).apply()
    return warehouse


def test_what_was_erased_is_in_no_object_of_an_archive(bucket: str, tmp_path: Path) -> None:
    warehouse = archived(f"{bucket}/lake", f"{bucket}/kept")
    stream = warehouse.stream("ORDERS")
    before = hiding_places(copied(f"{bucket}/kept", tmp_path / "before"), TOKENS)
    assert before
    report = stream.erase(EVE, reason="request 7").apply()
    assert report.is_done, report
    assert report.record.beyond == []
    assert hiding_places(copied(bucket, tmp_path / "after"), TOKENS) == []
    stream.restore()
    assert hiding_places(copied(bucket, tmp_path / "restored"), TOKENS) == []
    assert [row["seq"] for rows in stream.messages() for row in rows.to_pylist()] == [2, 4, 6]
    assert stream.verify(archive=True).damages == ()


def test_older_versions_in_buckets_are_named_with_the_owners_commands(
    bucket: str, versioned: str
) -> None:
    warehouse = archived(f"{bucket}/lake", f"s3://{versioned}/kept")
    report = warehouse.stream("ORDERS").erase(EVE, reason="request 7").apply()
    assert report.is_done, report
    [sentence] = report.record.beyond
    assert sentence in repr(report)
    assert f"s3://{versioned}: versioning is on, so older versions of deleted objects" in sentence
    # The commands are right: what they list and delete has the messages, and then nothing has.
    [prefix] = re.findall(r"--prefix '(.*?)'", sentence)
    listed = client().list_object_versions(Bucket=versioned, Prefix=prefix)
    objects = [*listed.get("Versions", ()), *listed.get("DeleteMarkers", ())]
    older = [each for each in objects if not each["IsLatest"]]
    assert any(TOKENS[0] in _version(versioned, each) for each in older)
    for each in objects:
        client().delete_object(Bucket=versioned, Key=each["Key"], VersionId=each["VersionId"])
    assert "Versions" not in client().list_object_versions(Bucket=versioned, Prefix=prefix)


def _version(name: str, version: dict[str, Any]) -> bytes:
    got = client().get_object(Bucket=name, Key=version["Key"], VersionId=version["VersionId"])
    content: bytes = got["Body"].read()
    if not version["Key"].endswith(".parquet"):
        return content
    rows = pq.read_table(pa.BufferReader(content)).to_pylist()
    return b"".join(str(row).encode() for row in rows)


def test_a_suspended_bucket_a_lock_and_a_replication_are_named(versioned: str) -> None:
    other = f"{versioned}-replica"
    client().create_bucket(Bucket=other, ObjectLockEnabledForBucket=True)
    rule = {
        "Status": "Enabled",
        "Priority": 1,
        "Filter": {"Prefix": ""},
        "DeleteMarkerReplication": {"Status": "Disabled"},
        "Destination": {"Bucket": f"arn:aws:s3:::{other}"},
    }
    replication = {"Role": "arn:aws:iam::123456789012:role/replicas", "Rules": [rule]}
    client().put_bucket_replication(Bucket=versioned, ReplicationConfiguration=replication)
    texts = " ".join(bucket_versions(f"s3://{versioned}/lake").sentences())
    assert "is replicated, and the other bucket may keep what is deleted here" in texts
    locked = " ".join(bucket_versions(f"s3://{other}").sentences())
    assert "has an object lock, so a version may not be deletable" in locked
    client().delete_bucket_replication(Bucket=versioned)
    status = {"Status": "Suspended"}
    client().put_bucket_versioning(Bucket=versioned, VersioningConfiguration=status)
    [suspended] = bucket_versions(f"s3://{versioned}").sentences()
    assert "versioning is suspended, so older versions of deleted objects, which were" in suspended
    results = {each.result: each.detail for each in check_versions(f"s3://{versioned}")}
    assert list(results) == ["warning"]


def test_a_store_that_does_not_tell_is_no_store_without_versions(
    server: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del server
    [unknown] = bucket_versions("s3://no-such-bucket-at-all/lake").sentences()
    assert "cannot tell whether it has older versions or an object lock or a replication" in unknown
    assert "NoSuchBucket" in unknown
    monkeypatch.setitem(sys.modules, "boto3", None)
    [missing] = bucket_versions("s3://lake/a").sentences()
    assert "boto3 is not installed: pip install boto3" in missing
    [finding] = check_versions("s3://lake/a")
    assert (finding.result, finding.remedy.startswith("`aws s3api")) == ("warning", True)


def test_a_bucket_without_versions_is_said_to_have_none(bucket: str) -> None:
    [finding] = check_versions(bucket)
    assert (finding.result, finding.check) == ("ok", "versions")
