"""Randomly changed logs: no damage leads to the import of a message that the server did not write."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.formats.iggy import log as log_module
from retention.formats.iggy import messages as messages_module
from retention.formats.iggy import source
from retention.formats.iggy.era import Era
from retention.formats.iggy.era_08 import Era08
from retention.formats.iggy.era_09 import Era09
from retention.formats.iggy.findings import Finding
from retention.formats.iggy.log import SegmentLog, read_log
from tests.support.iggy_logs import Message, log_08, log_09, original

LOGS = int(os.environ.get("RETENTION_MUTATIONS", "200"))
"""The number of changed logs of each era."""
LARGE = [2**64 - n for n in (1, 8, 64, 256)] + [2**63 - 1, 2**63, 2**32 - 1, 2**32, 2**31, 0]

Random = random.Random
Mutation = Callable[[Random, bytearray], None]


def flip_bits(chance: Random, content: bytearray) -> None:
    """Flip bits anywhere, or in the first headers."""
    span = chance.choice([len(content), min(len(content), 52), min(len(content), 320)])
    for _ in range(chance.randint(1, 4)):
        content[chance.randrange(span)] ^= 1 << chance.randrange(8)


def truncate(chance: Random, content: bytearray) -> None:
    del content[chance.randrange(len(content)) :]


def splice(chance: Random, content: bytearray) -> None:
    """Copy a piece of the log over or between other bytes of it."""
    begin, length = chance.randrange(len(content)), chance.choice([8, 64, 256, 2_000])
    at = chance.randrange(len(content))
    content[at : at + chance.choice([0, length])] = content[begin : begin + length]


def cut_out(chance: Random, content: bytearray) -> None:
    begin = chance.randrange(len(content))
    del content[begin : begin + chance.choice([1, 8, 64, 256, 2_000])]


def blank(chance: Random, content: bytearray) -> None:
    begin, length = chance.randrange(len(content)), chance.choice([8, 64, 256, 2_000])
    content[begin : begin + length] = bytes(min(length, len(content) - begin))


def put_large(chance: Random, content: bytearray) -> None:
    """Write a number near the limit of its type at a possible field."""
    width = chance.choice([4, 8])
    at = chance.choice([chance.randrange(len(content)), 32, 48, 52, 256 + 32, 256 + 36])
    if at + width <= len(content):
        content[at : at + width] = (chance.choice(LARGE) % 2 ** (8 * width)).to_bytes(
            width, "little"
        )


def add_garbage(chance: Random, content: bytearray) -> None:
    at = chance.choice([len(content), chance.randrange(len(content))])
    content[at:at] = chance.randbytes(chance.choice([1, 63, 64, 256, 2_000]))


def add_zeros(chance: Random, content: bytearray) -> None:
    content += bytes(chance.choice([1, 64, 5_000]))


MUTATIONS: list[Mutation] = [
    flip_bits,
    truncate,
    splice,
    cut_out,
    blank,
    put_large,
    add_garbage,
    add_zeros,
]


def messages(chance: Random) -> list[Message]:
    sizes = [chance.choice([0, 1, 64, 448, 900]) for _ in range(40)]
    return [
        Message(offset, chance.randbytes(size), chance.randbytes(chance.choice([0, 0, 30])), offset)
        for offset, size in enumerate(sizes)
    ]


def read(path: Path, era: Era, end: int | None) -> tuple[pa.Table, list[Finding], int]:
    parts = list(read_log(SegmentLog(str(path), 0, 0, path.stat().st_size, end), era))
    rows = pa.Table.from_batches([part.rows for part in parts])
    return rows, [finding for part in parts for finding in part.findings], parts[-1].next_offset


def rows_by_offset(rows: pa.Table) -> dict[int, dict[str, Any]]:
    return {row["seq"]: row for row in rows.to_pylist()}


def originals(era: Era, folder: Path) -> list[bytes]:
    """Logs with the offsets from 0 on: one of a real server, and written ones of equal and of mixed sizes."""
    chance = random.Random(era.name)
    name = "v8-hole" if era.name == "0.8" else "h-expiry"
    partition = (
        original(name, "before", folder) / "partitions" / ("0" if era.name == "0.8" else "2")
    )
    real = (partition / f"{0:020}.log").read_bytes()
    same = [Message(offset, b"x" * 64) for offset in range(30)]
    if era.name == "0.8":
        return [real[:75_114], log_08(messages(chance)), log_08(same)]
    return [real, *(log_09(given, batch) for given in (messages(chance), same) for batch in (1, 7))]


@pytest.mark.parametrize("era", [Era08(), Era09()], ids=["0.8", "0.9"])
def test_no_message_comes_in_that_was_not_there(
    era: Era, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "0.log"
    wholes = []
    for content in originals(era, tmp_path):
        path.write_bytes(content)
        rows, findings, next_offset = read(path, era, None)
        assert findings == []
        wholes.append((content, rows_by_offset(rows), next_offset))
    reported = 0
    for seed in range(LOGS):
        chance = random.Random(f"{era.name} {seed}")
        content, whole, count = chance.choice(wholes)
        changed = bytearray(content)
        for mutation in chance.choices(MUTATIONS, k=chance.randint(1, 3)):
            if changed:
                mutation(chance, changed)
        path.write_bytes(changed)
        window = chance.choices([300, 4_000, 1 << 20], weights=[1, 10, 10])[0]
        for module in (log_module, source):
            monkeypatch.setattr(module, "WINDOW_BYTES", window)
        monkeypatch.setattr(messages_module, "_STREAK", chance.choice([1, 2, 5, 32]))
        end = chance.choice([None, count])
        rows, findings, next_offset = read(path, era, end)
        seqs = rows["seq"].to_pylist()
        assert seqs == sorted(set(seqs)), seed
        remaining = rows_by_offset(rows)
        assert remaining == {seq: whole[seq] for seq in remaining}, seed
        assert max(seqs, default=-1) < next_offset, seed
        if not findings and era.is_gapless:
            assert seqs == list(range(next_offset)), seed
        reported += bool(findings)
    assert reported > LOGS / 2


@pytest.mark.parametrize(
    ("era", "write"), [(Era08(), log_08), (Era09(), log_09)], ids=["0.8", "0.9"]
)
@pytest.mark.parametrize("damaged", [False, True])
def test_memory_does_not_grow_with_the_log(
    era: Era,
    write: Callable[..., bytes],
    damaged: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in (log_module, source):
        monkeypatch.setattr(module, "WINDOW_BYTES", 1 << 16)
    monkeypatch.setattr(log_module, "_PART_BYTES", 1 << 18)
    content = bytearray(write([Message(offset, bytes([7]) * 9_000) for offset in range(2_000)]))
    if damaged:
        content[20_000:-20_000] = bytes(len(content) - 40_000)
    path = tmp_path / "0.log"
    path.write_bytes(content)
    size = len(content)
    del content
    assert size > 18_000_000
    assert any(
        peak_bytes(SegmentLog(str(path), 0, 0, size, 2_000), era) < 3_000_000 for _ in range(3)
    )


def peak_bytes(log: SegmentLog, era: Era) -> int:
    """The peak memory of this process during the read of a log, including its other threads."""
    most = 0
    tracemalloc.start()
    for part in read_log(log, era):
        most = max(most, part.rows.nbytes, pa.total_allocated_bytes())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return max(peak, most)
