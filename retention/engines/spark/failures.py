"""Failures of Spark itself as errors of this package: cause and remedy in one sentence."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from retention.errors import BusyError, RetentionError, UsageError

_PACKING = (
    "bring it with what `retention package` packs (spark-submit --archives, or --py-files where the dependencies are "
    "installed), or install it on every worker"
)
_ANOTHER = f"set PYSPARK_PYTHON to a Python of the workers that has it (the driver's is {{driver}}), or {_PACKING}"
_UNCHANGED = "no table was changed by what was under way"
_AGAIN = f"{_UNCHANGED}; run it again"
CAUSES: tuple[tuple[str, type[RetentionError], str], ...] = (
    (
        r"OtherCodeError: (?P<where>[^\n]+)"
        r"|(?P<lacks>No module named 'retention\.[\w.]+'"
        r"|Can't get attribute '\w+' on <module 'retention\b[^>]*>)",
        UsageError,
        "the workers have another version of this package than the driver ({where}{lacks}), which may have other "
        f"rules; {_UNCHANGED}; {_PACKING}",
    ),
    (
        r"No module named '(?P<module>retention)\b",
        UsageError,
        f"the workers' Python does not have this package ({{module}}); {_ANOTHER}",
    ),
    (
        r"No module named '(?P<module>[\w.]+)'|PACKAGE_NOT_INSTALLED\] (?P<package>\w+)",
        UsageError,
        f"the workers' Python lacks {{module}}{{package}}; {_ANOTHER}",
    ),
    (
        r"different version: (?P<there>[\d.]+) than that in driver:? (?P<here>[\d.]+)",
        UsageError,
        "the workers run Python {there}, the driver runs {here}, and functions do not travel between them; set "
        "PYSPARK_PYTHON to a Python {here} of the workers, or bring one with `retention package --venv`",
    ),
    (
        r"Cannot run program \"(?P<program>[^\"]+)\"",
        UsageError,
        "the workers cannot start the Python {program}; set PYSPARK_PYTHON to one that they have, or bring one with "
        "`retention package --venv` (spark-submit --archives FILE#environment, "
        "PYSPARK_PYTHON=./environment/bin/python)",
    ),
    (
        r"\((?P<size>[\d.]+ \w+)\) is bigger than (?:local )?spark\.driver\.maxResultSize \((?P<limit>[^)]+)\)",
        UsageError,
        "what tasks answered ({size}) is more than spark.driver.maxResultSize ({limit}) lets through to the driver; "
        f"{_UNCHANGED}; raise it, and spark.driver.memory with it, or run fewer streams at once",
    ),
    (
        r"Lost task [^\n]*OutOfMemoryError: (?P<what>[\w ]+)",
        BusyError,
        f"a Spark executor ran out of memory ({{what}}); {_AGAIN} with more spark.executor.memory",
    ),
    (
        r"OutOfMemoryError: (?P<what>[\w ]+)",
        UsageError,
        f"Spark's driver ran out of memory ({{what}}); {_UNCHANGED}; give it more (spark-submit "
        "--driver-memory)",
    ),
    (
        r"ExecutorLostFailure \(executor \S+ (?P<how>[^)\n]*)\)(?: Reason(?P<reason>: [^\n]{1,120}))?",
        BusyError,
        f"Spark lost the executors of a task again and again ({{how}}{{reason}}); {_AGAIN}, with more "
        "spark.executor.memory or spark.executor.memoryOverhead if the cluster killed them for their memory",
    ),
    (
        r"Error from python worker:\n(?:[^\n]*\n)*? *(?P<last>\S[^\n]*)\nPYTHONPATH was",
        UsageError,
        "the workers' Python does not start ({last}); set PYSPARK_PYTHON to one that does, or bring one with "
        "`retention package --venv`",
    ),
    (
        r"\b(?:Arrow)?MemoryError\b",
        BusyError,
        f"the Python of a task ran out of memory; {_AGAIN} with more spark.executor.pyspark.memory, or without that "
        "limit and with more spark.executor.memoryOverhead",
    ),
    (
        r"Python worker failed to connect back",
        BusyError,
        f"a Python of Spark did not start within ten seconds, which no setting changes; {_AGAIN} when the machine is "
        "less busy",
    ),
    (
        r"Python worker exited unexpectedly|Python worker (?:process )?\(?crashed",
        BusyError,
        f"the Python of a task died again and again; {_AGAIN}, with more spark.executor.memoryOverhead if the cluster "
        "killed it for its memory",
    ),
    (
        r"(?:SparkContext was shut down|stopped SparkContext|All masters are unresponsive|has been killed)",
        BusyError,
        f"Spark was stopped while it worked; {_AGAIN}",
    ),
)
"""Pattern of Spark's message, error class, and sentence; the first matching pattern counts."""
GONE = (
    f"Spark's driver is gone, the process that this one speaks to; {_AGAIN}, with more --driver-memory if it was "
    "killed for its memory"
)
"""The sentence for a lost connection to Spark."""
_ANSWER = re.compile(r"An error occurred while calling [^\n]*\n")
"""The first line of a driver's exception in py4j; more lines follow it only if the driver answered."""


@contextmanager
def spark_failures() -> Iterator[None]:
    """A context around Spark's work: failures with a known cause become one-sentence errors.

    Raises:
        UsageError: the session is not configured for this work.
        BusyError: a retry may succeed.
    """
    try:
        yield
    except Exception as error:
        known = failure_of(error)
        if known is None:
            raise
        raise known from error


def failure_of(error: Exception) -> RetentionError | None:
    """The error for an exception of Spark; None if its cause is unknown."""
    if not _is_of_gateway(error) and not isinstance(error, PySparkException):
        return None
    text = str(error)
    for pattern, kind, sentence in CAUSES:
        match = re.search(pattern, text)
        if match is not None:
            named = {name: value or "" for name, value in match.groupdict().items()}
            return kind(sentence.format(driver=sys.executable, **named))
    return BusyError(GONE) if is_gone(error) else None


def is_gone(error: Exception) -> bool:
    """Whether an error is a lost connection to Spark's driver, not an answer of the driver."""
    return _is_of_gateway(error) and _ANSWER.search(str(error)) is None


def _is_of_gateway(error: Exception) -> bool:
    # Spark Connect does not use py4j, so py4j is not imported here.
    return type(error).__module__.startswith("py4j") or isinstance(
        error, ConnectionError | EOFError
    )
