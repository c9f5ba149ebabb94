"""A store without a table format: files in a folder, versions in a list, and rivals and faults on demand."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.config.stream import StreamConfig
from retention.context.context import OpenedStream
from retention.core.counter_names import counters_of
from retention.core.counters import Counters
from retention.core.inventory import DataFile, Inventory, slot_of
from retention.datafile.subject_digest import unpack
from retention.engine_port import Run, run_here
from retention.errors import ConflictError
from retention.ports import Lifetime, LostCommit, Returned, Snapshot, Swap, VersionToken
from retention.schemas.files import FILE_STATS, LOGGED_FILES, SUBJECT_COUNTS_OF_FILES
from retention.schemas.messages import FILE_COLUMNS
from retention.stores.checks.inventory import in_order


@dataclass
class PlainStore:
    """One stream in a folder; `before_commit` runs first in each commit, and may raise or let a rival commit."""

    folder: Path
    stream: str = "ORDERS"
    versions: list[tuple[pa.Table, Counters]] = field(default_factory=list)
    swaps: list[Swap] = field(default_factory=list)
    before_commit: list[Callable[[], None]] = field(default_factory=list)
    after_commit: list[Callable[[], None]] = field(default_factory=list)
    subject_reads: int = 0

    def store(self) -> PlainStore:
        return self

    def exists(self) -> bool:
        return bool(self.versions)

    def lifetime(self) -> Lifetime:
        return Lifetime()

    def create(self) -> None:
        if not self.versions:
            self.versions.append((FILE_STATS.empty_table(), Counters()))

    def version_token(self) -> None:
        return None

    def incremental_inventory(self, token: VersionToken) -> None:
        del token

    def cache_inventory(self, inventory: Inventory, token: VersionToken) -> None:
        del inventory, token

    def snapshot(self) -> Snapshot:
        files, counters = self.versions[-1]
        return Snapshot(len(self.versions) - 1, "plain", files, counters)

    def resurrected_files(self) -> tuple[Snapshot, tuple[Returned, ...]]:
        return self.snapshot(), ()

    def lost_commits(self) -> tuple[Snapshot, tuple[LostCommit, ...]]:
        return self.snapshot(), ()

    def inventory(self, snapshot: Snapshot, run: Run = run_here) -> Inventory:
        del run
        files, counters = self.versions[snapshot.version]
        return Inventory(self.stream, "plain", snapshot.version, in_order(files), counters)

    def partition_valid_files(self, snapshot: Snapshot) -> tuple[pa.Table, pa.Table]:
        """All files have valid sequences."""
        return self.inventory(snapshot).files, LOGGED_FILES.empty_table()

    def logged_counters(self, snapshot: Snapshot) -> Counters:
        """Files have no more than the counters."""
        return snapshot.counters

    def last_counted(self, snapshot: Snapshot) -> Mapping[int, int]:
        """The counters have not fallen."""
        return snapshot.counters.next_seq

    def count_undescribed(self, snapshot: Snapshot) -> int:
        del snapshot
        return 0

    def subject_counts(self, files: pa.Table) -> pa.Table:
        self.subject_reads += 1
        parts = []
        for number, file in enumerate(self.data_files(files)):
            counts = unpack(Path(file.digest_location).read_bytes()).counts
            numbers = pa.array([number] * counts.num_rows, pa.int64())
            parts.append(counts.add_column(0, SUBJECT_COUNTS_OF_FILES.field("file"), numbers))
        return pa.concat_tables([SUBJECT_COUNTS_OF_FILES.empty_table(), *parts])

    def stage(
        self, partition: int, segment: int, count: int = 1, *, merged: bool = False
    ) -> tuple[DataFile, ...]:
        directory = f"partition={partition}/segment={segment}"
        names = (f"{directory}/{uuid.uuid4().hex}.parquet" for _ in range(count))
        return tuple(self._file(name, partition, segment) for name in names)

    def stage_copy(self, source: DataFile) -> DataFile:
        return self.stage(source.partition, source.segment)[0]

    def stage_vector(self, source: DataFile) -> DataFile:
        raise NotImplementedError(source.path)

    def hidden_rows(self, snapshot: Snapshot) -> Mapping[str, int]:
        del snapshot
        return {}

    def takes_vector(self, snapshot: Snapshot, row: Mapping[str, object]) -> bool:
        del snapshot, row
        return False

    def data_files(self, files: pa.Table) -> list[DataFile]:
        return [
            self._file(row["path"], row["partition"], row["segment"]) for row in files.to_pylist()
        ]

    def commit(self, swap: Swap, snapshot: Snapshot) -> int:
        if self.before_commit:
            self.before_commit.pop(0)()
        if snapshot.version != len(self.versions) - 1:
            raise ConflictError(f"{self.stream}: a rival came first; try again")
        files, old = self.versions[-1]
        live = files.filter(pc.invert(pc.is_in(files["path"], swap.remove["path"])))
        sets = counters_of(swap.sets)
        counters = Counters(
            {**old.next_seq, **sets.next_seq},
            {**old.open_base, **sets.open_base},
            {**old.batches, **sets.batches},
            {**old.edits, **sets.edits},
        )
        self.versions.append((pa.concat_tables([live, swap.add]), counters))
        self.swaps.append(swap)
        if self.after_commit:
            self.after_commit.pop(0)()
        return len(self.versions) - 1

    def head(self, snapshot: Snapshot) -> None:
        """Commits need a snapshot."""

    def spent_notes(self, snapshot: Snapshot) -> list[str]:
        """Nothing is noted."""
        return []

    def compact_statistics(self, snapshot: Snapshot) -> None:
        """Nothing is stored in addition to the table."""

    def discard(self, paths: Sequence[str]) -> None:
        for path in paths:
            slot = self.folder / slot_of(path)
            for written in slot.parent.glob(f"{slot.name}*"):
                written.unlink()

    def find_commit(self, run: str, after: int = -1) -> int | None:
        runs = [swap.metadata["run"] for swap in self.swaps]
        return runs.index(run) + 1 if run in runs else None

    def has_entries(self, after: int, until: int) -> bool:
        return True

    def finish(self) -> None:
        pass

    def rows(self) -> pa.Table:
        """All live messages, ascending by sequence, with their `segment`."""
        parts = [FILE_COLUMNS.empty_table().append_column("segment", pa.array([], pa.int64()))]
        for file in self.data_files(self.versions[-1][0]):
            table = pq.ParquetFile(file.location).read()
            parts.append(
                table.append_column(
                    "segment", pa.array([file.segment] * table.num_rows, pa.int64())
                )
            )
        return pa.concat_tables(parts).sort_by("seq")

    def leftovers(self) -> list[Path]:
        """Data files in the folder that are in no version."""
        named = {path for files, _ in self.versions for path in files["path"].to_pylist()}
        found = self.folder.rglob("segment=*/*.parquet")
        return [file for file in found if str(file.relative_to(self.folder)) not in named]

    def _file(self, path: str, partition: int, segment: int) -> DataFile:
        location = self.folder / path
        location.parent.mkdir(parents=True, exist_ok=True)
        digest = self.folder / "digests" / f"{location.stem}.parquet"
        return DataFile(path, partition, segment, str(location), str(digest))


def opened_stream(folder: Path, now_ns: int = 0, **config: object) -> OpenedStream:
    """A stream ORDERS on a plain store, with a stopped clock."""
    settings = {"name": "ORDERS", "subjects": ("orders.>",), **config}
    root = folder / "streams" / "ORDERS"
    return OpenedStream(
        name="ORDERS",
        config=StreamConfig.model_validate(settings),
        table=PlainStore(root / "messages"),
        root=str(root),
        warehouse=str(folder),
        clock=lambda: now_ns,
        since_ns=now_ns,
    )


def store_of(opened: OpenedStream) -> PlainStore:
    """The plain store of a stream."""
    assert isinstance(opened.store, PlainStore)
    return opened.store


def at(opened: OpenedStream, now_ns: int) -> OpenedStream:
    """The same stream at another time of the clock."""
    return replace(opened, clock=lambda: now_ns)


def configured(opened: OpenedStream, **config: object) -> OpenedStream:
    """The same stream under another configuration."""
    settings = {"name": "ORDERS", "subjects": ("orders.>",), **config}
    return replace(opened, config=StreamConfig.model_validate(settings))
