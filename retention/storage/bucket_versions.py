"""The means by which a bucket keeps deleted objects: versions, locks and replicas, as far as its store tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from retention.storage import s3

_TIMEOUT_S = 10
_NONE_CONFIGURED = {
    "ObjectLockConfigurationNotFoundError",
    "ReplicationConfigurationNotFoundError",
}
"""Codes of errors by which a store says that a bucket has no such configuration."""

Versioning = Literal["on", "suspended", "off"]


@dataclass(frozen=True)
class BucketVersions:
    """The means by which the bucket of a location keeps what is deleted."""

    location: str
    versioning: Versioning | None
    """None: the store does not tell; likewise below."""
    locks: bool | None
    """Whether versions may be locked against deletion."""
    replicates: bool | None
    """Whether the bucket has a replication to another one."""
    unknown: str = ""
    """The reason why the store does not tell."""

    @property
    def bucket(self) -> str:
        """The name of the bucket."""
        return self.location.partition("://")[2].partition("/")[0]

    def sentences(self) -> Iterator[str]:
        """A sentence for each means by which deleted objects remain, or may remain, with the owner's commands."""
        bucket = self.bucket
        prefix = self.location.partition("://")[2].partition("/")[2].rstrip("/")
        below = f" --prefix '{prefix}/'" if prefix else ""
        if self.versioning in {"on", "suspended"}:
            since = "" if self.versioning == "on" else ", which were made before it was suspended,"
            yield (
                f"s3://{bucket}: versioning is {self.versioning}, so older versions of deleted objects{since} remain: "
                f"list them with `aws s3api list-object-versions --bucket {bucket}{below}`, and delete each with "
                f"`aws s3api delete-object --bucket {bucket} --key KEY --version-id ID`"
            )
        if self.locks:
            yield (
                f"s3://{bucket}: has an object lock, so a version may not be deletable before its retention ends: "
                f"`aws s3api get-object-lock-configuration --bucket {bucket}`"
            )
        if self.replicates:
            yield (
                f"s3://{bucket}: is replicated, and the other bucket may keep what is deleted here: "
                f"`aws s3api get-bucket-replication --bucket {bucket}` names it"
            )
        if None in {self.versioning, self.locks, self.replicates}:
            what = [
                name
                for name, known in (
                    ("older versions", self.versioning),
                    ("an object lock", self.locks),
                    ("a replication", self.replicates),
                )
                if known is None
            ]
            yield (
                f"s3://{bucket}: cannot tell whether it has {' or '.join(what)} ({self.unknown}): "
                f"`aws s3api get-bucket-versioning --bucket {bucket}` says so to its owner"
            )


def bucket_versions(location: str) -> BucketVersions:
    """Ask the store of an `s3://` location what its bucket keeps; nothing is raised, an error is told as unknown."""
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        return BucketVersions(
            location, None, None, None, "boto3 is not installed: pip install boto3"
        )
    bucket = location.partition("://")[2].partition("/")[0]
    reasons: list[str] = []

    def answer(ask: Callable[..., dict[str, Any]]) -> dict[str, Any] | None:
        """The answer to a question about the bucket; empty if it has no such configuration, None: it is unknown."""
        try:
            return ask(Bucket=bucket)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", "unknown"))
            if code in _NONE_CONFIGURED:
                return {}
            reasons.append(code)
        except BotoCoreError as error:
            reasons.append(type(error).__name__)
        return None

    patience = Config(
        connect_timeout=_TIMEOUT_S, read_timeout=_TIMEOUT_S, retries={"max_attempts": 2}
    )
    try:
        client = boto3.client(
            "s3",
            endpoint_url=s3.endpoint() or None,
            region_name=s3.region(),
            config=patience,
        )
    except (BotoCoreError, ValueError) as error:
        return BucketVersions(location, None, None, None, type(error).__name__)
    versioning = answer(client.get_bucket_versioning)
    lock = answer(client.get_object_lock_configuration)
    replication = answer(client.get_bucket_replication)
    return BucketVersions(
        location,
        None if versioning is None else _versioning_of(versioning),
        None if lock is None else bool(lock.get("ObjectLockConfiguration")),
        None if replication is None else bool(replication.get("ReplicationConfiguration")),
        ", ".join(dict.fromkeys(reasons)),
    )


def _versioning_of(answer: dict[str, Any]) -> Versioning:
    status = str(answer.get("Status", ""))
    return "on" if status == "Enabled" else "suspended" if status == "Suspended" else "off"


def kept_versions(locations: list[str]) -> list[str]:
    """Sentences about the buckets of locations, each bucket once; none for local ones."""
    first: dict[str, str] = {}
    for location in locations:
        if location.startswith("s3://"):
            first.setdefault(location.partition("://")[2].partition("/")[0], location)
    return [text for location in first.values() for text in bucket_versions(location).sentences()]
