"""Locations in a configuration: paths relative to it, or prefixes of an object store."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Annotated

from pydantic import AfterValidator

from retention.config.types import refusal_error
from retention.errors import ConfigError
from retention.errors.printable import NO_CREDENTIALS, has_credentials
from retention.storage.places import S3, place_of, refused_scheme, refused_table

_NOWHERE = "is neither a path nor s3://bucket/prefix; write one of them"


def refused_location(text: str) -> str | None:
    """The reason why a text is not a directory, and the remedy; None: it is a path or names an object store."""
    why = refused_scheme(text) or refused_table(text)
    if why is not None:
        return why
    place = place_of(text)
    is_somewhere = place.removeprefix(S3).strip("/") if place.startswith(S3) else place
    return None if is_somewhere else _NOWHERE


def read_location(text: str) -> str:
    """A location in canonical form.

    Raises:
        PydanticCustomError: the text is not a location, or has credentials.
    """
    if has_credentials(text):
        raise refusal_error(f"{text!r}: {NO_CREDENTIALS}")
    why = refused_location(text)
    if why is not None:
        raise refusal_error(f"{text!r} {why}")
    return place_of(text)


Location = Annotated[str, AfterValidator(read_location)]
"""A location in canonical form; `absolute_location` makes it absolute."""


def absolute_location(location: str, beside: str) -> str:
    """Resolve a location against the file `beside`: an absolute path, or an `s3://` URI without a trailing slash.

    Raises:
        ConfigError: the location would be outside the bucket of that file.
    """
    location, beside = place_of(location), place_of(beside)
    if location.startswith(S3):
        return location.rstrip("/")
    if beside.startswith(S3):
        bucket, _, rest = beside.removeprefix(S3).partition("/")
        below = normpath(PurePosixPath(rest).parent / location)
        if below.startswith(("/", "..")):
            raise ConfigError(f"{beside}: {location!r} is not in bucket {bucket}; write s3://…")
        return f"s3://{bucket}/{below}".removesuffix("/.")
    return str((Path(beside).resolve().parent / Path(location).expanduser()).resolve())
