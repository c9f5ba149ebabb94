"""The content of objects that are replaced in place: all of it from one version."""

from __future__ import annotations

from retention.storage import files
from retention.storage.errors import storage_error
from retention.storage.s3 import object_store, only_arrow_finds_credentials


def read_object(location: str) -> bytes:
    """The content of an object; never a mixture with a concurrent replacement.

    Raises:
        FileNotFoundError: there is no such object.
        OSError: Arrow could not read it.
        StorageError: the store failed.
    """
    return (_read_again if only_arrow_finds_credentials() else _read_at_once)(location)


def _read_at_once(location: str) -> bytes:
    """The content of an object, by one request."""
    import obstore
    from obstore.exceptions import BaseError

    store, key = object_store(location)
    try:
        return bytes(obstore.get(store, key).bytes())
    except BaseError as error:
        raise storage_error(location, error) from error


def _read_again(location: str) -> bytes:
    """The content of an object, read again if it was replaced meanwhile.

    Arrow requests the length first, then so many bytes. If the object is shorter by then, it fills in zeros; if longer,
    it reads only a part. Two replacements within a second that restore the version before are not noticed.
    """
    while True:
        with files.open_input(location) as source:
            version = source.metadata()
            try:
                content = bytes(source.read())
            except OSError:
                if _version(location) == version:
                    raise
                continue
        if _version(location) == version:
            return content


def _version(location: str) -> object:
    """The version of an object: the store's length, time and ETag."""
    with files.open_input(location) as source:
        return source.metadata()
