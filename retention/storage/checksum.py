"""Checksums of stored content: hostile JSON raises a plain error, and a flipped bit never reads as another value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NoReturn

import xxhash

_KEY = "check"
_HASH_BYTES = 16


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text from an untrusted writer.

    Raises:
        ValueError: the text is not valid JSON, is nested too deep, or has numbers that are too long.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        # Python's error for integers with too many digits ends with advice to programmers.
        raise ValueError(str(error).partition(";")[0]) from None


def with_checksum(record: Mapping[str, object]) -> dict[str, object]:
    """The record with a checksum of its content under `check`."""
    return {**record, _KEY: checksum_of(record)}


def verified(record: dict[str, object]) -> dict[str, Any]:
    """The verified record, as parsed, without its checksum; a record without one is returned unchanged.

    Raises:
        ValueError: the content does not match the checksum.
    """
    fields = {name: value for name, value in record.items() if name != _KEY}
    if _KEY in record and record[_KEY] != _digest(fields):
        raise ValueError("it is not what was written")
    return fields


def is_checked(record: Mapping[str, object]) -> bool:
    """Whether a record has a checksum of its content."""
    return _KEY in record


def with_hash(body: bytes) -> bytes:
    """Bytes followed by their XXH3-128, for content too large for SHA-256."""
    return body + xxhash.xxh3_128_digest(body)


def stripped(content: bytes) -> tuple[memoryview, str]:
    """The original bytes of a `with_hash` result, not copied, and their hash.

    Raises:
        ValueError: the bytes do not match their hash.
    """
    body, digest = memoryview(content)[:-_HASH_BYTES], content[-_HASH_BYTES:]
    if xxhash.xxh3_128_digest(body) != digest:
        raise ValueError("it is not what was written")
    return body, digest.hex()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def checksum_of(record: Mapping[str, object]) -> str:
    """The SHA-256 of a record as JSON, 64 hexadecimal digits, independent of its formatting."""
    return _digest(json.loads(json.dumps(record)))


def _digest(as_read: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()
