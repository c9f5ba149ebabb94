"""Versions of a small document on an object store: each is carried by a commit to a Delta table without rows."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.exceptions import CommitFailedError, DeltaError

from retention.errors import DamagedError
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import storage_error
from retention.stores.checks.exclusion import refuse_without_exclusion
from retention.stores.delta import internals

CHECKPOINT_EVERY = 10
_RECORD = "record"
_SHAPE = pa.schema([pa.field(_RECORD, pa.string())])
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_PROPERTIES = {"delta.logRetentionDuration": "interval 1 days"}
"""The table's properties: older versions that a checkpoint replaces are deleted."""


@dataclass(frozen=True)
class CommitVersions:
    """Implements `versioned_document.Versions`: the store refuses the second of two commits of one version."""

    directory: str

    def newest(self) -> tuple[str, int, bytes] | None:
        """Location, number and content of the newest version; None if there is none."""
        while numbers := self._numbers():
            location = self._entry(numbers[-1])
            entry = files.read_bytes(location)
            if entry is not None:
                return location, numbers[-1], _record(location, entry)
        return None

    def add(self, number: int, content: bytes) -> bool:
        """Commit a version; False if a rival committed first."""
        refuse_without_exclusion(self.directory)
        options = files.storage_options()
        try:
            if number == 1:
                self._make_table(options)
            table = DeltaTable(self.directory, storage_options=options)
            if table.version() != number - 1:
                return False
            table.create_write_transaction(
                [],
                "append",
                _SHAPE,
                partition_by=[],
                commit_properties=CommitProperties(
                    custom_metadata={_RECORD: content.decode()}, max_commit_retries=0
                ),
                post_commithook_properties=_NO_HOOKS,
            )
        except CommitFailedError:
            # After a lost response, our own commit looks like a rival's; its content distinguishes them.
            entry = files.read_bytes(self._entry(number))
            return entry is not None and _record(self._entry(number), entry) == content
        except (DeltaError, OSError) as error:
            raise storage_error(self.directory, error) from error
        reached(Step.CONSUMER_WRITTEN)
        return True

    def tidy(self) -> None:
        """Write a checkpoint every ten versions, and delete the versions before it that are older than a day."""
        numbers = self._numbers()
        if numbers and numbers[-1] % CHECKPOINT_EVERY == 0:
            table = DeltaTable(self.directory, storage_options=files.storage_options())
            table.create_checkpoint()
            table.cleanup_metadata()
            reached(Step.CONSUMER_TIDIED)

    def forget(self) -> None:
        """Write a checkpoint, and delete all versions but the newest."""
        numbers = self._numbers()
        if numbers:
            DeltaTable(self.directory, storage_options=files.storage_options()).create_checkpoint()
            files.delete(internals.log_places(self.directory, numbers[-1]))
            reached(Step.CONSUMER_TIDIED)

    def _make_table(self, options: dict[str, str]) -> None:
        """Create the table, unless it exists or a rival creates it at the same moment."""
        with suppress(CommitFailedError):
            DeltaTable.create(
                self.directory,
                _SHAPE,
                mode="ignore",
                configuration=_PROPERTIES,
                storage_options=options,
                # A retry would recreate the table, in place of the first document.
                commit_properties=CommitProperties(max_commit_retries=0),
            )

    def _numbers(self) -> list[int]:
        """The numbers of versions with a document; the first version only creates the table."""
        names = internals.log_names(self.directory)
        stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(int(name) for name in stems if name.isdigit() and int(name) > 0)

    def _entry(self, number: int) -> str:
        return internals.entry_place(self.directory, number)


def _record(location: str, entry: bytes) -> bytes:
    try:
        lines = map(json.loads, entry.splitlines())
        content = next(line["commitInfo"][_RECORD] for line in lines if "commitInfo" in line)
        return str(content).encode()
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise DamagedError(
            f"{location}: this version of a document cannot be read ({error!r}); nothing was changed; restore it from "
            "a copy"
        ) from error
