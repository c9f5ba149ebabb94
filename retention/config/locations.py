"""Places that a configuration names: paths beside it, or prefixes of an object store."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Annotated

from pydantic import AfterValidator

from retention.config.types import refusal_error
from retention.errors import ConfigError
from retention.errors.printable import NO_CREDENTIALS, has_credentials

BAD_LOCATION = "is neither a path nor s3://bucket/prefix; write one of them"
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://(.*)")


def is_location(text: str) -> bool:
    """Whether a text is a path, or names an object store that can be used."""
    uri = _URI.fullmatch(text)
    return bool(text) and (uri is None or (uri[1] == "s3" and bool(uri[2].strip("/"))))


def _checked(text: str) -> str:
    if has_credentials(text):
        raise refusal_error(f"{text!r}: {NO_CREDENTIALS}")
    if not is_location(text):
        raise refusal_error(f"{text!r} {BAD_LOCATION}")
    return text


Location = Annotated[str, AfterValidator(_checked)]
"""A location as it is written; `absolute_location` makes it absolute."""


def absolute_location(location: str, beside: str) -> str:
    """Resolve a location against the file `beside`: an absolute path, or an `s3://` URI without a slash at the end.

    Raises:
        ConfigError: the location would lie outside of the bucket in which that file is.
    """
    if location.startswith("s3://"):
        return location.rstrip("/")
    if beside.startswith("s3://"):
        bucket, _, rest = beside.removeprefix("s3://").partition("/")
        below = normpath(PurePosixPath(rest).parent / location)
        if below.startswith(("/", "..")):
            raise ConfigError(f"{beside}: {location!r} is not in bucket {bucket}; write s3://…")
        return f"s3://{bucket}/{below}".removesuffix("/.")
    return str((Path(beside).resolve().parent / Path(location).expanduser()).resolve())
