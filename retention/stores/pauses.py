"""Pauses: records by which people stop all removals of a stream, a table or a warehouse, and allow them again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retention.core.json_object import JsonObject
from retention.core.spoken_commands import command
from retention.core.units import format_instant
from retention.errors import DamagedError, RefusedError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached

_SUFFIX = ".json"
_DIGITS = 20


class _Stored(BaseModel):
    """The fields of a record, as stored."""

    model_config = ConfigDict(extra="forbid", strict=True)
    format: Literal[1]
    kind: Literal["pause", "resume"]
    at_ns: Annotated[int, Field(ge=0, lt=2**63)]
    reason: str
    initiator: dict[str, Any]


@dataclass(frozen=True)
class Pause:
    """A pause in effect."""

    name: str | None
    """The stream or table whose removals are paused; None: those of the whole warehouse."""
    since_ns: int
    """The wall clock when it was placed, nanoseconds since the epoch."""
    reason: str
    initiator: Mapping[str, Any]
    """The process that placed it, as `history.initiator`."""

    def as_json(self) -> JsonObject:
        """The pause as JSON values."""
        return {
            "scope": self.name or "warehouse",
            "since_ns": self.since_ns,
            "reason": self.reason,
            "initiator": dict(self.initiator),
        }


@dataclass(frozen=True)
class PauseRecords:
    """The pauses and resumptions of one stream or table, or of a warehouse: a file each, the last one counts."""

    home: str
    """The directory of the stream, of the table's records, or of the warehouse."""
    name: str | None = None
    """The name of the stream or table; None: the warehouse."""

    def current(self) -> Pause | None:
        """The pause in effect; None: there is none.

        Raises:
            DamagedError: the last record cannot be read.
            StorageError: the storage failed.
        """
        names = self._names()
        if not names:
            return None
        stored = self._read(names[-1])
        if stored.kind == "resume":
            return None
        return Pause(self.name, stored.at_ns, stored.reason, stored.initiator)

    def add(
        self,
        kind: Literal["pause", "resume"],
        reason: str,
        initiator: Mapping[str, Any],
        now_ns: int,
    ) -> None:
        """Record a pause or a resumption, after all earlier records even if the clock is behind them."""
        last = max((int(name[:_DIGITS]) for name in self._names()), default=-1)
        fields = {"format": 1, "kind": kind, "at_ns": now_ns, "reason": reason}
        content = json.dumps(with_checksum(fields | {"initiator": dict(initiator)})).encode()
        name = f"{max(now_ns, last + 1):0{_DIGITS}}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
        files.make_directory(self._directory)
        files.replace(files.join(self._directory, name), content)
        reached(Step.PAUSE_RECORDED)

    @property
    def _directory(self) -> str:
        return files.join(self.home, "_retention", "pauses")

    def _names(self) -> list[str]:
        """The names of the records, in order; leftovers of killed writers have others."""
        listed = files.names(self._directory)
        return sorted(
            name for name in listed if name[:_DIGITS].isdigit() and name.endswith(_SUFFIX)
        )

    def _read(self, name: str) -> _Stored:
        location = files.join(self._directory, name)
        try:
            return _Stored.model_validate(verified(parse_json(files.read_bytes(location) or b"")))
        except (ValueError, TypeError, AttributeError, ValidationError) as error:
            raise DamagedError(
                f"{location}: this record of a pause cannot be read, so it is unknown whether removals are paused; "
                f"nothing was changed; {command('pause', *self._scope, options='--reason …')} or "
                f"{command('resume', *self._scope, options='--reason …')} replaces it"
            ) from error

    @property
    def _scope(self) -> tuple[str, ...]:
        return () if self.name is None else (self.name,)


def pause_of(warehouse: str, home: str, name: str) -> Pause | None:
    """The pause that stops the removals of a stream or table: the warehouse's, or its own; None: neither is in effect.

    Args:
        warehouse: the warehouse's directory or object-store prefix.
        home: the directory of the stream, or of the table's records.
        name: the stream's or table's name.

    Raises:
        DamagedError, StorageError: as `PauseRecords.current`.
    """
    return PauseRecords(warehouse).current() or PauseRecords(home, name).current()


def refuse_paused(warehouse: str, home: str, name: str) -> None:
    """Refuse to remove messages or rows, or to delete removed files, while a person has paused that.

    Args:
        warehouse: as for `pause_of`.
        home: as for `pause_of`.
        name: as for `pause_of`.

    Raises:
        RefusedError: a pause is in effect.
        DamagedError, StorageError: as `PauseRecords.current`.
    """
    pause = pause_of(warehouse, home, name)
    if pause is None:
        return
    scope = () if pause.name is None else (pause.name,)
    paused = "removals are paused" if scope else "removals of the whole warehouse are paused"
    raise RefusedError(
        f"{name}: {paused} since {format_instant(pause.since_ns)} by {pause.initiator.get('user', 'an unknown user')} "
        f"({pause.reason}); nothing was changed; {command('resume', *scope, options='--reason …')} ends the pause"
    )
