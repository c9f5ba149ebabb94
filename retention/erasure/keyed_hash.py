"""Keyed hashes: digests of requests that nobody can guess without the warehouse's own key."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from retention.delta.entry_put import put_if_absent
from retention.errors import DamagedError
from retention.storage import files
from retention.storage.errors import as_storage_errors

_KEY_BYTES = 32


@dataclass(frozen=True)
class KeyedHash:
    """HMAC-SHA-256 with the key of a warehouse."""

    key: bytes = field(repr=False)

    def of(self, value: object) -> str:
        """The keyed hash of a JSON value, 64 hexadecimal digits."""
        text = json.dumps(value, sort_keys=True, ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        return hmac.new(self.key, text, hashlib.sha256).hexdigest()


def secrets_of(warehouse: str) -> str:
    """The directory of a warehouse's own secrets."""
    return files.join(warehouse, "_retention", "secrets")


def keyed_hash_of(warehouse: str) -> KeyedHash:
    """The keyed hash of a warehouse; its key is made once, in `_retention/secrets/erasures.key`.

    Raises:
        DamagedError: the file has no key.
        CommitUnknownError, StorageError: as `put_if_absent`.
    """
    place = files.join(secrets_of(warehouse), "erasures.key")
    content = files.read_bytes(place)
    if content is None:
        files.make_directory(secrets_of(warehouse))
        made = secrets.token_hex(_KEY_BYTES)
        put_if_absent(place, made.encode(), made)
        if not files.is_remote(place):
            with as_storage_errors(place):
                Path(place).chmod(0o600)
        content = files.read_bytes(place) or b""
    try:
        key = bytes.fromhex(content.decode())
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise DamagedError(
            f"{place}: this file has no key of {_KEY_BYTES} bytes in hexadecimal digits, by which reports of erasures "
            "name what was erased; nothing was changed; restore it from a copy, or delete it, and later reports have "
            "another key"
        )
    return KeyedHash(key)
