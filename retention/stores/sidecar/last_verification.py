"""The record of the last finished verification of a stream or table, in numbers."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from retention.storage import files
from retention.storage.crash_points import Step
from retention.storage.sidecar import JsonCodec, Sidecar


@dataclass(frozen=True)
class LastVerification:
    """The last finished verification."""

    started_ns: int
    ended_ns: int
    version: int
    verdict: str
    files: int
    read_files: int
    sample: float | None
    """The share of the files that were read; None: all."""
    damages: int
    unverified: int


def last_verification(home: str) -> LastVerification | None:
    """The last finished verification; None: there was none, or its record cannot be read.

    Args:
        home: the directory of the stream, or of the table's records.
    """
    return _sidecar(home).load()


def keep_last_verification(home: str, last: LastVerification) -> None:
    """Record a finished verification.

    Raises:
        StorageError: it cannot be written.
    """
    files.make_directory(files.join(home, "_retention"))
    _sidecar(home).write(last)


def _sidecar(home: str) -> Sidecar[LastVerification]:
    place = files.join(home, "_retention", "verified.json")
    codec = JsonCodec(asdict, lambda _, fields: LastVerification(**fields))
    return Sidecar(place, codec, Step.VERIFIED)
