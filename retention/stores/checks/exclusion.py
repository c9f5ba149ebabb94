"""Whether a warehouse's place excludes the second of two writers: tried before a process writes there first."""

from __future__ import annotations

import re
import threading

from retention.errors import RefusedError, RetentionError
from retention.storage import files
from retention.storage.errors import storage_error
from retention.storage.s3 import endpoint

_NOT_IMPLEMENTED = re.compile(r"NotImplemented|\b501\b")
"""A store's answer to a conditional put that it does not know."""
_tried: set[tuple[str, str]] = set()
_trying = threading.Lock()


def refuse_without_exclusion(root: str) -> None:
    """Refuse to write to a stream on an object store that lets two commits of one version through.

    The place is tried at the first write of a process. No trace of that is kept: behind the same address there may be
    another store, or another proxy, by tomorrow. Local places exclude by hard links and locks of the operating
    system, and are not tried.

    Args:
        root: `<warehouse>/streams/<name>`.

    Raises:
        RefusedError: commits do not exclude each other there.
        StorageError: the store failed, or does not let anybody write.
    """
    if not files.is_remote(root):
        return
    warehouse = root.rpartition("/streams/")[0] or root
    with _trying:
        if (endpoint(), warehouse) in _tried:
            return
        if not _excludes(warehouse):
            raise RefusedError(
                f"{warehouse}: of two commits of one version this object store lets both through, so that acknowledged "
                "messages would be overwritten; nothing was written; use a store with conditional put "
                "(If-None-Match), or let the proxy before it pass that header on; reading goes on"
            )
        _tried.add((endpoint(), warehouse))


def _excludes(warehouse: str) -> bool:
    # deltalake is loaded only where its commits are what excludes.
    from retention.stores.checks.capability_probe import commits_exclude, trial_place

    try:
        with trial_place(warehouse) as place:
            return commits_exclude(place)
    except RetentionError:
        raise
    except Exception as error:  # whatever deltalake makes of the store's answer
        if _NOT_IMPLEMENTED.search(str(error)):
            return False
        raise storage_error(warehouse, error) from error
