"""Storage errors: failures of the operating system and of libraries, each as one sentence with a remedy."""

from __future__ import annotations

import errno
import os

from retention.errors import RetentionError, StorageError, UsageError
from retention.errors.printable import sentence

_NOT_PERMITTED = (errno.EROFS, errno.EACCES, errno.EPERM)
_OF_OBJECTS = "look at the bucket, the endpoint, the network and the credentials"
_OF_RIGHTS = "make it readable and writable for this user"
_OF_OBJECT_STORE = "AWS Error"
_OF_DISKS = "free space or mend what the system objects to"


def storage_error(location: str, error: Exception) -> StorageError:
    """The error for a failed storage operation at a location.

    A missing permission has the exit code of wrong usage, as on an object store.
    """
    if "://" in location:
        return _of_object_store(location, error)
    number = error.errno if isinstance(error, OSError) else None
    remedy = _OF_RIGHTS if number in _NOT_PERMITTED else _OF_DISKS
    wrapped = _with_remedy(
        f"{location}: {(number and os.strerror(number)) or first_line(error)}", remedy
    )
    wrapped.errno = number
    if number in _NOT_PERMITTED:
        wrapped.exit_code = UsageError.exit_code
    return wrapped


def is_of_storage(error: OSError) -> bool:
    """Whether a disk or an object store failed; Arrow also raises an `OSError` for unreadable content."""
    return error.errno not in (None, errno.ENOENT) or _OF_OBJECT_STORE in str(error)


def reason_of(error: OSError) -> str:
    """The location and cause of a storage failure, without the remedy."""
    return error.reason if isinstance(error, StorageError) else sentence(str(error))


def _of_object_store(location: str, error: Exception) -> StorageError:
    """The error of an object store; an error that a configuration change fixes has exit code 2."""
    from retention.storage.s3 import NO_ANSWER, NOT_ALLOWED, refusal

    reason, remedy = refusal(location, error) or ("", "")
    wrapped = _with_remedy(f"{location}: {reason or first_line(error)}", remedy or _OF_OBJECTS)
    wrapped.errno = errno.EACCES if reason == NOT_ALLOWED else None
    is_usage = reason not in ("", NO_ANSWER)
    wrapped.exit_code = UsageError.exit_code if is_usage else StorageError.exit_code
    return wrapped


def _with_remedy(reason: str, remedy: str) -> StorageError:
    error = StorageError(
        f"{reason}; no commit was left half done; {remedy}, then run the command again"
    )
    error.reason = sentence(reason)
    return error


class as_storage_errors:  # noqa: N801  (a function to its users; a generator costs a hundredth of a small pass)
    """Wrap errors of the block as `StorageError` with the location, except the expected ones in `answers`.

    Raises:
        StorageError: the storage failed.
    """

    __slots__ = ("_location", "_passed")

    def __init__(self, location: str, *answers: type[OSError]) -> None:
        self._location = location
        self._passed: tuple[type[Exception], ...] = (RetentionError, *answers)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, self._passed):
            raise storage_error(self._location, error) from error


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or the error's class name."""
    return sentence(next(iter(str(error).splitlines()), type(error).__name__))
