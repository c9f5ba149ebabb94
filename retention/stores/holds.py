"""Records of legal holds: an immutable file for each hold of a stream, and one more when it ends."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from retention.core.json_object import JsonObject
from retention.core.table_policy import Unit
from retention.core.units import SECOND
from retention.errors import DamagedError
from retention.rules.holds import EVERY_SEQ, FOREVER_NS, SINCE_EVER_NS, HeldMessages
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.stores.hold_listing import DIRECTORY, PLACED, record_names

ENDED = ".ended.json"
RANGES = ".parquet"
_TEXTS = ("subject", "reason", "owner")
_IN_RECORD = 1_000
"""The maximum number of ranges in a record; more are stored in a file beside it."""

CONFIGURATION = "configuration"
"""The key under which the initiator of a legal hold has the configuration that placed it."""

Instant = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class TimeOfRows(BaseModel):
    """The time column of a table, as configured when a legal hold by time was placed."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    column: str
    unit: Unit | None = None
    zone: str | None = None


class _Placed(BaseModel):
    """The fields of a record that places a legal hold, as stored."""

    model_config = ConfigDict(extra="forbid", strict=True)
    format: Literal[1]
    id: str
    subject: str | None
    ranges: list[Annotated[list[int], Field(min_length=2, max_length=2)]] | None
    ranges_sha256: str | None
    from_ns: Instant | None
    to_ns: Instant | None
    until_ns: Instant | None
    reason: str
    owner: str | None
    at_ns: Instant
    initiator: dict[str, Any]
    values: dict[str, str] | None = None
    time: TimeOfRows | None = None


class _Ended(BaseModel):
    """The fields of a record that ends a legal hold, as stored."""

    model_config = ConfigDict(extra="forbid", strict=True)
    format: Literal[1]
    kind: Literal["released", "expired"]
    reason: str
    at_ns: Instant
    initiator: dict[str, Any]


@dataclass(frozen=True)
class HoldEnd:
    """The end of a legal hold."""

    kind: Literal["released", "expired"]
    """Released by a person, or expired at its `until`."""
    at_ns: int
    """The wall clock when that was recorded, nanoseconds since the epoch."""
    reason: str
    initiator: Mapping[str, Any]


@dataclass(frozen=True)
class Hold:
    """A legal hold, as placed."""

    stream: str
    id: str
    reason: str
    subject: str | None = None
    ranges: np.ndarray | None = None
    """Ascending, disjoint ranges of sequences, both ends inclusive, shape (n, 2); None: all sequences."""
    from_ns: int | None = None
    to_ns: int | None = None
    """The instants at and before which messages were stored; the second is exclusive."""
    until_ns: int | None = None
    """The wall clock at which it expires; None: it is kept until released."""
    owner: str | None = None
    at_ns: int = 0
    """The wall clock when it was placed, nanoseconds since the epoch."""
    initiator: Mapping[str, Any] | None = None
    end: HoldEnd | None = None
    """Its end; None: it is in effect."""
    values: Mapping[str, str] | None = None
    """Column of a table in place → the value of covered rows, as text; None: any values."""
    time: TimeOfRows | None = None
    """The column to which `from_ns` and `to_ns` refer in a table in place; None: they do not restrict its rows."""
    after_runs: tuple[str, ...] = ()
    """Runs on a table in place that were committing when it was placed, and may remove rows that it covers."""

    line: Literal["pending", "deleted"] | None = None
    """`pending`: the configuration or the ledger has it, and no record places it yet: runs plan as if in effect.
    `deleted`: it is in effect, and the configuration from which it came no longer has it. None: neither."""

    @property
    def messages(self) -> HeldMessages:
        """The messages that it covers."""
        return HeldMessages(
            self.id,
            self.subject,
            EVERY_SEQ if self.ranges is None else self.ranges,
            SINCE_EVER_NS if self.from_ns is None else self.from_ns,
            FOREVER_NS if self.to_ns is None else self.to_ns,
        )

    def is_due(self, now_ns: int) -> bool:
        """Whether its `until` has passed."""
        return self.until_ns is not None and self.until_ns <= now_ns

    def was_in_effect(self, since_ns: int | None, until_ns: int | None) -> bool:
        """Whether it was in effect, on record, at some time from one instant until before another; None: no limit."""
        begins_too_late = until_ns is not None and self.at_ns >= until_ns
        ended = since_ns is not None and self.end is not None and self.end.at_ns < since_ns
        return self.line != "pending" and not begins_too_late and not ended

    def as_json(self) -> JsonObject:
        """The legal hold as JSON values; of many ranges only their number and bounds."""
        ranges = self.ranges
        values: JsonObject = {
            "stream": self.stream,
            "id": self.id,
            "subject": self.subject,
            "from_seq": None if ranges is None else int(ranges[0, 0]),
            "to_seq": None if ranges is None else int(ranges[-1, 1]),
            "ranges": None if ranges is None else len(ranges),
            "from_ns": self.from_ns,
            "to_ns": self.to_ns,
            "until_ns": self.until_ns,
            "reason": self.reason,
            "owner": self.owner,
            "at_ns": self.at_ns,
            "initiator": dict(self.initiator or {}),
        }
        if self.values is not None:
            values["key"] = dict(self.values)
        if self.time is not None:
            values["time"] = self.time.column
        if self.line is not None:
            values["line"] = self.line
        if self.after_runs:
            values["after_runs"] = list(self.after_runs)
        if self.end is not None:
            values["end"] = vars(self.end) | {"initiator": dict(self.end.initiator)}
        return values


