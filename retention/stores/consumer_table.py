"""The consumer table of a stream: a log of whole records for each consumer; the newest record is valid."""

from __future__ import annotations

import json
import random
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from retention.config.consumer import ConsumerConfig
from retention.consumers.state import UNSEEN, ConsumerState, from_json
from retention.consumers.state_codec import decode_state, encode_state
from retention.core.counters import Counters
from retention.core.documents import judge
from retention.core.spoken_commands import command
from retention.core.stored_documents import KeptConsumer
from retention.core.subjects import name_of_path, path_name
from retention.errors import BusyError, DamagedError, RefusedError, UsageError
from retention.storage import files
from retention.storage.checksum import parse_json, verified, with_checksum
from retention.stores.sidecar.versioned_document import Versions, versions_in

DIRECTORY = "consumers"
"""The directory of all consumers, below the stream's root."""
IMPORTED = "imported.json"
"""The file in that directory with a backup's consumers, as earlier versions of this program stored them."""
ATTEMPTS = 50
_LONGEST_PAUSE_S = 0.05
_FILTERS = ("filter_subject", "filter_subjects")
_ESCAPE = "="
"""The substitute for `%` in escaped names on object stores, where deltalake reads `%` as an escape of its own."""


@dataclass(frozen=True)
class ConsumerRecord:
    """One consumer: its configuration, its state, and the logs, answers and imports that led to that state."""

    consumer: str
    config: Mapping[str, Any]
    """The configuration, with the server's JSON names."""
    state: ConsumerState
    version: int = 0
    """The number of records so far, this one included; 0 if not yet written."""
    revision: int = 0
    """The number of times that the consumer was created, edited or deleted."""
    counted: bool = True
    """Whether the message table's log counts the latest revision."""
    deleted: bool = False
    origin: str | None = None
    """The writer's batch that imported the record; the record is valid only if that batch was committed."""
    folded: Mapping[str, Any] = field(default_factory=dict)
    """Name of an ack log → the position up to which the state includes it."""
    generation: int = 0
    """The generation of the consumer's table; consumers of a dropped table do not exist in the next."""
    changes: Mapping[str, int] = field(default_factory=dict)
    """The times of the last recorded deliveries and answers, each by a name that only its requester knows."""


Change = Callable[[ConsumerRecord | None], ConsumerRecord]
"""A function from the current record to the next. It is idempotent: applied to its own result, it changes nothing."""


