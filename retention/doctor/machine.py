"""Checks of a machine: Java, Delta's JARs, and tested versions."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator

from retention.doctor.build_version import version_and_build
from retention.doctor.finding import Finding, ok, warning
from retention.engines.spark.jars import delta_jars, s3a_jars
from retention.engines.spark.java import OLDEST_JAVA, java_version, machine_java, packaged_java
from retention.engines.spark.versions import COMPANIONS
from retention.errors import RetentionError

TESTED = {
    "pyspark": tuple(version for known in COMPANIONS.values() for version in known.tested),
    "deltalake": ("1.6.6",),
    "pyarrow": ("26",),
    "pandas": ("2.3",),
}
"""Package → the versions, or version prefixes, that the tests run with."""

_WITHOUT_SPARK = "--engine local needs no Spark"


def check_machine(
    lack: Callable[[str, str, str], Finding], *, on_s3: bool = False
) -> Iterator[Finding]:
    """Check everything that does not require starting Spark.

    Args:
        lack: the finding for a missing part that only Spark needs: `warning`, or `problem` if Spark is requested.
        on_s3: the warehouse is on an object store, for which Spark needs more JARs.
    """
    yield ok("program", f"lake-retention {version_and_build()}")
    yield _java(lack)
    yield _jars(lack)
    if on_s3:
        yield _s3_jars()
    for package, tested in TESTED.items():
        yield _version(package, tested)


def _java(lack: Callable[[str, str, str], Finding]) -> Finding:
    home = machine_java() or packaged_java()
    if home is None:
        return lack(
            "java",
            f"there is no Java {OLDEST_JAVA} or later on JAVA_HOME or PATH",
            f"run `make setup`, or set JAVA_HOME; {_WITHOUT_SPARK}",
        )
    return ok("java", f"Java {java_version(home)} in {home}")


def _jars(lack: Callable[[str, str, str], Finding]) -> Finding:
    try:
        jars = delta_jars()
    except (RetentionError, importlib.metadata.PackageNotFoundError) as error:
        return lack("delta jars", str(error), f"run `make setup`; {_WITHOUT_SPARK}")
    return ok("delta jars", f"{len(jars)} JARs in {jars[0].parent}")


def _s3_jars() -> Finding:
    jars = s3a_jars()
    if not jars:
        return warning(
            "s3 jars",
            "Spark has no JARs with which to read tables on S3 or to purge deletion vectors there",
            f"run `make setup`, or `{sys.executable} -m retention.engines.spark.jars`; passes and appends need none",
        )
    return ok("s3 jars", f"{len(jars)} JARs in {jars[0].parent}")


def _version(package: str, tested: tuple[str, ...]) -> Finding:
    check = f"{package} version"
    listed = " or ".join(tested)
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return warning(check, f"{package} is not installed", f"install {package} {listed}")
    if not any(f"{installed}.".startswith(f"{version}.") for version in tested):
        return warning(
            check,
            f"{package} {installed} is installed, the tests run with {listed}",
            f"install {package} {listed}, or run `make setup`",
        )
    return ok(check, f"{package} {installed}")
