"""One attempt to commit a swap to a Delta table, on one handle, and its outcome."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from retention.core.counter_names import NEXT_SEQ, OPEN_BASE, named, risen
from retention.core.counters import RUN, Counters
from retention.core.spoken_commands import command
from retention.core.wording import counted
from retention.delta import entries
from retention.delta.entries import Action
from retention.delta.entry_put import put_if_absent
from retention.errors import (
    CommitUnknownError,
    HiddenRowsError,
    RefusedError,
    RetentionError,
    StorageError,
)
from retention.ports import Swap
from retention.schemas.bounds import MAX_SEQ
from retention.schemas.files import FILE_STATS, LOGGED_FILES
from retention.schemas.messages import PARTITION_COLUMNS
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.errors import first_line
from retention.storage.places import delta_name
from retention.stores.checks import swap as swaps
from retention.stores.delta import commit_tokens
from retention.stores.delta.actions import add_action, remove_action
from retention.stores.delta.counters import app_id
from retention.stores.delta.foreign_writers import TABLE, TOKEN, refuse_other_writers
from retention.stores.delta.log import find_token, place_of, version_token_of
from retention.stores.delta.table import DeltaHandle, open_table
from retention.stores.delta.vector_files import vector_of
from retention.stores.layout import Layout, StoreSettings

_log = logging.getLogger(__name__)


class OvertakenError(Exception):
    """Another commit came first, and nothing was committed."""


@dataclass(frozen=True)
class CommitAttempt:
    """One attempt to commit a swap on top of one version."""

    layout: Layout
    settings: StoreSettings
    swap: Swap
    handle: DeltaHandle
    live: pa.Table
    """The handle's files, with min_seq and max_seq if known."""
    counters: Counters
    """The effective counters of the handle."""

    def commit(self, at_ms: int) -> int:
        """Check everything, then commit exactly the next version; return it.

        Args:
            at_ms: the wall clock, for tombstones and transactions.

        Raises:
            OvertakenError: a rival committed first; nothing was committed.
            RefusedError: the table's properties, or its other writers, forbid this swap.
            CommitUnknownError: the outcome of the commit is unknown.
            RetentionError: the storage failed and nothing was committed.
        """
        swaps.check(self.layout.stream, self.swap, self.live, self.counters)
        self._refuse_forbidden()
        swaps.check_staged(self.swap, [self.layout.live(p) for p in _paths(self.swap.add)])
        token, before = uuid.uuid4().hex, self.handle.table
        actions = [self._commit_info(token, at_ms), *self._transactions(at_ms), *self._files(at_ms)]
        reached(Step.DELTA_COMMITTING)
        if version_token_of(self.layout, before.version) != self.handle.token:
            raise OvertakenError("another table was made in its place")
        place = place_of(self.layout, before.version + 1)
        try:
            is_first = put_if_absent(place, entries.encode(actions), token)
        except (CommitUnknownError, StorageError) as error:
            return self._kept(self._find_out(token, error), token)
        if not is_first:
            raise OvertakenError(f"version {before.version + 1} exists")
        reached(Step.DELTA_COMMITTED)
        self._refuse_forgotten(before.version)
        return self._kept(before.version + 1, token)

    def _refuse_forgotten(self, version: int) -> None:
        """Refuse an entry that is left without its base: its version may have been free only after an erasure.

        An erasure deletes the log before a checkpoint. If rivals committed since the base was read, their entries are
        deleted, too, and an entry in the place of one is ignored. An entry before the erasure is deleted itself.
        """
        if _has_entry(self.layout, version):
            return
        if _has_entry(self.layout, version + 1):
            raise CommitUnknownError(
                f"stream {self.layout.stream}: the log was deleted up to version {version} while version {version + 1} "
                "was written, so it is unknown whether this commit happened; look at the stream, delete no file"
            )

    def _commit_info(self, token: str, at_ms: int) -> Action:
        info = {
            "timestamp": at_ms,
            **self._operation(),
            "readVersion": self.handle.table.version,
            "isBlindAppend": False,
            "engineInfo": entries.ENGINE,
            "userMetadata": json.dumps(dict(self.swap.metadata), separators=(",", ":")),
            TOKEN: token,
            TABLE: self.handle.table_id,
        }
        return {"commitInfo": info}

    def _operation(self) -> dict[str, Any]:
        """The operation as Delta names it, with its parameters, for people who read the table's history."""
        swap, removed, added = self.swap, self.swap.remove.num_rows, self.swap.add.num_rows
        metrics = {"numRemovedFiles": str(removed), "numAddedFiles": str(added)}
        parameters = {}
        if "undoes" in swap.metadata:
            name = "RESTORE"
        elif removed:
            name = "DELETE" if swap.data_change else "OPTIMIZE"
        else:
            name = "WRITE"
            partitions = json.dumps(list(PARTITION_COLUMNS))
            parameters = {"mode": "Append", "partitionBy": partitions}
        return {
            "operation": name,
            "operationParameters": parameters,
            "operationMetrics": metrics,
        }

    def _files(self, at_ms: int) -> Iterator[Action]:
        """The swap's file actions."""
        vectors = self.handle.vectors
        loud = self.swap.data_change and not self.settings.quiet
        for row in self.swap.remove.select(LOGGED_FILES.names).to_pylist():
            yield remove_action(row, vectors.get(row["path"]), data_change=loud, at_ms=at_ms)
        for row, is_new in self._added():
            yield add_action(row, vector_of(self.layout, row["path"]), data_change=is_new)

    def _kept(self, version: int, token: str) -> int:
        """Store the token of a commit, check that its entry is intact, and return its version.

        Raises:
            OvertakenError: another program already overwrote the entry; this counts as a rival that committed first.
        """
        if files.is_remote(self.layout.root):
            return version
        try:
            stands = self._stands(version, token)
        except StorageError as error:
            _log.warning(
                "stream %s: version %d is committed; whether another program has overwritten it since cannot be seen "
                "(%s), and the next opening of the table looks again",
                self.layout.stream,
                version,
                error,
            )
            return version
        if not stands:
            raise OvertakenError(f"another program overwrote version {version}")
        return version

    def _stands(self, version: int, token: str) -> bool:
        stands = commit_tokens.keep_token(self.layout, version, token)
        if stands and self.settings.spark_writes:
            time.sleep(commit_tokens.WINDOW_S)
            stands = commit_tokens.stands(self.layout, version)
            if not stands:
                commit_tokens.forget(self.layout, [version])
        return stands

    def _refuse_forbidden(self) -> None:
        if not self.settings.exclusive:
            refuse_other_writers(self.layout, self.handle.table.version)
        stream, rules, swap = self.layout.stream, self.handle.rules, self.swap
        changes = swap.remove.num_rows > 0 and swap.data_change
        if changes and rules.append_only:
            raise RefusedError(
                f"stream {stream}: delta.appendOnly is true, so nothing is ever removed from this table; "
                "nothing was changed; unset that table property"
            )
        if changes and self.settings.quiet and rules.change_data_feed:
            raise RefusedError(
                f"stream {stream}: quiet: true would hide removals from the change data feed; nothing was "
                "changed; set quiet: false, or unset delta.enableChangeDataFeed"
            )
        if rules.rewrites_only and swap.assigns_sequences and swap.add.num_rows:
            raise RefusedError(
                f"stream {stream}: the table has constraints or computed columns, which the engine does not "
                "evaluate, so no new rows can be written; nothing was changed; drop them first"
            )
        refuse_vectors(self.layout, self.handle, swap.remove)

    def _added(self) -> list[tuple[dict[str, Any], bool]]:
        """The files to add, each with whether it counts as new data; streaming readers would get others twice.

        A change data feed derives from data changes, and must report copied and restored messages.
        """
        if not self.swap.add.num_rows:
            return []
        feed = self.swap.data_change and self.handle.rules.change_data_feed
        removed = self.swap.remove.num_rows
        added = self.swap.add.select(FILE_STATS.names).to_pylist()
        new = [self._is_new(row) for row in added]
        if feed and not removed and not all(new):
            _log.warning(
                "stream %s: the table's change feed has to tell of messages that come back, so readers of the table "
                "with skipChangeCommits, ignoreDeletes or ignoreChanges get those again; readers of the feed get "
                "each once",
                self.layout.stream,
            )
        return [(row, feed or is_new) for row, is_new in zip(added, new, strict=True)]

    def _is_new(self, row: Mapping[str, Any]) -> bool:
        """Whether an added file has messages that were never in the table; none has if the swap sets an epoch."""
        if self.swap.again is not None:
            return row["path"] in self.swap.again.new
        next_seq: int = self.counters.next_seq.get(row["partition"], 0)
        return self.swap.epoch is None and row["max_seq"] >= next_seq

    def _transactions(self, at_ms: int) -> list[Action]:
        """The counters that the swap sets, and those raised by rows of other writers."""
        swap, epoch = self.swap, self.counters.epoch
        values = {app_id(name, epoch): value for name, value in self._raised().items()}
        after = epoch if swap.epoch is None else swap.epoch
        sets = risen(swap.sets, self.counters if swap.epoch is None else Counters())
        values |= {app_id(name, after): value for name, value in sets.items()}
        if swap.run_started_ns is not None:
            values[RUN] = swap.run_started_ns
        return [
            {"txn": {"appId": name, "version": value, "lastUpdated": at_ms}}
            for name, value in sorted(values.items())
        ]

    def _raised(self) -> dict[str, int]:
        """Name → value of the counters that files prove to be higher than in the log, within bounds."""
        logged, effective = (
            named({NEXT_SEQ: of.next_seq, OPEN_BASE: of.open_base})
            for of in (self.handle.logged, self.counters)
        )
        return {
            name: value
            for name, value in effective.items()
            if value != logged.get(name) and value <= MAX_SEQ + 1
        }

    def _look_for(self, token: str, error: Exception) -> int | None:
        """The version of our commit, by its token in the log, which must be readable; None if it is not there."""
        stream = self.layout.stream
        try:
            version = find_token(self.layout, token, self.handle.table.version)
            open_table(self.layout)
        except (OSError, RetentionError) as unreadable:
            raise CommitUnknownError(
                f"stream {stream}: the commit failed ({first_line(error)}) and the log cannot be read now; "
                "look at the table's history before anything else, and delete no file"
            ) from unreadable
        return version

    def _find_out(self, token: str, error: Exception) -> int:
        """Find the version of a commit that failed without a rival; raise if there is none."""
        stream = self.layout.stream
        version = self._look_for(token, error)
        if version is not None:
            return version
        if files.is_remote(self.layout.root):
            raise CommitUnknownError(
                f"stream {stream}: the object store did not say whether the commit happened "
                f"({first_line(error)}); look at the table's history in a few minutes, delete no file"
            ) from error
        raise RetentionError(
            f"stream {stream}: the commit could not be written ({first_line(error)}); nothing was changed; "
            "free space or repair the disk, then try again"
        ) from error