class ConsumerTable:
    """Reads and writes `consumers/` of one stream."""

    def __init__(self, root: str, generation: int = 0) -> None:
        """Name the consumers of a table.

        Args:
            root: the stream's directory.
            generation: the table's generation, for reading and writing single records.
        """
        self._directory = files.join(root, DIRECTORY)
        self._generation = generation

    def live(self, counters: Counters) -> list[ConsumerRecord]:
        """The existing consumers, sorted by name.

        Args:
            counters: the message table's counters; they give its generation and its committed imports.

        Raises:
            DamagedError: a record is damaged.
        """
        records = self._imported()
        with suppress(FileNotFoundError):
            for component in files.directories(self._directory):
                record = self._stored(name_of_path(component.replace(_ESCAPE, "%")))
                if record is not None:
                    records[record.consumer] = record
        return [
            record
            for _, record in sorted(records.items())
            if not record.deleted
            and record.generation == counters.generation
            and (record.origin is None or counters.batches.get(record.origin) is not None)
        ]

    def refuse_lost(self, counters: Counters) -> None:
        """Refuse a table that lost all its consumer records; the log counts edits of consumers.

        Raises:
            DamagedError: no record exists, not even of a deleted consumer, but the log counts some.
        """
        if not counters.consumers or files.directories(self._directory) or self._imported():
            return
        raise DamagedError(
            f"{self._directory}: there is no consumer record, but the table's log counts edits of consumers "
            f"({counters.consumers}); the messages that they need are unknown, so nothing was changed; restore that "
            "directory from a copy, or create the consumers again with `retention consumer add`"
        )

    def read(self, consumer: str) -> ConsumerRecord | None:
        """A consumer's newest record, even if deleted; None if this table never had one.

        Raises:
            DamagedError: the record is damaged.
        """
        return self._of_this_table(self._stored(consumer))

    def _of_this_table(self, stored: ConsumerRecord | None) -> ConsumerRecord | None:
        return None if stored is None or stored.generation < self._generation else stored

    def _stored(self, consumer: str) -> ConsumerRecord | None:
        """A consumer's newest record, from any generation of the table."""
        newest = self._versions(consumer).newest()
        if newest is None:
            return self._imported().get(consumer)
        location, version, content = newest
        return _parsed(location, consumer, version, content)

    def update(self, consumer: str, change: Change) -> ConsumerRecord:
        """Replace the newest record with the changed one; an unchanged record is not written.

        No rival loses its change: a process that meets another's new record applies its change to that record.

        Raises:
            DamagedError: the newest record is damaged.
            BusyError: rivals wrote first each time; or the table was dropped, and its successor has this consumer.
        """
        versions = self._versions(consumer)
        for _ in range(ATTEMPTS):
            before = self._stored(consumer)
            if before is not None and before.generation > self._generation:
                raise BusyError(
                    f"{versions.directory}: the stream was dropped meanwhile, and this consumer belongs to the table "
                    "that replaced it; this change was not made; try again"
                )
            after = change(self._of_this_table(before))
            number = 0 if before is None else before.version
            after = replace(after, consumer=consumer, version=number, generation=self._generation)
            if after == before:
                return after
            after = replace(after, version=number + 1)
            if versions.add(number + 1, _content(after)):
                versions.tidy()
                return after
            time.sleep(random.uniform(0, _LONGEST_PAUSE_S))  # noqa: S311
        raise BusyError(
            f"{versions.directory}: {ATTEMPTS} times another process changed this consumer first; this change was not "
            "made; try again later"
        )

    def forget(self, is_named: Callable[[str], bool]) -> None:
        """Delete earlier versions of all records, and the filters of deleted consumers that are named."""
        for component in files.directories(self._directory):
            consumer = name_of_path(component.replace(_ESCAPE, "%"))
            record = self._stored(consumer)
            if record is not None and record.deleted and any(map(is_named, _filters(record))):
                self.update(consumer, _without_filters)
            self._versions(consumer).forget()

    def _versions(self, consumer: str) -> Versions:
        component = path_name(consumer)
        if files.is_remote(self._directory):
            component = component.replace("%", _ESCAPE)
        return versions_in(files.join(self._directory, component))

    def _imported(self) -> dict[str, ConsumerRecord]:
        location = files.join(self._directory, IMPORTED)
        content = files.read_bytes(location)
        if content is None:
            return {}
        try:
            kept = parse_json(content)
            origin = f"nats-backup/{kept['sha256']}"
            return {
                name: ConsumerRecord(
                    name, fields["config"], from_json(fields["state"]), origin=origin
                )
                for name, fields in kept["consumers"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, DamagedError) as error:
            raise DamagedError(
                f"{location}: cannot be read as the consumers of an import ({error!r}); nothing was written; "
                "restore that file from a copy, or remove it to continue without consumers"
            ) from error


def no_consumer(stream: str, name: str) -> UsageError:
    """The error for an unknown consumer of a stream."""
    return UsageError(
        f"{stream}: there is no consumer {name} (error code 10014); nothing was changed; correct its name: "
        f"{command('consumer ls', stream)} lists the existing ones"
    )


def _filters(record: ConsumerRecord) -> list[str]:
    single, several = (record.config.get(name) for name in _FILTERS)
    return [*([single] if single else []), *(several or [])]


def _without_filters(record: ConsumerRecord | None) -> ConsumerRecord:
    """The record of a deleted consumer without the subjects that it took."""
    if record is None:
        raise ValueError("there is no such consumer")
    config = {name: value for name, value in record.config.items() if name not in _FILTERS}
    return replace(record, config=config)


def _content(record: ConsumerRecord) -> bytes:
    fields = vars(record) | {"state": b64encode(encode_state(record.state)).decode()}
    return json.dumps(with_checksum(fields), separators=(",", ":"), ensure_ascii=False).encode()


def _parsed(location: str, consumer: str, version: int, content: bytes) -> ConsumerRecord:
    try:
        fields = verified(parse_json(content))
        judge(KeptConsumer, fields)
        judge(ConsumerConfig, fields["config"])
        state = _state(fields)
        record = ConsumerRecord(**fields | {"state": state})
        _refuse_misplaced(record, consumer, version)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, DamagedError) as error:
        raise DamagedError(
            f"{location}: this record of consumer {consumer} cannot be read ({error}); nothing was changed; restore it "
            "from a copy"
        ) from error
    return record


def _state(fields: dict[str, Any]) -> ConsumerState:
    """Decode a record's state; earlier versions of this program wrote it as the server does, in JSON."""
    if isinstance(fields["state"], str):
        return decode_state(b64decode(fields["state"], validate=True))
    unseen = pa.table(fields.pop("unseen", UNSEEN.empty_table().to_pydict()), schema=UNSEEN)
    active_ns = fields.pop("last_active_ns")
    return replace(from_json(fields["state"]), unseen=unseen, last_active_ns=active_ns)


def _refuse_misplaced(record: ConsumerRecord, consumer: str, version: int) -> None:
    if record.consumer.lower() == consumer.lower() and record.consumer != consumer:
        raise RefusedError(
            f"consumer {consumer} would share its directory with consumer {record.consumer}: the storage does not "
            "distinguish these names; nothing was changed; give one of them a name that differs in more than case"
        )
    if (record.consumer, record.version) != (consumer, version):
        raise ValueError(f"it is version {record.version} of {record.consumer}")
