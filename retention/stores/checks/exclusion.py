"""Mutual exclusion of writers at a warehouse's location, tried before a process first writes there."""

from __future__ import annotations

import re
import threading

from retention.errors import RefusedError, RetentionError
from retention.storage import files
from retention.storage.errors import storage_error
from retention.storage.s3 import endpoint

_NOT_IMPLEMENTED = re.compile(r"NotImplemented|\b501\b")
"""The response of a store that does not support conditional puts."""
_tried: set[tuple[str, str]] = set()
_trying = threading.Lock()


def refuse_without_exclusion(root: str) -> None:
    """Refuse to write to an object store that accepts two commits of one version.

    The trial runs at the first write of each process. Its outcome is not stored: tomorrow the same address may lead to
    another store or another proxy. Local file systems exclude by hard links and locks of the operating system, and are
    not tried.

    Args:
        root: `<warehouse>/streams/<name>`, or the location of a table in place.

    Raises:
        RefusedError: commits do not exclude each other there.
        StorageError: the store failed, or permits no writes.
    """
    if not files.is_remote(root):
        return
    warehouse = root.rpartition("/streams/")[0] or root
    with _trying:
        if (endpoint(), warehouse) in _tried:
            return
        if not _excludes(warehouse):
            raise RefusedError(
                f"{warehouse}: of two commits of one version this object store lets both through, so that what "
                "the first one wrote would be overwritten; nothing was written; use a store with conditional put "
                "(If-None-Match), or let the proxy before it pass that header on; reading goes on"
            )
        _tried.add((endpoint(), warehouse))


def _excludes(warehouse: str) -> bool:
    from obstore.exceptions import BaseError

    from retention.stores.checks.capability_probe import commits_exclude, trial_place

    try:
        with trial_place(warehouse) as place:
            return commits_exclude(place)
    except RetentionError:
        raise
    except (BaseError, OSError) as error:
        if _NOT_IMPLEMENTED.search(str(error)):
            return False
        raise storage_error(warehouse, error) from error