@dataclass(frozen=True)
class HoldRecords:
    """The records of the legal holds of one stream."""

    root: str
    """The stream's directory."""
    stream: str

    def count(self) -> int:
        """The number of records: of legal holds placed, and of those that ended."""
        return len(record_names(self.root))

    def names(self) -> set[str]:
        """The names of the records."""
        return record_names(self.root)

    def missing(self, name: str) -> DamagedError:
        """The error of a record that is missing."""
        return self._damaged(files.join(self._directory, name))

    def has(self, hold_id: str) -> bool:
        """Whether a legal hold was placed on the stream, also one that ended; reads no record."""
        return f"{hold_id}{PLACED}" in files.names(self._directory)

    def all(self) -> list[Hold]:
        """All legal holds, in the order in which they were placed, including those that ended.

        Raises:
            DamagedError: a record cannot be read.
            StorageError: the storage failed.
        """
        names = set(files.names(self._directory))
        ended = {name.removesuffix(ENDED) for name in names if name.endswith(ENDED)}
        placed = sorted(
            name.removesuffix(PLACED)
            for name in names
            if name.endswith(PLACED) and not name.endswith(ENDED)
        )
        alone = ended.difference(placed)
        if alone:
            raise self._damaged(self._place(min(alone), PLACED))
        return [self._read(hold_id, has_ended=hold_id in ended) for hold_id in placed]

    def in_effect(self) -> tuple[Hold, ...]:
        """The legal holds that no record ends, in the order in which they were placed.

        Raises:
            DamagedError, StorageError: as `all`.
        """
        return tuple(hold for hold in self.all() if hold.end is None)

    def place(self, hold: Hold) -> None:
        """Record a legal hold."""
        files.make_directory(self._directory)
        ranges, digest = hold.ranges, None
        if ranges is not None and len(ranges) > _IN_RECORD:
            from retention.stores.hold_ranges import as_parquet

            content = as_parquet(ranges)
            digest = hashlib.sha256(content).hexdigest()
            files.replace(self._place(hold.id, RANGES), content)
            reached(Step.HOLD_RANGES_WRITTEN)
        inline = None if ranges is None or digest is not None else ranges.tolist()
        self._write(
            hold.id,
            PLACED,
            {
                "format": 1,
                "id": hold.id,
                "subject": hold.subject,
                "ranges": inline,
                "ranges_sha256": digest,
                "from_ns": hold.from_ns,
                "to_ns": hold.to_ns,
                "until_ns": hold.until_ns,
                "reason": hold.reason,
                "owner": hold.owner,
                "at_ns": hold.at_ns,
                "initiator": dict(hold.initiator or {}),
                **_of_table(hold),
            },
        )

    def end(self, hold: Hold, end: HoldEnd) -> None:
        """Record the end of a legal hold."""
        fields = vars(end) | {"format": 1, "initiator": dict(end.initiator)}
        self._write(hold.id, ENDED, fields)

    def conceal(self, hold: Hold, concealed: Callable[[str], str]) -> None:
        """Replace what names an erased message in the records of a legal hold that has ended.

        Args:
            hold: the legal hold.
            concealed: a function from each text of the records to its replacement.
        """
        for suffix in (PLACED, ENDED):
            fields = _fields(self._place(hold.id, suffix))
            texts = {name: fields[name] for name in _TEXTS if fields.get(name) is not None}
            changed = fields | {name: concealed(text) for name, text in texts.items()}
            if values := fields.get("values"):
                changed["values"] = {name: concealed(text) for name, text in values.items()}
            content = json.dumps(with_checksum(changed)).encode()
            files.replace(self._place(hold.id, suffix), content)
        reached(Step.HOLD_CONCEALED)

    @property
    def _directory(self) -> str:
        return files.join(self.root, DIRECTORY)

    def _place(self, hold_id: str, suffix: str) -> str:
        return files.join(self._directory, f"{hold_id}{suffix}")

    def _write(self, hold_id: str, suffix: str, fields: Mapping[str, object]) -> None:
        content = json.dumps(with_checksum(fields)).encode()
        files.replace(self._place(hold_id, suffix), content)
        reached(Step.HOLD_RECORDED)

    def _read(self, hold_id: str, *, has_ended: bool) -> Hold:
        location = self._place(hold_id, PLACED)
        try:
            placed = _Placed.model_validate(_fields(location) | {"id": hold_id})
            ranges = self._ranges(placed)
            hold = Hold(
                self.stream,
                hold_id,
                placed.reason,
                placed.subject,
                ranges,
                placed.from_ns,
                placed.to_ns,
                placed.until_ns,
                placed.owner,
                placed.at_ns,
                placed.initiator,
                values=placed.values,
                time=placed.time,
            )
            if not has_ended:
                return hold
            location = self._place(hold_id, ENDED)
            ended = _Ended.model_validate(_fields(location))
            return replace(
                hold, end=HoldEnd(ended.kind, ended.at_ns, ended.reason, ended.initiator)
            )
        except (ValueError, TypeError, AttributeError, ValidationError, pa.ArrowException) as error:
            raise self._damaged(location) from error

    def _ranges(self, placed: _Placed) -> np.ndarray | None:
        from retention.stores.hold_ranges import from_parquet

        if placed.ranges_sha256 is not None:
            content = files.read_bytes(self._place(placed.id, RANGES)) or b""
            if hashlib.sha256(content).hexdigest() != placed.ranges_sha256:
                raise ValueError("its ranges are not as written")
            ranges = from_parquet(content)
        elif placed.ranges is None:
            return None
        else:
            ranges = np.array(placed.ranges, dtype=np.int64).reshape(-1, 2)
        if not len(ranges) or (ranges[:, 0] > ranges[:, 1]).any():
            raise ValueError("its ranges are not valid")
        if (ranges[1:, 0] <= ranges[:-1, 1]).any():
            raise ValueError("its ranges are not in order")
        return ranges

    def _damaged(self, location: str) -> DamagedError:
        return DamagedError(
            f"{location}: this record of a legal hold is missing or cannot be read, so it is unknown which messages of "
            f"{self.stream} must be kept; nothing was removed; restore the file from a copy"
        )


