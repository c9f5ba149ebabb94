"""Sidecars: disposable files beside a table; a doubtful one counts as absent, and its next user rebuilds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached

Value = TypeVar("Value")

FIRST_EDITION = 1
_CHECK = "check"
DOUBTS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
)
"""Errors for a file that is absent, unreadable, torn, altered, or of another format."""


@dataclass(frozen=True)
class SidecarLabel:
    """The edition and the source state of a sidecar's value."""

    edition: int = FIRST_EDITION
    """The edition of the format and of the rules that compute the value; values of other editions do not count."""
    state: Any = None
    """The source of the value, as JSON: a table's version token with its seal, a policy; None if the location suffices.

    A version number alone is never enough: a table restored from a copy reaches the same number with other commits.
    """


@dataclass(frozen=True)
class SidecarRecord(Generic[Value]):
    """A sidecar's content, with its checksum verified."""

    label: SidecarLabel
    value: Value
    checksum: str = ""
    """The checksum of label and value, if the codec has a single one."""


class Codec(Protocol[Value]):
    """The encoding of a value and its label, with a checksum."""

    def write(self, sink: Any, label: SidecarLabel, value: Value) -> None:
        """Write a value to an open file."""
        ...

    def read(self, place: str) -> SidecarRecord[Value]:
        """Read the record that `write` wrote to a file; no file and other bytes raise an error of `DOUBTS`."""
        ...


@dataclass(frozen=True)
class Sidecar(Generic[Value]):
    """One file beside a table: its location, its encoding, and its conditions of validity.

    For a file that is absent, unreadable, torn, altered, of another edition or of another state, a reader gets `None`,
    never an error or a wrong value. A write replaces the whole file.
    """

    place: str
    codec: Codec[Value]
    step: Step
    """The crash point after a write."""
    edition: int = FIRST_EDITION

    def load(self, state: object = None) -> Value | None:
        """The value, if its source is exactly this state."""
        record = self.latest()
        return record.value if record is not None and record.label.state == state else None

    def latest(self) -> SidecarRecord[Value] | None:
        """The current record, of any state, for readers that compare the state themselves or update the value."""
        try:
            record = self.codec.read(self.place)
        except DOUBTS:
            return None
        return record if record.label.edition == self.edition else None

    def save(self, value: Value, state: object = None) -> bool:
        """Replace the value, which only saves work; False if the storage refuses."""
        try:
            self.write(value, state)
        except OSError:
            return False
        return True

    def save_unsynced(self, value: Value, state: object = None) -> None:
        """Replace the value like `write_unsynced`, if the storage permits."""
        with suppress(OSError):
            self.write_unsynced(value, state)

    def write_unsynced(self, value: Value, state: object = None) -> None:
        """Replace the value without an fsync: a power failure may leave the previous value, or none.

        Raises:
            StorageError: the storage refuses; the previous value remains.
        """
        self._write(files.create_unsynced, value, state)

    def write(self, value: Value, state: object = None) -> None:
        """Replace the value.

        Raises:
            StorageError: the storage refuses; the previous value remains.
        """
        self._write(files.create, value, state)

    def _write(
        self, create: Callable[[str], AbstractContextManager[Any]], value: Value, state: object
    ) -> None:
        with create(self.place) as sink:
            self.codec.write(sink, SidecarLabel(self.edition, state), value)
        reached(self.step)


@dataclass(frozen=True)
class JsonCodec(Generic[Value]):
    """One JSON object with a checksum of its whole content, for small values."""

    to_json: Callable[[Value], object]
    from_json: Callable[[Any, Any], Value]
    """A function from the state and the result of `to_json` to the value."""

    def write(self, sink: Any, label: SidecarLabel, value: Value) -> None:
        """Write the object as UTF-8."""
        sink.write(
            json.dumps(with_checksum({**vars(label), "value": self.to_json(value)})).encode()
        )

    def read(self, place: str) -> SidecarRecord[Value]:
        """Read the object; one without a checksum is rejected."""
        stored = files.read_bytes(place)
        if stored is None:
            raise FileNotFoundError(place)
        document: dict[str, object] = parse_json(stored)
        checksum = str(document[_CHECK])
        content = verified(document)
        label = SidecarLabel(content["edition"], content["state"])
        return SidecarRecord(label, self.from_json(label.state, content["value"]), checksum)
