"""Tasks that run only on workers with the driver's version of this package; another version has other rules."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import pyarrow as pa
from pyspark.sql import DataFrame

from retention.engines.spark.arrow_batches import of_plain_types
from retention.errors import RetentionError

_PACKAGE = "retention"
_DAGS = "retention.airflow_dags"
"""Files that an installed package has and a clone does not; no task imports them."""
Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class OtherCodeError(RetentionError):
    """A worker has another version of this package than the driver; names its location."""


def map_in_arrow(frame: DataFrame, function: Function, columns: str) -> DataFrame:
    """The rows that tasks make from a frame's rows, like `DataFrame.mapInArrow`, without Arrow's large types.

    A worker with other code than the driver's raises `OtherCodeError`, and Spark retries the task on another worker if
    there is one; `spark_failures` has the sentence.
    """
    return frame.mapInArrow(_only_with(code_digest(), function), columns)


def _only_with(digest: str, function: Function) -> Function:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        refuse_other_code(digest)
        yield from function(map(of_plain_types, batches))

    return run


def refuse_other_code(digest: str) -> None:
    """Refuse to work in a process with another version of this package than the one with this digest.

    Raises:
        OtherCodeError: this process has another version.
    """
    if code_digest() != digest:
        raise OtherCodeError(f"{files(_PACKAGE)} on {socket.gethostname()}")


@cache
def code_digest() -> str:
    """The SHA-256 of this project's modules in this process, from a directory or a zip."""
    digest = hashlib.sha256()
    for name, content in _modules(_PACKAGE, files(_PACKAGE)):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _modules(name: str, place: Traversable) -> Iterator[tuple[str, bytes]]:
    """Name and content of the modules of a package and its subpackages, sorted."""
    for entry in sorted(place.iterdir(), key=lambda entry: entry.name):
        inner = f"{name}.{entry.name}"
        if entry.is_dir() and inner != _DAGS:
            yield from _modules(inner, entry)
        elif entry.name.endswith(".py"):
            yield inner, entry.read_bytes()
