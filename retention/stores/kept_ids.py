"""Message ids that still count without their messages in the table, each as a digest with sequence and time."""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from retention.core.counters import Counters
from retention.core.message_rows import later_mask
from retention.errors import BusyError, DamagedError
from retention.schemas.files import KEPT_IDS
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.stores.layout import Layout

UNSTORED_IDS = "retention/unstored-ids"
"""The batch name under which the log has the number of the record of never-stored ids."""
MOST_RECORDS = 16
"""The number of records of removed ids at which the next record replaces them."""
ATTEMPTS = 20
_DIGEST_BYTES = 16
_DIGITS = 20
_RANDOM_BITS = 30
_SUFFIX = ".parquet"
_REMOVED = re.compile(r"\d{20}-[0-9a-f]{32}\.parquet")
_UNSTORED = re.compile(r"\d{20}\.parquet")


@dataclass(frozen=True)
class IdDigests:
    """Digests of message ids, keyed with the table's id: a digest hides its id, and no two tables share one."""

    table_id: str

    def of(self, msg_id: str) -> bytes:
        """The digest of one id."""
        key = self.table_id.encode()[: hashlib.blake2b.MAX_KEY_SIZE]
        return hashlib.blake2b(msg_id.encode(), digest_size=_DIGEST_BYTES, key=key).digest()

    def of_all(self, msg_ids: Iterable[str]) -> pa.Array:
        """The digests of ids."""
        return pa.array(map(self.of, msg_ids), KEPT_IDS.field("digest").type)

    def kept(self, rows: pa.Table) -> pa.Table:
        """The kept ids of messages (`msg_id`, `seq`, `ts_ns`): shape `KEPT_IDS`, only for messages with an id."""
        named = rows.filter(pc.is_valid(rows["msg_id"]))
        columns = [self.of_all(named["msg_id"].to_pylist()), named["seq"], named["ts_ns"]]
        return pa.table(columns, schema=KEPT_IDS)


class RemovedIds:
    """Reads and writes `_retention/ids/`: records of the ids of messages that runs removed.

    A record counts as soon as it exists: its messages were stored once, and if the table still or again has them,
    record and table agree. A record's name begins with the time of its youngest message, so the name alone shows when
    its ids no longer count. Only the holder of the maintenance lease writes and deletes records.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._directory = layout.engine_path("ids")

    def younger_than(self, after_ns: int) -> list[pa.Table]:
        """The records that may have ids of messages younger than `after_ns`, shape `KEPT_IDS`.

        Raises:
            BusyError: a maintenance run keeps merging records.
            DamagedError: a record cannot be read.
        """
        for _ in range(ATTEMPTS):
            try:
                return [self._read(name) for name in self._names() if _youngest(name) > after_ns]
            except FileNotFoundError:
                continue
        raise BusyError(
            f"{self._directory}: the records of message ids of stream {self._layout.stream} were replaced {ATTEMPTS} "
            "times while they were read; nothing was written; try again"
        )

    def keep(self, ids: pa.Table, after_ns: int) -> None:
        """Write ids (shape `KEPT_IDS`), and drop ids of messages that are not younger than `after_ns`."""
        names = self._names()
        spent = [name for name in names if _youngest(name) <= after_ns]
        if ids.num_rows:
            left = [name for name in names if _youngest(name) > after_ns]
            merged = left if len(left) >= MOST_RECORDS else []
            whole = pa.concat_tables([ids, *self._still_there(merged)])
            whole = whole.filter(later_mask(whole["ts_ns"], after_ns))
            youngest = max(pc.max(whole["ts_ns"]).as_py(), 0)
            name = f"{youngest:0{_DIGITS}d}-{uuid.uuid4().hex}{_SUFFIX}"
            _write(files.join(self._directory, name), whole)
            reached(Step.IDS_KEPT)
            spent += merged
        if spent:
            files.delete(files.join(self._directory, name) for name in spent)
            reached(Step.IDS_TIDIED)

    def forget(self, digests: pa.Array, seqs: pa.Array) -> int:
        """Take ids out of all records, by their digests and by the sequences of their messages; their number."""
        forgotten = 0
        for name in self._names():
            ids = self._read(name)
            left = _without(ids, digests, seqs)
            if left.num_rows < ids.num_rows:
                _write(files.join(self._directory, name), left)
                forgotten += ids.num_rows - left.num_rows
        return forgotten

    def _names(self) -> list[str]:
        return [name for name in files.names(self._directory) if _REMOVED.fullmatch(name)]

    def _still_there(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Read the records that still exist; a rival that took over the lease has merged the others."""
        for name in names:
            with suppress(FileNotFoundError):
                yield self._read(name)

    def _read(self, name: str) -> pa.Table:
        return _read(self._layout, files.join(self._directory, name))


