"""The inventory cache: a stream's inventory at one version, in sorted blocks, so a pass reads only the oldest ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from retention.core.counters import EPOCH, Counters
from retention.core.record_tables import outside_mask
from retention.ports import VersionToken
from retention.schemas.files import FILE_STATS
from retention.storage import files
from retention.storage.crash_points import Step, reached
from retention.storage.sidecar import JsonCodec, Sidecar
from retention.storage.tables import decode_stream, encode_stream
from retention.stores.layout import Layout

BLOCK_FILES = 2_048
"""The approximate number of rows of a block; a segment is never split."""
_EDITION = 3
"""The edition; raised when inventories get more checks or version tokens another form, to discard older caches."""
_GARBAGE_BYTES = 4 * 2**20
_COMPRESSION = "lz4"


class LostError(Exception):
    """A cached inventory cannot be used; the table itself must be opened."""


@dataclass(frozen=True)
class PackedBlock:
    """The rows of adjacent segments: their location in a pack, and their totals."""

    pack: str
    offset: int
    length: int
    check: str
    """XXH3-128 of the bytes."""
    partition: int
    first_segment: int
    max_seq: int
    files: int
    segments: int
    messages: int
    bytes: int


@dataclass(frozen=True)
class InventoryCache:
    """One version of a stream: its blocks, ascending and disjoint, and its counters."""

    token: VersionToken
    table_id: str
    next_seq: Mapping[int, int]
    open_base: Mapping[int, int]
    blocks: Sequence[PackedBlock]
    epoch: int = 0
    """The epoch of its sequences."""

    @property
    def counters(self) -> Counters:
        """The counters of an inventory that the cache includes."""
        edits = {EPOCH: self.epoch} if self.epoch else {}
        return Counters(self.next_seq, self.open_base, edits=edits)


class InventoryCacheFiles:
    """Reads and writes `_retention/ledger/`: immutable packs of blocks, and the one file that names them."""

    def __init__(self, layout: Layout) -> None:
        self._directory = layout.engine_path("ledger")
        place = files.join(self._directory, "ledger.json")
        codec = JsonCodec(_to_json, _from_json)
        self._head: Sidecar[InventoryCache] = Sidecar(place, codec, Step.LEDGER_KEPT, _EDITION)

    def load(self) -> InventoryCache | None:
        """The cache at the version of its token; None if there is none or it is doubtful."""
        head = self._head.latest()
        return None if head is None else head.value

    def rows(self, blocks: Sequence[PackedBlock]) -> pa.Table:
        """The rows of blocks, in their order; shape `FILE_STATS`.

        Raises:
            LostError: a block is missing or damaged.
        """
        tables = [_decoded(content) for content in self._contents(blocks)]
        table = pa.concat_tables([FILE_STATS.empty_table(), *tables])
        if pc.any(outside_mask(table["path"]), min_count=0).as_py():
            raise LostError
        return table

    def write(
        self, ledger: InventoryCache, pieces: Sequence[PackedBlock | pa.Table]
    ) -> InventoryCache:
        """Write a cache from existing blocks and from tables that become blocks; delete packs that no block names.

        Nothing is fsynced: after a power failure, the table may have to be opened once.

        Args:
            ledger: the cache; its blocks are ignored.
            pieces: blocks and tables, ascending; each table has whole segments of one partition, sorted.

        Raises:
            OSError: it cannot be written; the previous cache remains.
        """
        packs = self._too_full_of_garbage(
            [piece for piece in pieces if isinstance(piece, PackedBlock)]
        )
        pack = f"{uuid.uuid4().hex}.blocks"
        blocks = []
        with files.create_unsynced(files.join(self._directory, pack)) as sink:
            offset = 0
            for piece in pieces:
                if isinstance(piece, PackedBlock) and piece.pack not in packs:
                    blocks.append(piece)
                    continue
                content, block = self._packed(piece)
                sink.write(content)
                blocks.append(replace(block, pack=pack, offset=offset))
                offset += len(content)
        reached(Step.LEDGER_PACKED)
        whole = replace(ledger, blocks=blocks)
        self._head.write_unsynced(whole, asdict(whole.token))
        named = {block.pack for block in blocks}
        files.delete(
            files.join(self._directory, name)
            for name in files.names(self._directory)
            if name.endswith(".blocks") and name not in named
        )
        return whole

    def _contents(self, blocks: Sequence[PackedBlock]) -> Iterator[bytes]:
        with ExitStack() as opened:
            packs: dict[str, pa.NativeFile] = {}
            for block in blocks:
                if block.pack not in packs:
                    place = files.join(self._directory, block.pack)
                    packs[block.pack] = opened.enter_context(_open_pack(place))
                packs[block.pack].seek(block.offset)
                content = packs[block.pack].read(block.length)
                if xxhash.xxh3_128_hexdigest(content) != block.check:
                    raise LostError
                yield content

    def _packed(self, piece: PackedBlock | pa.Table) -> tuple[bytes, PackedBlock]:
        if isinstance(piece, PackedBlock):
            return next(self._contents([piece])), piece
        content = encode_stream(piece.combine_chunks(), _COMPRESSION)
        return content, _described(piece, content)

    def _too_full_of_garbage(self, blocks: Sequence[PackedBlock]) -> set[str]:
        """The packs to delete after repacking their blocks: all, once most of their bytes belong to no block."""
        packs = sorted({block.pack for block in blocks})
        held = sum(size or 0 for size in files.lengths(self._places(packs)))
        used = sum(block.length for block in blocks)
        return set(packs) if held > 2 * used + _GARBAGE_BYTES else set()

    def _places(self, packs: Sequence[str]) -> list[str]:
        return [files.join(self._directory, pack) for pack in packs]


def blocks_of(rows: pa.Table) -> list[pa.Table]:
    """Split sorted rows (shape `FILE_STATS`) into tables for blocks.

    A block ends before a new partition, and before the first segment that begins at or after row `BLOCK_FILES`, twice
    that, and so on. With 4, segments of rows 0-2, 3-4 and 5-8 of one partition become blocks of rows 0-4 and 5-8.
    """
    if not rows.num_rows:
        return []
    partition, segment = rows["partition"].to_numpy(), rows["segment"].to_numpy()
    is_new = partition[1:] != partition[:-1]
    new_partition = np.flatnonzero(is_new) + 1
    starts = np.flatnonzero(is_new | (segment[1:] != segment[:-1])) + 1
    wished = np.searchsorted(starts, np.arange(BLOCK_FILES, rows.num_rows, BLOCK_FILES))
    cuts = np.union1d(new_partition, starts[wished[wished < len(starts)]])
    bounds = [0, *cuts.tolist(), rows.num_rows]
    return [rows.slice(at, end - at) for at, end in pairwise(bounds)]


def _described(rows: pa.Table, content: bytes) -> PackedBlock:
    segment = rows["segment"].to_numpy()
    return PackedBlock(
        pack="",
        offset=0,
        length=len(content),
        check=xxhash.xxh3_128_hexdigest(content),
        partition=rows["partition"][0].as_py(),
        first_segment=int(segment[0]),
        max_seq=pc.max(rows["max_seq"]).as_py(),
        files=rows.num_rows,
        segments=1 + int(np.count_nonzero(segment[1:] != segment[:-1])),
        messages=pc.sum(rows["messages"]).as_py(),
        bytes=pc.sum(rows["bytes"]).as_py(),
    )


def _open_pack(place: str) -> pa.NativeFile:
    try:
        return files.open_input(place)
    except OSError as error:
        raise LostError from error


def _decoded(content: bytes) -> pa.Table:
    try:
        return decode_stream(content).cast(FILE_STATS)
    except (ValueError, pa.ArrowException) as error:
        raise LostError from error


def _to_json(ledger: InventoryCache) -> dict[str, object]:
    return {name: value for name, value in asdict(ledger).items() if name != "token"}


def _from_json(state: Mapping[str, Any], fields: Mapping[str, Any]) -> InventoryCache:
    next_seq, open_base = (
        {int(partition): value for partition, value in fields[name].items()}
        for name in ("next_seq", "open_base")
    )
    blocks = [PackedBlock(**block) for block in fields["blocks"]]
    return InventoryCache(
        VersionToken(**state), fields["table_id"], next_seq, open_base, blocks, fields["epoch"]
    )
