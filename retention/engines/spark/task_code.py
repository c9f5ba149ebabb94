"""Tasks that run only where a worker has this package as the driver has it: another version has other rules."""

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

_PACKAGES = ("retention", "schemas")
"""The packages of this project that tasks import."""
Function = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class OtherCodeError(RetentionError):
    """A worker has another version of this package than the driver; says where."""


def in_tasks(frame: DataFrame, function: Function, columns: str) -> DataFrame:
    """The rows that tasks make of a frame's, as `DataFrame.mapInArrow`; texts and binaries are never large.

    A worker with other code than the driver's raises `OtherCodeError`, and Spark tries the task elsewhere, where it
    can; `spark_failures` has the sentence.
    """
    return frame.mapInArrow(_only_with(code_digest(), function), columns)


def _only_with(digest: str, function: Function) -> Function:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if code_digest() != digest:
            raise OtherCodeError(f"{files(_PACKAGES[0])} on {socket.gethostname()}")
        yield from function(map(of_plain_types, batches))

    return run


@cache
def code_digest() -> str:
    """The SHA-256 of the modules that this process imports from, in a directory or in a zip."""
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for name, content in _modules(package, files(package)):
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _modules(name: str, place: Traversable) -> Iterator[tuple[str, bytes]]:
    """Name and content of the modules of a package and of those inside it, sorted."""
    for entry in sorted(place.iterdir(), key=lambda entry: entry.name):
        inner = f"{name}.{entry.name}"
        if entry.is_dir():
            yield from _modules(inner, entry)
        elif entry.name.endswith(".py"):
            yield inner, entry.read_bytes()
