"""The stored offsets of a topic: the read position of each consumer and group in every partition, as one document."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import xxhash

from retention.core.counters import Counters
from retention.core.documents import judge
from retention.core.stored_documents import KeptOffsets
from retention.errors import BusyError, DamagedError, UsageError
from retention.rules.iggy.evaluate import barrier_of
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.stores.sidecar.versioned_document import versions_in

DIRECTORY = "offsets"
"""The directory of the document, below the topic's root."""
ATTEMPTS = 50
_LONGEST_PAUSE_S = 0.05

_MOST_NAME_BYTES = 255
_HIGHEST_NUMBER = 2**32 - 1

ReaderKind = Literal["consumer", "group"]


@dataclass(frozen=True, order=True)
class Reader:
    """A reader of a partition: a consumer or a group."""

    partition: int
    kind: ReaderKind
    name: str
    """Iggy's number of the reader, in decimal; for a named consumer, the XXH32 of its name."""


def reader_of(partition: int, kind: ReaderKind, name: str | int) -> Reader:
    """The reader with a user-facing name (iggy `Identifier`, docs/semantics/topics.md).

    Args:
        partition: the partition that it reads.
        kind: a single consumer, or a group.
        name: a 32-bit number, or the name of a consumer, which stands for its XXH32 with seed 0.

    Raises:
        UsageError: `name` is invalid, or the name of a group; servers number groups in order of creation.
    """
    text = str(name)
    if kind not in get_args(ReaderKind):
        raise UsageError(f"{kind} is not a kind of reader: write consumer or group")
    if text.isascii() and text.isdigit():
        if int(text) > _HIGHEST_NUMBER:
            raise UsageError(f"{kind} {text} is out of range: numbers go up to {_HIGHEST_NUMBER}")
        return Reader(partition, kind, str(int(text)))
    if kind == "group":
        raise UsageError(
            f"group {text}: the number that a server gave this group does not follow from its name; write the number, "
            "the name of its file below offsets/groups"
        )
    if not 1 <= len(text.encode()) <= _MOST_NAME_BYTES:
        raise UsageError(f"a consumer's name has 1 to {_MOST_NAME_BYTES} bytes; write another one")
    return Reader(partition, kind, str(xxhash.xxh32_intdigest(text.encode())))


@dataclass(frozen=True)
class StoredOffset:
    """A reader's stored position in a partition."""

    offset: int
    """The offset of the last message read."""
    stored_ns: int
    """The time of storing, nanoseconds since the epoch; for an imported offset, the time of the import."""


@dataclass(frozen=True)
class Offsets:
    """All stored offsets of a topic."""

    of: Mapping[Reader, StoredOffset] = field(default_factory=dict)
    version: int = 0
    """The number of documents so far, this one included; 0 if not yet written."""
    revision: int = 0
    """The number of changes that keep messages of a partition longer: a new reader, or a reader that moved back."""
    counted: bool = True
    """Whether the message table's log counts the latest revision."""
    watermarks: Mapping[int, int] = field(default_factory=dict)
    """Partition → the offset up to which `delete-segments` removes sealed segments once no reader holds them."""
    origin: str | None = None
    """The writer's batch that imported the offsets; they count only if that batch was committed."""
    epoch: int = 0
    """The epoch of the offsets and of all other fields."""
    other: Offsets | None = None
    """The last document of another epoch; it counts again after a purge is undone."""

    @property
    def barriers(self) -> dict[int, int]:
        """Partition → the lowest offset that a reader has stored; partitions without readers are omitted."""
        partitions = {reader.partition for reader in self.of}
        lowest = {
            partition: barrier_of(
                stored.offset for reader, stored in self.of.items() if reader.partition == partition
            )
            for partition in partitions
        }
        return {partition: barrier for partition, barrier in lowest.items() if barrier is not None}

    def in_epoch(self, epoch: int) -> Offsets:
        """The document's offsets of an epoch, with the offsets of the newest other epoch as `other`."""
        if self.epoch == epoch:
            return self
        documents = [document for document in (self, self.other) if document is not None]
        chosen = next(
            (document for document in documents if document.epoch == epoch), Offsets(epoch=epoch)
        )
        others = [
            replace(document, other=None) for document in documents if document.epoch != epoch
        ]
        newest = max(others, key=lambda document: document.epoch)
        about = {name: getattr(self, name) for name in ("version", "revision", "counted")}
        return replace(chosen, **about, other=newest)

    def counting(self, counters: Counters) -> Offsets:
        """The offsets of the topic's current epoch, without offsets of an import that was never committed."""
        offsets = self.in_epoch(counters.epoch)
        if offsets.origin is None or counters.batches.get(offsets.origin) is not None:
            return offsets
        return replace(offsets, of={}, origin=None)


