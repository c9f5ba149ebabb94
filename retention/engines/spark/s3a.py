"""Access to an object store from Spark's JVM: its scheme, settings, and one sentence if access fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from retention.errors import UsageError
from retention.storage.s3 import endpoint, region

_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"


def s3a_settings() -> dict[str, str]:
    """Session settings that give the JVM the same endpoint, region and credential provider as this process.

    The JVM finds credentials itself, in the environment, the profiles and the machine's metadata; none are passed.
    """
    settings = {
        "fs.s3.impl": _FILE_SYSTEM,
        "fs.s3a.endpoint.region": region(),
        "fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    }
    if endpoint():
        settings |= {"fs.s3a.endpoint": endpoint(), "fs.s3a.path.style.access": "true"}
    return {f"spark.hadoop.{name}": value for name, value in settings.items()}


def for_spark(location: str) -> str:
    """A location for the JVM; Hadoop's scheme for object stores is `s3a`."""
    return location.replace("s3://", "s3a://", 1) if location.startswith("s3://") else location


@contextmanager
def reaching(location: str) -> Iterator[None]:
    """A context around a Spark call that opens a location.

    Raises:
        UsageError: the session has no way to an object store.
    """
    try:
        yield
    except Exception as error:
        if "S3AFileSystem" not in str(error) or "not found" not in str(error):
            raise
        raise UsageError(
            f"{location}: this Spark session has no file system for object stores; run `make setup` (or "
            "`python -m retention.engines.spark.jars`) while connected, or give the session hadoop-aws of Spark's own "
            "Hadoop version"
        ) from error
