"""A key-value bucket's configuration, with the names of the broker's clients, and the stream that implements it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, Self

from pydantic import model_validator

from retention.config.document import Mistake
from retention.config.keeping import Selected, StorageSettings
from retention.config.nested import DescriptiveFields, Placement, Republish, StreamSource
from retention.config.types import (
    UNLIMITED,
    ByteLimit,
    ConfigRefusal,
    Count,
    Duration,
    Flag,
    SmallByteLimit,
    refusal,
    refusals_error,
)
from retention.core.bucket_names import bucket_of, is_bucket_name, stream_of, subject_prefix
from retention.core.wording import counted

MOST_HISTORY = 64
"""The maximum number of values of a key that a bucket keeps (ADR-8)."""
STREAM_KEY: Mapping[str, str] = {
    "history": "max_msgs_per_subject",
    "ttl": "max_age",
    "max_value_size": "max_msg_size",
    "limit_marker_ttl": "subject_delete_marker_ttl",
}
"""Key of a bucket → that of its stream, if they differ."""
_BUCKET_KEY = {of_stream: of_bucket for of_bucket, of_stream in STREAM_KEY.items()}
_KEY = 2
"""The index of a bucket's key in a place: after `buckets` and the bucket's number."""
_OURS = {"segment_span": "off"}
"""Defaults for settings that neither a bucket nor its groups define: a key's newest value may be of any age."""
_SERVERS = {
    "discard": "new",
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
}
"""The settings that every bucket has (nats.go, CreateKeyValue)."""


class BucketConfig(StorageSettings, Selected, DescriptiveFields):
    """A bucket as CreateKeyValue would take it (ADR-8): durations nanoseconds (0: off), sizes bytes."""

    name: str
    history: Count = 1
    """The number of kept values per key, including the newest; 1 to 64."""
    ttl: Duration = 0
    """The age at which a value expires, nanoseconds; 0: never."""
    max_value_size: SmallByteLimit = UNLIMITED
    max_bytes: ByteLimit = UNLIMITED
    limit_marker_ttl: Duration = 0
    """The lifetime of the markers of expired keys, nanoseconds; if set, a key can have a TTL of its own (ADR-48)."""
    allow_msg_ttl: Flag = False
    """Whether a key can have a TTL of its own without `limit_marker_ttl`, as in buckets of nats-py."""
    storage: Literal["file", "memory"] = "file"
    num_replicas: Count = 1
    compression: Flag = False
    placement: Placement | None = None
    republish: Republish | None = None
    mirror: str | StreamSource | None = None
    """The name of the mirrored bucket."""
    sources: tuple[str | StreamSource, ...] = ()
    """The names of the buckets whose values are copied to this one."""
    delete_retention: Duration = 0
    exclusive: Flag = False
    quiet: Flag = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        refusals = list(_refusals(self))
        if refusals:
            raise refusals_error(refusals)
        return self


def _refusals(bucket: BucketConfig) -> Iterator[ConfigRefusal]:
    if not is_bucket_name(bucket.name):
        text = f"{bucket.name!r} is not a bucket's name: write letters, digits, _ and -"
        yield refusal("name", text, None)
    if not 1 <= bucket.history <= MOST_HISTORY:
        text = (
            f"{counted(bucket.history, 'value')} of a key cannot be kept: write 1 to {MOST_HISTORY}"
        )
        yield refusal("history", text, None)


def with_stream_keys(bucket: Mapping[str, object]) -> dict[str, object]:
    """The values of a bucket as written, under a stream's keys."""
    return {STREAM_KEY.get(key, key): value for key, value in bucket.items() if value is not None}


def stream_values(bucket: Mapping[str, Any]) -> dict[str, object]:
    """The stream that implements a bucket, as a configuration would write it.

    Args:
        bucket: the values of the bucket and of its groups, under a stream's keys, without mistakes.
    """
    name = bucket["name"]
    values = _OURS | {"max_msgs_per_subject": 1} | dict(bucket) | _SERVERS
    values |= {"name": stream_of(name), "subjects": [f"{subject_prefix(name)}>"]}
    if isinstance(values.get("compression"), bool):
        values["compression"] = "s2" if values["compression"] else "none"
    if values.get("sources"):
        values["sources"] = [_source(source, name) for source in values["sources"]]
    if values.get("mirror"):
        del values["subjects"]
        values |= {"mirror": _origin(values["mirror"]), "mirror_direct": True}
    return values


def bucket_key(stream_key: str) -> str:
    """The key of a bucket that corresponds to a key of its stream."""
    return _BUCKET_KEY.get(stream_key, stream_key)


def in_bucket_words(mistake: Mistake, buckets: Any) -> Mistake:
    """The mistake of a bucket's stream at the bucket's own key; any other mistake is unchanged.

    Args:
        mistake: of a configuration.
        buckets: its list of buckets as written.
    """
    place = mistake.place
    if place[:1] != ("buckets",) or len(place) <= _KEY:
        return mistake
    key = str(place[_KEY])
    if key not in buckets[place[1]]:
        return replace(mistake, place=(*place[:_KEY], bucket_key(key), *place[_KEY + 1 :]))
    # A stream's key in a bucket is an unknown key.
    name = _BUCKET_KEY.get(key)
    return mistake if name is None else replace(mistake, text=f"a bucket calls it `{name}`")


def _origin(given: Any) -> dict[str, Any]:
    """The origin that a bucket's name, or a mapping with one, refers to."""
    values = dict(given) if isinstance(given, Mapping) else {"name": given}
    if bucket_of(values["name"]) is None:
        values["name"] = stream_of(values["name"])
    return values


def _source(given: object, bucket: str) -> dict[str, Any]:
    """The source that a bucket's name, or a mapping with one, refers to: its keys become this bucket's."""
    if isinstance(given, Mapping) and given.get("subject_transforms"):
        return dict(given)
    values = _origin(given)
    origin = bucket_of(values["name"]) or ""
    transform = {"src": f"{subject_prefix(origin)}>", "dest": f"{subject_prefix(bucket)}>"}
    return values | {"subject_transforms": [transform]}
