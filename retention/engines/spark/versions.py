"""Versions of Spark: the JARs that go with each minor version, and a warning for untested versions."""

from __future__ import annotations

import importlib.metadata
import logging
import operator
import re
from dataclasses import dataclass

from retention.errors import UsageError

_log = logging.getLogger("retention.spark")
_MINOR = re.compile(r"(\d+)\.(\d+)")
_BOUND = re.compile(r"([<>=]=?)(\d+)\.(\d+)")
_COMPARED = {">=": operator.ge, "<=": operator.le, "<": operator.lt, "==": operator.eq}
_OLDEST = (4, 0)
"""The first minor version that gives frames as Arrow tables and Arrow batches to tasks, classic and Connect."""


@dataclass(frozen=True)
class Companions:
    """The JARs that go with one minor version of Spark."""

    tested: tuple[str, ...]
    """The versions of Spark that `make long NAME=sparks` tests."""
    delta: tuple[str, str]
    """Maven artifact and version of Delta."""
    hadoop: str
    """The version of Spark's Hadoop, and so of S3A."""
    sdk: str
    """The version of the AWS SDK that this Hadoop was built with, or the next one with all its parts."""


COMPANIONS = {
    "4.0": Companions(("4.0.5",), ("delta-spark_4.0_2.13", "4.4.0"), "3.4.1", "2.25.53"),
    "4.1": Companions(("4.1.4",), ("delta-spark_4.1_2.13", "4.4.0"), "3.4.2", "2.29.52"),
    "4.2": Companions(("4.2.0", "4.2.1"), ("delta-spark_4.2_2.13", "4.4.0"), "3.5.0", "2.35.4"),
}
"""Minor version of Spark → its companions; later versions have no Delta yet."""


def delta_of(version: str) -> tuple[str, str]:
    """Maven artifact and version of Delta for a Spark: delta-spark's own names, or those of `COMPANIONS` without it.

    A delta-spark counts if its bound on pyspark includes this minor version.

    Raises:
        UsageError: no Delta is known for it.
    """
    try:
        stated = importlib.metadata.requires("delta-spark") or []
    except importlib.metadata.PackageNotFoundError:
        stated = []
    if any(_allows(line, version) for line in stated if line.startswith("pyspark")):
        return _named_by_delta_spark(version)
    return companions_of(version).delta


def companions_of(version: str) -> Companions:
    """The JARs that go with a version of Spark, for any vendor suffix (`4.0.1-amzn-0`).

    Raises:
        UsageError: no Delta is known for it.
    """
    try:
        return COMPANIONS[_minor_of(version)]
    except KeyError:
        raise UsageError(
            f"no Delta is known for Spark {version}: use Spark {', '.join(COMPANIONS)}, give work a session that has "
            "Delta, or use --engine local, which needs no Spark"
        ) from None


def installed_spark() -> str:
    """The version of the Spark installed with this program.

    Raises:
        UsageError: there is none; `pyspark-client` alone starts no Spark.
    """
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise not_installed() from None


def not_installed() -> UsageError:
    """The error for work that needs Spark without an installed one."""
    return UsageError(
        "pyspark is not installed here: `pip install 'lake-retention[spark]'`, name a Spark Connect server in "
        "SPARK_REMOTE, or use --engine local, which needs no Spark (`ingest` always does)"
    )


def is_too_old(version: str) -> bool:
    """Whether a Spark version is too old for tasks; False for a version without a number."""
    minor = _numbers_of(version)
    return minor is not None and minor < _OLDEST


def refuse_too_old(version: str) -> None:
    """Refuse a Spark that is too old for tasks.

    Raises:
        UsageError: it is too old.
    """
    if is_too_old(version):
        raise UsageError(
            f"Spark {version} is too old: work on Spark needs 4.0 or later; stop that session, or use --engine local, "
            "which needs no Spark"
        )


def warn_of_untested(version: str) -> None:
    """Log a warning, once per version, if no test covers a Spark version; work continues."""
    known = COMPANIONS.get(_minor_of(version))
    if version in _warned or (known is not None and version in known.tested):
        return
    _warned.add(version)
    tested = ", ".join(patch for known in COMPANIONS.values() for patch in known.tested)
    _log.warning("Spark %s is not one that was tested (%s); work goes on", version, tested)


_warned: set[str] = set()


def _allows(requirement: str, version: str) -> bool:
    """Whether every bound of a requirement (`pyspark<=4.2.0,>=4.0.1`) includes the minor version of a Spark."""
    minor = _numbers_of(version)
    return minor is not None and all(
        _COMPARED[sign](minor, (int(major), int(least)))
        for sign, major, least in _BOUND.findall(requirement)
    )


def _named_by_delta_spark(version: str) -> tuple[str, str]:
    """The artifact and version that the installed delta-spark adds to a session of a Spark, without loading either."""
    return f"delta-spark_{_minor_of(version)}_2.13", importlib.metadata.version("delta-spark")


def _minor_of(version: str) -> str:
    """`4.1` of `4.1.0.dbr-17`; empty without a number."""
    return ".".join(map(str, _numbers_of(version) or ()))


def _numbers_of(version: str) -> tuple[int, int] | None:
    """Major and minor number of `4.1.0.dbr-17`; None without a number."""
    numbers = _MINOR.match(version)
    return None if numbers is None else (int(numbers[1]), int(numbers[2]))