class UnstoredIds:
    """Reads and writes `_retention/unstored-ids/`: ids of messages that were acknowledged and never stored.

    Only the record that the newest commit names counts: a record left by a killed writer has sequences that other
    messages may have now. Each record is complete: it includes the ids of its predecessor that still count.
    """

    def __init__(self, layout: Layout, counters: Counters) -> None:
        self._layout = layout
        self._directory = layout.engine_path("unstored-ids")
        self._number = counters.batches.get(UNSTORED_IDS, 0)

    def read(self) -> pa.Table:
        """The record's ids, shape `KEPT_IDS`; empty if the record is missing, as after a restore from a backup.

        Raises:
            DamagedError: the record cannot be read.
        """
        try:
            return _read(self._layout, self._place(self._number))
        except FileNotFoundError:
            return KEPT_IDS.empty_table()

    def keep(self, ids: pa.Table, after_ns: int) -> int:
        """Write the next record, for a commit to name under `UNSTORED_IDS`; returns its number.

        Args:
            ids: the added ids, shape `KEPT_IDS`.
            after_ns: ids of messages that are not younger no longer count.
        """
        whole = pa.concat_tables([self.read(), ids])
        whole = whole.filter(later_mask(whole["ts_ns"], after_ns))
        # Rising, and never a number that a killed writer used.
        number = ((self._number >> _RANDOM_BITS) + 1 << _RANDOM_BITS) + secrets.randbits(
            _RANDOM_BITS
        )
        _write(self._place(number), whole)
        reached(Step.UNSTORED_IDS_KEPT)
        # Keep the record that the newest commit names: the new record may never be named.
        before = f"{self._number:0{_DIGITS}d}{_SUFFIX}"
        names = (name for name in files.names(self._directory) if _UNSTORED.fullmatch(name))
        files.delete(files.join(self._directory, name) for name in names if name < before)
        return number

    def forget(self, digests: pa.Array) -> int:
        """Take ids out of every record, by their digests; their number."""
        forgotten = 0
        for name in filter(_UNSTORED.fullmatch, files.names(self._directory)):
            place = files.join(self._directory, name)
            ids = _read(self._layout, place)
            left = _without(ids, digests, pa.array([], pa.int64()))
            if left.num_rows < ids.num_rows:
                _write(place, left)
                forgotten += ids.num_rows - left.num_rows
        return forgotten

    def _place(self, number: int) -> str:
        return files.join(self._directory, f"{number:0{_DIGITS}d}{_SUFFIX}")


@dataclass(frozen=True)
class KeptIds:
    """All kept ids of messages absent from a table, at one version of the table."""

    removed: RemovedIds
    unstored: UnstoredIds
    digests: IdDigests

    @classmethod
    def of(cls, layout: Layout, table_id: str, counters: Counters) -> KeptIds:
        """The kept ids of a stream."""
        return cls(RemovedIds(layout), UnstoredIds(layout, counters), IdDigests(table_id))

    def find(self, wanted: pa.Array, after_ns: int) -> Iterator[pa.Table]:
        """Look up ids of messages younger than `after_ns`; yields tables of matches: `seq`, `ts_ns` and `msg_id`."""
        names = wanted.to_pylist()
        digests = self.digests.of_all(names)
        for ids in (*self.removed.younger_than(after_ns), self.unstored.read()):
            at = pc.index_in(ids["digest"], value_set=digests)
            hits = {"seq": ids["seq"], "ts_ns": ids["ts_ns"], "msg_id": pc.take(wanted, at)}
            counts = pc.and_(pc.is_valid(at), later_mask(ids["ts_ns"], after_ns))
            yield pa.table(hits).filter(counts)


def _without(ids: pa.Table, digests: pa.Array, seqs: pa.Array) -> pa.Table:
    """The ids that have neither one of some digests nor one of some sequences."""
    gone = pc.or_(pc.is_in(ids["digest"], value_set=digests), pc.is_in(ids["seq"], value_set=seqs))
    return ids.filter(pc.invert(gone))


def _youngest(name: str) -> int:
    """The time in a record's name, nanoseconds since the epoch; 0 for messages before the epoch."""
    return int(name.partition("-")[0])


def _write(place: str, ids: pa.Table) -> None:
    with files.create(place) as sink:
        pq.write_table(ids, sink, compression="zstd", write_page_checksum=True)


def _read(layout: Layout, place: str) -> pa.Table:
    try:
        with files.open_input(place) as source:
            table = pq.read_table(source, page_checksum_verification=True)
        return table.select(KEPT_IDS.names).cast(KEPT_IDS)
    except FileNotFoundError:
        raise
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        raise DamagedError(
            f"{place}: this record of message ids of stream {layout.stream} cannot be read ({error}); nothing was "
            "changed; restore it from a copy, or delete it: what carries one of its ids and is published again within "
            "the duplicate_window is then stored a second time"
        ) from error
