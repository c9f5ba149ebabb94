"""The put of a log entry: whole, durable, and refused if another program was first."""

from __future__ import annotations

import logging
import time

from retention.errors import CommitUnknownError, LostCommitError, StorageError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import first_line, storage_error
from retention.storage.s3 import object_store

WINDOW_S = 0.1
"""The longest time, seconds, between Spark's look for a version and its rename, unless Spark is paused."""
_PAUSES_S = (0.1, 1.0)
"""The pauses before an entry with an unknown outcome is put again: the same bytes, so that it is there at most once."""
_log = logging.getLogger(__name__)


def put_entry(place: str, content: bytes, token: str) -> bool:
    """Put an entry at a location of a log unless there is one.

    Args:
        place: the location.
        content: the entry, with the token in it.
        token: a text that no other entry contains.

    Returns:
        Whether it was put; False if another program's entry is there.

    Raises:
        LostCommitError: another program overwrote the entry (Spark, on a local disk).
        CommitUnknownError: the storage did not say whether it has the entry.
        StorageError: the storage failed and does not have the entry.
    """
    reached(Step.DELTA_COMMITTING)
    is_put = put_if_absent(place, content, token)
    if is_put:
        reached(Step.DELTA_COMMITTED)
        if not files.is_remote(place):
            _refuse_overwritten(place, token)
    return is_put


def put_if_absent(place: str, content: bytes, token: str) -> bool:
    """Put an entry as `put_entry` does, without another look for it afterwards.

    Raises:
        CommitUnknownError, StorageError: as `put_entry`.
    """
    return (_put_object if files.is_remote(place) else _put_file)(place, content, token)


def _put_file(place: str, content: bytes, token: str) -> bool:
    try:
        return files.create_if_absent(place, content)
    except StorageError as error:
        if _outcome(place, token, error):
            raise _unknown(place, error) from error
        raise


def _put_object(place: str, content: bytes, token: str) -> bool:
    import obstore
    from obstore.exceptions import (
        BaseError,
        NotSupportedError,
        PermissionDeniedError,
        UnauthenticatedError,
    )

    store, key = object_store(place)
    for pause_s in (*_PAUSES_S, None):
        try:
            obstore.put(store, key, content, mode="create")
        except (NotSupportedError, PermissionDeniedError, UnauthenticatedError) as error:
            raise storage_error(place, error) from error
        except BaseError as error:
            # After a lost answer, a repeated put meets its own entry, as if a rival were first.
            is_ours = _outcome(place, token, error)
            if is_ours is not None:
                return is_ours
            if pause_s is None:
                raise _unknown(place, error) from error
            time.sleep(pause_s)
        else:
            break
    return True


def _outcome(place: str, token: str, error: Exception) -> bool | None:
    """Whether the entry at a location is ours, after a put that failed; None if there is none."""
    try:
        content = files.read_unchanging(place)
    except StorageError as unreadable:
        raise _unknown(place, error) from unreadable
    return None if content is None else token.encode() in content


def _unknown(place: str, error: Exception) -> CommitUnknownError:
    return CommitUnknownError(
        f"{place}: the storage did not say whether this commit happened ({first_line(error)}); look at the table's "
        "history in a few minutes before anything else, and delete no file"
    )


def _refuse_overwritten(place: str, token: str) -> None:
    """Look for the entry again once Spark, which looks for a version and then renames over it, must be done."""
    time.sleep(WINDOW_S)
    try:
        content = files.read_unchanging(place)
    except StorageError as error:
        _log.warning(
            "%s: the entry is written; whether it was overwritten cannot be seen (%s)", place, error
        )
        return
    if token.encode() not in (content or b""):
        raise LostCommitError(
            f"{place}: another program overwrote this commit, as Spark can on a local disk, so that the table has none "
            "of it; run the command again, and let no Spark job write to the table meanwhile"
        )
