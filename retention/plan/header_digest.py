"""The digest of a plan's header, with which its identity begins, and the identity of a plan that changes nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash

_TABLES_WITHOUT_ROWS = bytes(8 * (3 + 29))
"""The content of three tables without rows: how many each has, and how many nulls each of their columns has."""


def header_digest(header: Mapping[str, object]) -> _Hash:
    """The SHA-256 of a header as canonical JSON, to be continued.

    Args:
        header: the decisions on the stream as a whole, JSON-able.
    """
    canonical = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode())


def identity_of_nothing(header: Mapping[str, object]) -> str:
    """The identity of a plan without actions, as `Actions.identity` of none gives it."""
    digest = header_digest(header)
    digest.update(_TABLES_WITHOUT_ROWS)
    return digest.hexdigest()
