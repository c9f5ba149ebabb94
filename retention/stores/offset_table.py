"""The stored offsets of a topic: how far each consumer and each group has read every partition, as one document."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import xxhash

from retention.core.documents import KeptOffsets, judge
from retention.core.inventory import Counters
from retention.errors import BusyError, DamagedError, UsageError
from retention.rules.iggy.evaluate import barrier_of
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.stores.sidecar.versioned_document import versions_in

DIRECTORY = "offsets"
"""Below the topic's root."""
ATTEMPTS = 50
_LONGEST_PAUSE_S = 0.05

_MOST_NAME_BYTES = 255
_HIGHEST_NUMBER = 2**32 - 1

ReaderKind = Literal["consumer", "group"]


@dataclass(frozen=True, order=True)
class Reader:
    """Somebody who reads a partition."""

    partition: int
    kind: ReaderKind
    name: str
    """The number by which Iggy knows it, in decimal: that of a named consumer is the XXH32 of its name."""


def reader_of(partition: int, kind: ReaderKind, name: str | int) -> Reader:
    """Somebody by the name that people use (iggy `Identifier`, docs/semantics/topics.md).

    Args:
        partition: what is read.
        kind: a consumer of its own, or a group.
        name: a number of 32 bits, or the name of a consumer, which stands for its XXH32 with seed 0.

    Raises:
        UsageError: it is no name, or that of a group, which servers number as they come.
    """
    text = str(name)
    if kind not in get_args(ReaderKind):
        raise UsageError(f"{kind} reads nothing: write consumer or group")
    if text.isascii() and text.isdigit():
        if int(text) > _HIGHEST_NUMBER:
            raise UsageError(f"{kind} {text} is out of range: numbers go up to {_HIGHEST_NUMBER}")
        return Reader(partition, kind, str(int(text)))
    if kind == "group":
        raise UsageError(
            f"group {text}: which number a server gave this group cannot be told from its name; write the number, the "
            "name of its file below offsets/groups"
        )
    if not 1 <= len(text.encode()) <= _MOST_NAME_BYTES:
        raise UsageError(f"a consumer's name has 1 to {_MOST_NAME_BYTES} bytes; write another one")
    return Reader(partition, kind, str(xxhash.xxh32_intdigest(text.encode())))


@dataclass(frozen=True)
class StoredOffset:
    """How far a reader has come."""

    offset: int
    """Of the last message that it has read."""
    stored_ns: int
    """When it said so, nanoseconds since the epoch; of an import, when that was."""


@dataclass(frozen=True)
class Offsets:
    """All stored offsets of a topic."""

    of: Mapping[Reader, StoredOffset] = field(default_factory=dict)
    version: int = 0
    """How many documents there were before this one, and this one; 0: it is not written yet."""
    revision: int = 0
    """How often a partition came to be held longer: by somebody new, or by one who went back."""
    counted: bool = True
    """Whether the message table's log counts the last of those changes."""
    watermarks: Mapping[int, int] = field(default_factory=dict)
    """Partition → the offset up to which `delete-segments` wants its sealed segments gone, as soon as they are free."""
    origin: str | None = None
    """The writer's batch that brought them: they belong to nothing unless that batch was committed."""
    epoch: int = 0
    """In which the offsets count, and all that is said of them."""
    other: Offsets | None = None
    """What was said in another epoch last: it counts again when a purge is undone."""

    @property
    def barriers(self) -> dict[int, int]:
        """Partition → the lowest offset that anybody has stored; partitions that nobody holds are left out."""
        partitions = {reader.partition for reader in self.of}
        found = {
            partition: barrier_of(
                stored.offset for reader, stored in self.of.items() if reader.partition == partition
            )
            for partition in partitions
        }
        return {partition: barrier for partition, barrier in found.items() if barrier is not None}

    def in_epoch(self, epoch: int) -> Offsets:
        """What the document says of an epoch, and of the newest of the others."""
        if self.epoch == epoch:
            return self
        said = [one for one in (self, self.other) if one is not None]
        mine = next((one for one in said if one.epoch == epoch), Offsets(epoch=epoch))
        others = [replace(one, other=None) for one in said if one.epoch != epoch]
        newest = max(others, key=lambda one: one.epoch)
        about = {name: getattr(self, name) for name in ("version", "revision", "counted")}
        return replace(mine, **about, other=newest)

    def counting(self, counters: Counters) -> Offsets:
        """What counts in the epoch that the topic is in, without what an import brought that was never committed."""
        mine = self.in_epoch(counters.epoch)
        if mine.origin is None or counters.batches.get(mine.origin) is not None:
            return mine
        return replace(mine, of={}, origin=None)


Change = Callable[[Offsets], Offsets]
"""From what is to what shall be; applied again, also to its own outcome, it changes nothing more."""


class OffsetTable:
    """Reads and writes the stored offsets of one topic."""

    def __init__(self, root: str) -> None:
        self._versions = versions_in(files.join(root, DIRECTORY))

    def live(self, counters: Counters) -> Offsets:
        """The offsets that count.

        Args:
            counters: of the message table: they tell which imports were committed.

        Raises:
            DamagedError: the document is not what was written, or is gone.
        """
        found = self.read()
        if not found.version and counters.consumers:
            raise DamagedError(
                f"{self._versions.directory}: no stored offsets are there, though the table's log counts edits of "
                f"them ({counters.consumers}); what consumers have not read yet cannot be told, so nothing was "
                "changed; restore the directory from a copy, or store an offset anew"
            )
        return found.counting(counters)

    def read(self) -> Offsets:
        """The newest document.

        Raises:
            DamagedError: it is not what was written.
        """
        newest = self._versions.newest()
        if newest is None:
            return Offsets()
        location, version, content = newest
        try:
            return _parsed(parse_json(content), version)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedError(
                f"{location}: these stored offsets cannot be read ({error}); what consumers have not read yet cannot "
                "be told, so nothing was changed; restore the file from a copy"
            ) from error

    def update(self, change: Change) -> Offsets:
        """Put the changed document in place of the newest one; nothing is written if it is the same.

        Raises:
            DamagedError: the newest document is not what was written.
            BusyError: rivals kept coming first.
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
    said = with_checksum(_said(offsets))
    return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def offsets_as_json(offsets: Offsets) -> dict[str, Any]:
    """Stored offsets as JSON values; of another epoch, nothing."""
    return _said(replace(offsets, other=None))


def offsets_from_json(values: Mapping[str, Any]) -> Offsets:
    """Read what `offsets_as_json` made; `KeptOffsets` judges it."""
    return _read(dict(values))


def _said(offsets: Offsets) -> dict[str, Any]:
    rows = [
        [reader.partition, reader.kind, reader.name, stored.offset, stored.stored_ns]
        for reader, stored in sorted(offsets.of.items())
    ]
    other = None if offsets.other is None else _said(offsets.other)
    told = {"of": rows, "watermarks": sorted(offsets.watermarks.items()), "other": other}
    return vars(offsets) | told


def _parsed(said: dict[str, Any], version: int) -> Offsets:
    fields = verified(said)
    judge(KeptOffsets, fields)
    found = _read(fields)
    if found.version != version:
        raise ValueError(f"it is version {found.version}")
    return found


def _read(fields: dict[str, Any]) -> Offsets:
    of = {
        Reader(part, kind, name): StoredOffset(offset, ns)
        for part, kind, name, offset, ns in fields["of"]
    }
    other = fields.get("other")
    told = {
        "of": of,
        "watermarks": dict(fields.get("watermarks", ())),
        "other": None if other is None else _read(other),
    }
    return Offsets(**fields | told)