def configured(hold: Hold, initiator: Mapping[str, Any], file: str) -> Hold:
    """A legal hold as placed by a configuration."""
    return replace(hold, initiator={**initiator, CONFIGURATION: file}, line=None)


def listed_holds(
    recorded: Sequence[Hold], names: Set[str], written: Sequence[Hold], now_ns: int
) -> tuple[Hold, ...]:
    """The legal holds in effect, and those that are written in the configuration and not recorded yet.

    Args:
        recorded: those in effect by their records.
        names: the names of all records, also of legal holds that ended.
        written: those of the configuration.
        now_ns: the wall clock; a legal hold that would expire at once is not placed.
    """
    ids = {hold.id for hold in written}
    in_effect = [
        replace(hold, line="deleted")
        if CONFIGURATION in (hold.initiator or {}) and hold.id not in ids
        else hold
        for hold in recorded
    ]
    pending = (hold for hold in written if f"{hold.id}{PLACED}" not in names)
    return (
        *in_effect,
        *(replace(hold, line="pending") for hold in pending if not hold.is_due(now_ns)),
    )


def new_id(now_ns: int) -> str:
    """A new id of a legal hold: the second in which it is placed, and a random part."""
    second = datetime.fromtimestamp(now_ns // SECOND, UTC)
    return f"{second:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def _of_table(hold: Hold) -> JsonObject:
    """The fields that only the record of a table has, so that earlier builds read those of streams."""
    fields: JsonObject = {}
    if hold.values is not None:
        fields["values"] = dict(hold.values)
    if hold.time is not None:
        fields["time"] = hold.time.model_dump()
    return fields


def _fields(location: str) -> dict[str, Any]:
    return verified(parse_json(files.read_bytes(location) or b""))
