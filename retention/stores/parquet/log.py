"""The log of a Parquet stream: numbered entries, each created if absent; they decide which files are live."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core import run_names
from retention.core.counter_names import OF_TABLE, REMOVED
from retention.core.counters import EPOCH, RUN, Counters
from retention.core.documents import Digits, JsonDocument, Natural, judge
from retention.core.record_tables import check_columns
from retention.core.stored_documents import ListState, LogEntry
from retention.errors import DamagedError, RefusedError, UsageError
from retention.schemas.bounds import MAX_SEQ
from retention.schemas.files import FILE_STATS
from retention.storage import files
from retention.storage.checksum import is_checked, parse_json, verified, with_checksum
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout
from retention.stores.seals import seal_at, seal_of

LIST_EVERY = 100
LIST_FROM_FILES = 2_000
"""Entries with this many files, and a quarter of the live ones, take as long to read as a listing takes to write."""
_STATE = b"retention.state"
_DIGITS = 20
_IN_EPOCH = ("next_seq", "open_base", "batches", "removed")


@dataclass(frozen=True)
class CommitEntry:
    """One commit, with exactly the fields of its file."""

    version: int
    time_ms: int
    """The wall clock of the commit, milliseconds since the epoch; the grace of removed files starts here."""
    remove: Sequence[str] = ()
    add: Sequence[Mapping[str, Any]] = ()
    """Rows of `FILE_STATS`."""
    next_seq: Mapping[int, int] = field(default_factory=dict)
    open_base: Mapping[int, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    edits: Mapping[str, int] = field(default_factory=dict)
    """Name → value of the table's counters that the commit sets (`counter_names.OF_TABLE`)."""
    run: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    table_id: str | None = None
    """The table's id; only in version 0."""

    @property
    def epoch(self) -> int | None:
        """The epoch that the commit begins or returns to; the counters of this entry belong to it."""
        return self.edits.get(EPOCH)

    @property
    def removed(self) -> Mapping[int, int]:
        """Partition → the highest sequence removed so far; entries of earlier versions of this program have none."""
        return {int(key): seq for key, seq in self.metadata.get(REMOVED, {}).items()}

    @property
    def run_started_ns(self) -> int | None:
        """The start of the entry's recorded run, nanoseconds since the epoch; None if no recorded run committed it."""
        name = run_names.parse_run_name(str(self.run))
        return None if name is None else name.started_ns