def _has_entry(layout: Layout, version: int) -> bool:
    return files.length(place_of(layout, version)) is not None


def refuse_vectors(layout: Layout, handle: DeltaHandle, touched: pa.Table) -> None:
    """Refuse files under a deletion vector that is in the log itself, or outside the table's directory.

    Raises:
        HiddenRowsError: there are such files.
    """
    if not handle.unreadable:
        return
    paths = pa.array(sorted(handle.unreadable), pa.string())
    bad = touched.filter(pc.is_in(touched["path"], value_set=paths))
    if bad.num_rows:
        raise HiddenRowsError(
            f"stream {layout.stream}: {counted(bad.num_rows, 'file carries', 'files carry')} deletion vectors in the "
            f"log itself or outside the table's directory, which only Spark "
            f"can resolve; nothing was changed; {of_vectors(layout)}",
            list(zip(bad["partition"].to_pylist(), bad["segment"].to_pylist(), strict=True)),
        )


def of_vectors(layout: Layout) -> str:
    """The remedy for deletion vectors of another writer, in words."""
    apply = command("apply", layout.stream, options="--engine spark")
    return f"run {apply}, or REORG TABLE {delta_name(layout.messages)} APPLY (PURGE) in Spark"


def _paths(table: pa.Table) -> list[str]:
    paths: list[str] = table["path"].to_pylist()
    return paths
