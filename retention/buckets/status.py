"""The numbers and settings of a bucket (ADR-8, status)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pyarrow.compute as pc

from retention.buckets.read import BucketReader
from retention.config import StreamConfig
from retention.core.display import Displayed
from retention.core.json_object import JsonObject


@dataclass(frozen=True, repr=False)
class BucketStatus(Displayed):
    """A bucket's current numbers, and its settings; None: no limit."""

    bucket: str
    stream: str
    values: int
    """The messages in the stream: kept values, deletions, and messages that a pass would remove now."""
    bytes: int
    """Their sizes, as the broker counts them."""
    keys: int
    """The keys that have a value."""
    history: int | None
    """The number of kept values per key, including the newest."""
    ttl_ns: int | None
    """The age at which a value expires, nanoseconds."""
    limit_marker_ttl_ns: int | None
    """The lifetime of the markers of expired keys, nanoseconds."""
    max_bytes: int | None
    max_value_size: int | None
    mirrors: str | None
    """The mirrored stream; None: the bucket is written to."""
    format: str

    def as_json(self) -> JsonObject:
        """The status as JSON values."""
        return asdict(self)


def status_of(reader: BucketReader, config: StreamConfig) -> BucketStatus:
    """Count a bucket.

    Raises:
        DamagedError: a required file is damaged.
    """
    policy, files = config.policy(), reader.messages().files
    return BucketStatus(
        bucket=reader.bucket,
        stream=config.name,
        values=pc.sum(files["messages"], min_count=0).as_py(),
        bytes=pc.sum(files["bytes"], min_count=0).as_py(),
        keys=len(reader.keys()),
        history=policy.max_msgs_per_subject,
        ttl_ns=policy.max_age_ns,
        limit_marker_ttl_ns=policy.subject_delete_marker_ttl_ns,
        max_bytes=policy.max_bytes,
        max_value_size=config.max_msg_size if config.max_msg_size > 0 else None,
        mirrors=None if config.mirror is None else config.mirror.name,
        format=config.format,
    )
