"""The records of verifications: the last one of a stream or table, and the progress of one that is not finished."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from retention.core.json_object import JsonObject
from retention.core.units import DAY
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.sidecar import JsonCodec, Sidecar
from retention.verify.data_files import VerifiedFile
from retention.verify.finding import Damage, Unverified, Verdict, Verification

LONGEST_PAUSE_NS = 7 * DAY
"""The time after which an interrupted verification begins anew: what it read says too little about the present."""


@dataclass(frozen=True)
class LastVerification:
    """The last finished verification, in numbers."""

    started_ns: int
    ended_ns: int
    version: int
    verdict: Verdict
    files: int
    read_files: int
    sample: float | None
    damages: int
    unverified: int

    @classmethod
    def of(cls, result: Verification) -> LastVerification:
        """The numbers of a result."""
        return cls(
            result.started_ns,
            result.ended_ns,
            result.version,
            result.verdict,
            result.files,
            result.read_files,
            result.sample,
            len(result.damages),
            len(result.unverified),
        )

    def as_json(self) -> JsonObject:
        """The numbers as JSON values."""
        return asdict(self)


def last_verification(home: str) -> LastVerification | None:
    """The last finished verification of a stream or table; None: there was none, or its record cannot be read.

    Args:
        home: the directory of the stream, or of the table's records.
    """
    return _last(home).load()


def keep_last(home: str, result: Verification) -> None:
    """Record a finished verification, and delete its progress; read-only storage gets no record.

    Raises:
        StorageError: the storage failed.
    """
    with files.if_writable():
        files.make_directory(files.join(home, "_retention"))
        _last(home).write(LastVerification.of(result))
        VerificationProgress(home).delete()


def _last(home: str) -> Sidecar[LastVerification]:
    place = files.join(home, "_retention", "verified.json")
    codec = JsonCodec(asdict, lambda _, fields: LastVerification(**fields))
    return Sidecar(place, codec, Step.VERIFIED)


@dataclass(frozen=True)
class Scope:
    """The scope of a verification; a progress counts only for the same."""

    table_id: str
    sample: float | None
    records: bool


class VerificationProgress:
    """The results of an unfinished verification, in `_retention/verifying/`: a head, and a file for each round."""

    def __init__(self, home: str) -> None:
        """Name the directory of a stream, or of a table's records."""
        self._directory = files.join(home, "_retention", "verifying")

    def begin(self, scope: Scope, now_ns: int) -> tuple[int, dict[str, VerifiedFile]]:
        """Go on with an interrupted verification of the same scope, or begin anew.

        Returns:
            The start of the verification, and the results so far, by the key of each file (`key_of`).
        """
        head = self._head().load(asdict(scope))
        if head is not None and 0 <= now_ns - head < LONGEST_PAUSE_NS:
            return head, dict(self._results(head))
        with files.if_writable():
            self.delete()
            files.make_directory(self._directory)
            self._head().write(now_ns, asdict(scope))
        return now_ns, {}

    def add(self, started_ns: int, results: Mapping[str, VerifiedFile]) -> None:
        """Record the results of a round."""
        name = f"{uuid.uuid4().hex}.round"
        stored = {key: asdict(result) for key, result in results.items()}
        self._round(name).save(stored, started_ns)

    def delete(self) -> None:
        """Delete the progress; its head first, so that no part of it counts afterwards."""
        names = files.names(self._directory)
        ordered = sorted(names, key=lambda name: name.endswith(".round"))
        files.delete(files.join(self._directory, name) for name in ordered)
        reached(Step.VERIFYING_DELETED)

    def _results(self, started_ns: int) -> Iterator[tuple[str, VerifiedFile]]:
        for name in files.names(self._directory):
            stored = self._round(name).load(started_ns) if name.endswith(".round") else None
            for key, fields in (stored or {}).items():
                yield key, _result(fields)

    def _head(self) -> Sidecar[int]:
        place = files.join(self._directory, "head.json")
        return Sidecar(place, JsonCodec(int, lambda _, value: int(value)), Step.VERIFYING_NOTED)

    def _round(self, name: str) -> Sidecar[dict[str, Any]]:
        place = files.join(self._directory, name)
        return Sidecar(place, JsonCodec(dict, lambda _, value: dict(value)), Step.VERIFYING_NOTED)


def _result(fields: Mapping[str, Any]) -> VerifiedFile:
    unverified = fields["unverified"]
    return VerifiedFile(
        fields["path"],
        fields["bytes"],
        tuple(Damage(**each) for each in fields["damages"]),
        None if unverified is None else Unverified(**unverified),
        fields["is_recorded"],
    )


def key_of(path: str, length: int, modified_ms: int) -> str:
    """The key of one state of a data file."""
    return f"{path} {length} {modified_ms}"