Change = Callable[[Offsets], Offsets]
"""A function from the current offsets to the next. It is idempotent: applied to its own result, it changes nothing."""


class OffsetTable:
    """Reads and writes the stored offsets of one topic."""

    def __init__(self, root: str) -> None:
        self._versions = versions_in(files.join(root, DIRECTORY))

    def live(self, counters: Counters) -> Offsets:
        """The current offsets.

        Args:
            counters: the message table's counters; they give its committed imports.

        Raises:
            DamagedError: the document is damaged or missing.
        """
        offsets = self.read()
        if not offsets.version and counters.consumers:
            raise DamagedError(
                f"{self._versions.directory}: there are no stored offsets, but the table's log counts edits of "
                f"them ({counters.consumers}); the messages not yet read are unknown, so nothing was "
                "changed; restore the directory from a copy, or store an offset again"
            )
        return offsets.counting(counters)

    def read(self) -> Offsets:
        """The newest document.

        Raises:
            DamagedError: the document is damaged.
        """
        newest = self._versions.newest()
        if newest is None:
            return Offsets()
        location, version, content = newest
        try:
            return _parsed(parse_json(content), version)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedError(
                f"{location}: these stored offsets cannot be read ({error}); the messages not yet read are "
                "unknown, so nothing was changed; restore the file from a copy"
            ) from error

    def update(self, change: Change) -> Offsets:
        """Replace the newest document with the changed one; an unchanged document is not written.

        Raises:
            DamagedError: the newest document is damaged.
            BusyError: rivals wrote first each time.
        """
        for _ in range(ATTEMPTS):
            before = self.read()
            after = replace(change(before), version=before.version)
            if after == before:
                return after
            after = replace(after, version=before.version + 1)
            if self._versions.add(after.version, _content(after)):
                self._versions.tidy()
                return after
            time.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311
        raise BusyError(
            f"{self._versions.directory}: {ATTEMPTS} times another process stored an offset first; this one was not "
            "stored; try again later"
        )


def _content(offsets: Offsets) -> bytes:
    fields = with_checksum(_fields_of(offsets))
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def offsets_as_json(offsets: Offsets) -> dict[str, object]:
    """Stored offsets as JSON values, without those of another epoch."""
    return _fields_of(replace(offsets, other=None))


def offsets_from_json(values: Mapping[str, object]) -> Offsets:
    """Read the values of `offsets_as_json`; `KeptOffsets` validates them."""
    return _read(dict(values))


def _fields_of(offsets: Offsets) -> dict[str, Any]:
    rows = [
        [reader.partition, reader.kind, reader.name, stored.offset, stored.stored_ns]
        for reader, stored in sorted(offsets.of.items())
    ]
    other = None if offsets.other is None else _fields_of(offsets.other)
    encoded = {"of": rows, "watermarks": sorted(offsets.watermarks.items()), "other": other}
    return vars(offsets) | encoded


def _parsed(document: dict[str, object], version: int) -> Offsets:
    fields = verified(document)
    judge(KeptOffsets, fields)
    offsets = _read(fields)
    if offsets.version != version:
        raise ValueError(f"it is version {offsets.version}")
    return offsets


def _read(fields: dict[str, Any]) -> Offsets:
    of = {
        Reader(part, kind, name): StoredOffset(offset, ns)
        for part, kind, name, offset, ns in fields["of"]
    }
    other = fields.get("other")
    decoded = {
        "of": of,
        "watermarks": dict(fields.get("watermarks", ())),
        "other": None if other is None else _read(other),
    }
    return Offsets(**fields | decoded)
