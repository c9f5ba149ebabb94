"""The digest of a plan's header, with which its identity begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


def header_digest(header: Mapping[str, object]) -> _Hash:
    """The SHA-256 of a header as canonical JSON, to be continued.

    Args:
        header: the decisions on the stream as a whole, JSON-able.
    """
    canonical = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode())
