"""The progress of a verification that is not finished, kept beside the stream until it is."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from retention.core.units import DAY
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.sidecar import JsonCodec, Sidecar
from retention.stores.sidecar.last_verification import keep_last_verification, last_verification
from retention.verify.data_files import VerifiedFile
from retention.verify.finding import Damage, Unverified, Verification

LONGEST_PAUSE_NS = 7 * DAY
"""The time after which an interrupted verification begins anew: what it read says too little about the present."""


def keep_last(home: str, result: Verification) -> Verification:
    """Record a finished verification, and delete its progress; read-only storage gets no record.

    Returns:
        The result, with whether it has a record.

    Raises:
        StorageError: the storage failed.
    """
    has_record = False
    with files.if_writable():
        keep_last_verification(home, result.summary())
        has_record = True
        VerificationProgress(home).delete()
    return replace(result, has_record=has_record)


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
        self._home = home
        self._directory = files.join(home, "_retention", "verifying")

    def begin(self, scope: Scope, now_ns: int) -> tuple[int, dict[str, VerifiedFile]]:
        """Go on with an interrupted verification of the same scope, or begin anew, as after one that was recorded.

        Returns:
            The start of the verification, and the results so far, by the key of each file (`key_of`).
        """
        head = self._head().load(asdict(scope))
        last = last_verification(self._home)
        is_over = last is not None and last.started_ns == head
        if head is not None and not is_over and 0 <= now_ns - head < LONGEST_PAUSE_NS:
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
