"""Names of key-value buckets and their keys, and of the streams and subjects that store them (ADR-8)."""

from __future__ import annotations

import re

from retention.errors import UsageError

_PREFIX = "KV_"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
KEY_PATTERN = r"[-/_=a-zA-Z0-9]+(?:\.[-/_=a-zA-Z0-9]+)*"
"""The regular expression (RE2 and Python) of a whole key (ADR-8)."""
_KEY = re.compile(KEY_PATTERN)
_FILTER = re.compile(r"[-/_=.a-zA-Z0-9*]*>?")


def bucket_of(stream: str) -> str | None:
    """The bucket that a stream stores; None if the stream is no bucket (ADR-8)."""
    return stream.removeprefix(_PREFIX) if stream.startswith(_PREFIX) else None


def stream_of(bucket: str) -> str:
    """The stream that stores a bucket (ADR-8).

    Raises:
        UsageError: the name is not valid for a bucket.
    """
    if not is_bucket_name(bucket):
        raise UsageError(
            f"{bucket!r} is not a bucket's name: write letters, digits, _ and -, without dots and blanks"
        )
    return f"{_PREFIX}{bucket}"


def is_bucket_name(name: str) -> bool:
    """Whether a name is valid for a bucket (ADR-8)."""
    return _NAME.fullmatch(name) is not None


def subject_prefix(bucket: str) -> str:
    """The prefix of the subjects of a bucket's keys (ADR-8)."""
    return f"$KV.{bucket}."


def check_key(key: str) -> None:
    """Refuse an invalid key (ADR-8).

    Raises:
        UsageError: the key is invalid.
    """
    if not _KEY.fullmatch(key):
        raise UsageError(
            f"{key!r} is not a key: write letters, digits and any of - / _ = . with a dot neither first, last nor "
            "twice in a row"
        )


def check_key_filter(pattern: str) -> None:
    """Refuse an invalid key filter: a key with `*` for one token, or `>` at its end for one or more.

    Raises:
        UsageError: the filter is invalid.
    """
    has_empty_token = not all(pattern.split("."))
    if has_empty_token or not _FILTER.fullmatch(pattern):
        raise UsageError(
            f"{pattern!r} matches no key: write a key, * in the place of a token, > at the end for all following tokens"
        )