@dataclass(frozen=True)
class CommitState:
    """The table's state at one version."""

    version: int
    table_id: str
    files: pa.Table
    """Shape `FILE_STATS`, in no particular order."""
    counters: Counters
    seal: str
    """The seal of this version's entry."""
    resting: Mapping[int, Counters] = field(default_factory=dict)
    """Epoch → its counters when a purge, or the undo of a purge, ended it."""
    unlisted: int = 0
    """The number of files in the entries that were read after the newest listing."""

    @property
    def wants_list(self) -> bool:
        """Whether a full listing at this version would speed up the next open."""
        many = max(LIST_FROM_FILES, self.files.num_rows // 4)
        return self.version % LIST_EVERY == 0 or self.unlisted >= many


class RemovedSeqs(JsonDocument):
    """The highest removed sequences in the metadata of an entry, partition by partition."""

    removed: dict[Digits, Natural]


def with_removed(metadata: Mapping[str, object], removed: Mapping[int, int]) -> dict[str, object]:
    """The metadata of an entry with the highest removed sequences; earlier versions of this program ignore them."""
    return {**metadata, **({REMOVED: dict(removed)} if removed else {})}


def before_first_entry() -> CommitState:
    """The state of a log without entries."""
    return CommitState(-1, "", FILE_STATS.empty_table(), Counters(), "")


class ParquetLog:
    """Reads and appends `_retention/log/`."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._directory = layout.engine_path("log")

    def exists(self) -> bool:
        """Whether the log has an entry."""
        return bool(self._versions()[0])

    def append(self, entry: CommitEntry, before: CommitState | None = None) -> bool:
        """Create the entry; this is the commit. False if a rival created that version first.

        Args:
            entry: the entry to commit.
            before: the state that the decision used; False also if the log now reaches its version with other entries,
                as for a stream that was recreated or restored from a copy.
        """
        # A pause between this check and the link is harmless if the stream is recreated: the link's temporary file is
        # removed with the directory.
        if before is not None and self.seal(before.version) != before.seal:
            return False
        content = json.dumps(with_checksum(_document(entry)), separators=(",", ":"))
        return files.create_if_absent(self._place(entry.version, "json"), content.encode())

    def read(self, until: int | None = None, known: CommitState | None = None) -> CommitState:
        """The state at a version with an entry (None for the newest), all from one directory listing.

        After a known state only later entries are read, unless the log was replaced.

        Raises:
            UsageError: there is no log.
            DamagedError: an entry is missing or unreadable.
        """
        entries, lists = self._versions()
        if until is not None:
            entries = [version for version in entries if version <= until]
        if not entries:
            raise UsageError(
                f"{self._layout.root}: there is no log; write to stream {self._layout.stream} first"
            )
        is_followed = known and known.version in entries and self.seal(known.version) == known.seal
        state = known if is_followed else self._newest_list(lists, entries)
        start = 0 if state is None else state.version + 1
        later = [self._content(version) for version in range(start, entries[-1] + 1)]
        parsed = [self._parsed(start + at, content) for at, content in enumerate(later)]
        return _replay(state, parsed, seal_of(later[-1])) if state is None or later else state

    def entry(self, version: int) -> CommitEntry:
        """The entry of a version.

        Raises:
            DamagedError: it is missing or unreadable.
        """
        return self._parsed(version, self._content(version))

    def _content(self, version: int) -> bytes:
        return files.read_unchanging(self._place(version, "json")) or b""

    def _parsed(self, version: int, content: bytes) -> CommitEntry:
        place = self._place(version, "json")
        try:
            document = parse_json(content)
            fields = verified(document)
            if is_checked(document):
                self._refuse_newer(fields, place)
            judge(LogEntry, fields)
            for name in ("next_seq", "open_base"):
                fields[name] = {int(partition): value for partition, value in fields[name].items()}
            edits = {name: fields.pop(name) for name in OF_TABLE if name in fields}
            entry = CommitEntry(
                **fields, edits={k: value for k, value in edits.items() if value is not None}
            )
            _refuse_misplaced(entry, version)
            judge(RemovedSeqs, {REMOVED: entry.metadata.get(REMOVED, {})})
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise DamagedError(
                f"{place}: this entry of the log of stream {self._layout.stream} cannot be read ({error}); "
                "nothing was changed; restore it from a copy"
            ) from error
        return entry

    def _refuse_newer(self, fields: Mapping[str, object], place: str) -> None:
        """Refuse an intact entry with fields that this release does not know."""
        unknown = sorted(set(fields) - set(LogEntry.model_fields))
        if unknown:
            raise RefusedError(
                f"{place}: a newer release of this program wrote this entry of the log of stream "
                f"{self._layout.stream}, with what this one does not know ({', '.join(unknown)}); nothing was "
                "changed; use that release, or a later one"
            )

    def last_counted(self, version: int) -> dict[int, int]:
        """Partition → the highest next sequence within bounds that was set in a version's epoch."""
        highest: dict[int, int] = {}
        for number in self._versions()[0]:
            if number > version:
                break
            entry = self.entry(number)
            if entry.epoch is not None:
                highest = {}
            for partition, value in entry.next_seq.items():
                if value <= MAX_SEQ + 1:
                    highest[partition] = max(value, highest.get(partition, 0))
        return highest

    def times(self) -> tuple[dict[int, int], dict[int, int]]:
        """Version → modification time of its entry, and of its full listing; nanoseconds."""
        at_ns: dict[str, dict[int, int]] = {"json": {}, "parquet": {}}
        for name, at_ms in files.times(self._directory).items():
            number, _, kind = name.partition(".")
            if kind in at_ns and len(number) == _DIGITS and number.isdigit():
                at_ns[kind][int(number)] = at_ms * 1_000_000
        return at_ns["json"], at_ns["parquet"]

    def written_ns(self, version: int) -> int:
        """The storage's modification time of an existing entry, nanoseconds since the epoch."""
        return files.stat(self._place(version, "json"))[1] * 1_000_000

    def newest(self) -> int:
        """The newest version; -1 if there is none."""
        return max(self._versions()[0], default=-1)

    def seal(self, version: int) -> str | None:
        """The seal that distinguishes an entry from any other of its version; None without an entry."""
        return seal_at(self._place(version, "json"))

    def find(self, run: str, after: int) -> int | None:
        """The version later than `after` of a run's entry; None if no remaining entry is from that run."""
        versions = (version for version in reversed(self._versions()[0]) if version > after)
        return next((version for version in versions if self.entry(version).run == run), None)

    def has(self, after: int, until: int) -> bool:
        """Whether all entries later than `after` exist, up to `until`."""
        return set(range(after + 1, until + 1)) <= set(self._versions()[0])

    def names_ever(self) -> set[str]:
        """Every path that any remaining entry removed."""
        return {path for version in self._versions()[0] for path in self.entry(version).remove}

    def write_list(self, state: CommitState) -> None:
        """Write the full state beside the entry of its version, so that readers start there."""
        content = {
            "table_id": state.table_id,
            "seal": state.seal,
            **_fields_of(state.counters),
            "edits": dict(state.counters.edits),
            "resting": {str(epoch): _fields_of(there) for epoch, there in state.resting.items()},
        }
        encoded = json.dumps(with_checksum(content)).encode()
        table = state.files.replace_schema_metadata({_STATE: encoded})
        with files.create(self._place(state.version, "parquet")) as sink:
            pq.write_table(table, sink, write_page_checksum=True)
        reached(Step.LIST_WRITTEN)

    def has_list(self, version: int) -> bool:
        """Whether a version has a readable listing."""
        return self._read_list(version) is not None

    def places_before(self, version: int) -> list[str]:
        """The locations of the entries and listings of all versions before one, oldest first."""
        names = (name for name in files.names(self._directory) if name[:_DIGITS].isdigit())
        return [
            files.join(self._directory, name) for name in names if int(name[:_DIGITS]) < version
        ]

    def _newest_list(self, lists: Sequence[int], entries: Sequence[int]) -> CommitState | None:
        """The state of the newest readable listing; an older one is tried only if the first entries were deleted."""
        for version in sorted((v for v in lists if v <= entries[-1]), reverse=True):
            state = self._read_list(version)
            if state is not None or not entries[0]:
                return state
        return None

    def _read_list(self, version: int) -> CommitState | None:
        """The state in a listing; None if it cannot be read, or belongs to another log's entry of that version."""
        try:
            with files.open_input(self._place(version, "parquet")) as source:
                opened = pq.ParquetFile(source, page_checksum_verification=True)
                fields = verified(parse_json(opened.schema_arrow.metadata[_STATE]))
                judge(ListState, fields)
                if fields["seal"] != self.seal(version):
                    return None
                table = opened.read()
            counters = _counters(fields)
            resting = {
                int(epoch): _counters(there) for epoch, there in fields.get("resting", {}).items()
            }
            table = table.replace_schema_metadata(None).select(FILE_STATS.names).cast(FILE_STATS)
            check_columns(table, FILE_STATS)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
            # The entries are the source of truth; a listing only saves reading them.
            return None
        return CommitState(version, fields["table_id"], table, counters, fields["seal"], resting)

    def _versions(self) -> tuple[list[int], list[int]]:
        versions: dict[str, list[int]] = {"json": [], "parquet": []}
        for name in files.names(self._directory):
            number, _, kind = name.partition(".")
            if kind in versions and len(number) == _DIGITS and number.isdigit():
                versions[kind].append(int(number))
        return versions["json"], versions["parquet"]

    def _place(self, version: int, kind: str) -> str:
        return files.join(self._directory, f"{version:0{_DIGITS}d}.{kind}")


def _document(entry: CommitEntry) -> dict[str, object]:
    """An entry as JSON: the counters of the table are among its other fields."""
    fields: dict[str, object] = {}
    for name, value in vars(entry).items():
        fields |= dict(entry.edits) if name == "edits" else {name: _plain(value)}
    return fields


def _refuse_misplaced(entry: CommitEntry, version: int) -> None:
    if entry.version != version:
        raise ValueError(f"it is the entry of version {entry.version}")


def _fields_of(counters: Counters) -> dict[str, dict[Any, int]]:
    return {name: dict(getattr(counters, name)) for name in _IN_EPOCH}


def _counters(fields: Mapping[str, Any]) -> Counters:
    return Counters(
        {int(partition): value for partition, value in fields["next_seq"].items()},
        {int(partition): value for partition, value in fields["open_base"].items()},
        fields["batches"],
        fields.get("edits", {}),
        {int(partition): value for partition, value in fields["removed"].items()},
    )


def _followed(
    counters: Counters, resting: Mapping[int, Counters], entries: Sequence[CommitEntry]
) -> tuple[Counters, Mapping[int, Counters]]:
    """The counters after given entries, and the counters of ended epochs; both are given from before the entries.

    With next sequence 9 in epoch 0, an entry that begins epoch 1 and sets 1 leaves 1 current and {0: 9} resting.
    """
    edits, here = dict(counters.edits), counters.epoch
    epochs = {epoch: _fields_of(there) for epoch, there in {**resting, here: counters}.items()}
    for entry in entries:
        here = here if entry.epoch is None else entry.epoch
        there = epochs.setdefault(here, _fields_of(Counters()))
        for name, values in there.items():
            values.update(getattr(entry, name))
        edits |= entry.edits
        if entry.run_started_ns is not None:
            edits[RUN] = entry.run_started_ns
    current = Counters(**epochs.pop(here), edits=edits)
    return current, {epoch: Counters(**there) for epoch, there in epochs.items()}


def _replay(state: CommitState | None, entries: Sequence[CommitEntry], seal: str) -> CommitState:
    """The state after given entries; `seal` identifies the last of them."""
    removed: set[str] = set()
    added: dict[str, Mapping[str, object]] = {}
    for entry in entries:
        for path in entry.remove:
            if added.pop(path, None) is None:
                removed.add(path)
        added |= {row["path"]: row for row in entry.add}
    before = (Counters(), {}) if state is None else (state.counters, state.resting)
    counters, resting = _followed(*before, entries)
    new = pa.Table.from_pylist(list(added.values()), schema=FILE_STATS)
    unlisted = 0 if state is None else state.unlisted
    unlisted += sum(len(entry.remove) + len(entry.add) for entry in entries)
    if state is None:
        version, table_id = entries[-1].version, str(entries[0].table_id)
        return CommitState(version, table_id, new, counters, seal, resting, unlisted)
    gone = pc.is_in(state.files["path"], value_set=pa.array(sorted(removed), pa.string()))
    table = pa.concat_tables([state.files.filter(pc.invert(gone)), new])
    return CommitState(
        entries[-1].version, state.table_id, table, counters, seal, resting, unlisted
    )


def _plain(value: object) -> object:
    """Mappings as dicts and sequences as lists, for JSON."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
