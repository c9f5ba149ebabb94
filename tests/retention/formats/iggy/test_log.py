from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.errors import BusyError
from retention.formats.iggy import log as log_module
from retention.formats.iggy import source
from retention.formats.iggy.era import Era
from retention.formats.iggy.era_08 import Era08
from retention.formats.iggy.era_09 import Era09
from retention.formats.iggy.findings import Damage, Finding, Hole, Tear
from retention.formats.iggy.log import SegmentLog, read_log
from retention.formats.iggy.rows import ROWS
from tests.support.iggy_logs import Message, batch_09, batch_of, checked, log_08, log_09

TEN = [
    Message(offset, b"payload %d" % offset, b"headers" * (offset % 3), id=2**127 + offset)
    for offset in range(10)
]
"""In 0.9 they are the batches 0 to 2, 3 to 5, 6 to 8, and 9."""
BOTH: list[tuple[Era, Callable[..., bytes]]] = [(Era08(), log_08), (Era09(), log_09)]
both = pytest.mark.parametrize(("era", "write"), BOTH, ids=["0.8", "0.9"])
HEADER_08, HEADER_09, BATCH = 64, 48, 256
LOCATION = "0.log"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(
    content: bytes, era: Era, segment: int = 0, end: int | None = None
) -> tuple[pa.Table, list[Finding], int]:
    Path(LOCATION).write_bytes(content)
    parts = list(read_log(SegmentLog(LOCATION, 0, segment, len(content), end), era))
    rows = pa.Table.from_batches([part.rows for part in parts])
    findings = [finding for part in parts for finding in part.findings]
    return rows, findings, parts[-1].next_offset


def offsets(rows: pa.Table) -> list[int]:
    numbers: list[int] = rows["seq"].to_pylist()
    return numbers


def flipped(content: bytes, at: int, bit: int = 1) -> bytes:
    changed = bytearray(content)
    changed[at] ^= bit
    return bytes(changed)


def start_08(offset: int) -> int:
    return len(log_08(TEN[:offset]))


def start_09(offset: int) -> int:
    return len(log_09(TEN[:offset]))


def row(message: Message, size: int) -> dict[str, Any]:
    return {
        "partition": 0,
        "segment": 0,
        "seq": message.offset,
        "ts_ns": message.timestamp * 1_000,
        "headers": message.headers or None,
        "payload": message.payload,
        "size": size,
        "msg_id": str(message.id),
        "origin_ts_ns": message.origin * 1_000,
    }


def test_rows_are_the_messages_of_08() -> None:
    rows, findings, next_offset = read(log_08(TEN), Era08())
    assert rows.schema == ROWS
    assert rows.to_pylist() == [row(message, len(log_08([message]))) for message in TEN]
    assert (findings, next_offset) == ([], 10)


def test_rows_are_the_messages_of_09_and_the_first_of_a_batch_counts_its_header() -> None:
    rows, findings, next_offset = read(log_09(TEN), Era09())
    sizes = [len(log_09([message])) - (0 if message.offset % 3 == 0 else BATCH) for message in TEN]
    assert rows.to_pylist() == [row(*pair) for pair in zip(TEN, sizes, strict=True)]
    assert sum(sizes) == len(log_09(TEN))
    assert (findings, next_offset) == ([], 10)


@both
def test_a_producer_may_be_ahead_of_others_in_its_batch(
    era: Era, write: Callable[..., bytes]
) -> None:
    messages = [replace(message, origin=message.origin + 1_000 * message.offset) for message in TEN]
    rows, _, _ = read(write(messages), era)
    assert rows["origin_ts_ns"].to_pylist() == [message.origin * 1_000 for message in messages]


@both
def test_ids_have_128_bits(era: Era, write: Callable[..., bytes]) -> None:
    ids = [0, 1, 2**64 - 1, 2**64, 10**38, 2**128 - 1]
    messages = [Message(offset, id=number) for offset, number in enumerate(ids)]
    rows, _, _ = read(write(messages), era)
    assert rows["msg_id"].to_pylist() == [str(number) for number in ids]


@both
def test_a_log_is_read_in_windows_of_any_size(
    era: Era, write: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read(write(TEN), era)
    for window in range(BATCH, 3 * BATCH, 7):
        for module in (log_module, source):
            monkeypatch.setattr(module, "WINDOW_BYTES", window)
        assert read(write(TEN), era) == whole


@both
def test_parts_are_small(
    era: Era, write: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "_PART_ROWS", 3)
    monkeypatch.setattr(log_module, "WINDOW_BYTES", 600)
    content = write([Message(offset) for offset in range(100)])
    Path(LOCATION).write_bytes(content)
    parts = list(read_log(SegmentLog(LOCATION, 0, 0, len(content), None), era))
    assert len(parts) > 10
    assert [part.next_offset for part in parts][-1] == 100


@both
def test_an_empty_log_has_one_part_and_its_number_is_the_next_offset(
    era: Era, write: Callable[..., bytes]
) -> None:
    assert write([]) == b""
    for end in (None, 50):
        rows, findings, next_offset = read(b"", era, segment=40, end=end)
        assert (rows.num_rows, findings, next_offset) == (0, [], 40)


@both
@pytest.mark.parametrize("end", [None, 10], ids=["active", "sealed"])
def test_a_damaged_payload_costs_its_message(
    era: Era, write: Callable[..., bytes], end: int | None
) -> None:
    for offset in range(10):
        content = write(TEN)
        at = content.index(b"payload %d" % offset)
        rows, findings, next_offset = read(flipped(content, at), era, end=end)
        assert offsets(rows) == [other for other in range(10) if other != offset]
        assert findings == [Damage(LOCATION, offset, "its checksum is wrong")]
        assert next_offset == 10


@both
def test_neighbours_that_are_damaged_are_each_named(era: Era, write: Callable[..., bytes]) -> None:
    content = write(TEN).replace(b"payload 4", b"PAYLOAD 4").replace(b"payload 5", b"PAYLOAD 5")
    rows, findings, _ = read(content, era, end=10)
    assert offsets(rows) == [0, 1, 2, 3, 6, 7, 8, 9]
    assert [finding.offset for finding in findings if isinstance(finding, Damage)] == [4, 5]


@pytest.mark.parametrize("at", range(HEADER_08))
@pytest.mark.parametrize("bit", [1, 128])
@pytest.mark.parametrize("offset", [0, 4])
def test_a_damaged_header_of_08_costs_its_message(offset: int, at: int, bit: int) -> None:
    content = flipped(log_08(TEN), start_08(offset) + at, bit)
    rows, findings, _ = read(content, Era08(), end=10)
    assert offsets(rows) == [other for other in range(10) if other != offset]
    assert all(isinstance(finding, Damage) for finding in findings)
    assert [finding.offset for finding in findings if isinstance(finding, Damage)] == [offset]


@pytest.mark.parametrize("at", [*range(52), *range(256, 256 + 8), *range(256 + 32, 256 + 40)])
@pytest.mark.parametrize("bit", [1, 128])
@pytest.mark.parametrize("offset", [0, 3])
def test_a_damaged_header_of_09_costs_its_batch(offset: int, at: int, bit: int) -> None:
    content = flipped(log_09(TEN), start_09(offset) + at, bit)
    rows, findings, _ = read(content, Era09(), end=10)
    assert offsets(rows) == [other for other in range(10) if other // 3 != offset // 3]
    assert all(isinstance(finding, Damage) for finding in findings)
    assert [finding.offset for finding in findings if isinstance(finding, Damage)] == [offset]


def test_what_a_batch_header_does_not_use_may_be_anything() -> None:
    content = bytearray(log_09(TEN))
    content[52:256] = b"x" * 204
    assert read(bytes(content), Era09(), end=10) == read(log_09(TEN), Era09(), end=10)


@pytest.mark.parametrize("at", [8, 24, 28, 40])
def test_a_damaged_message_header_of_09_costs_its_message(at: int) -> None:
    content = flipped(log_09(TEN), start_09(3) + BATCH + at)
    rows, findings, _ = read(content, Era09(), end=10)
    assert offsets(rows) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert findings == [Damage(LOCATION, 3, "its checksum is wrong")]


def test_a_length_that_leads_to_a_later_message_swallows_none() -> None:
    """A bit flip that makes a message exactly as long as it and the next one together."""
    messages = [Message(offset, b"x" * (128 - HEADER_08)) for offset in range(5)]
    content = flipped(log_08(messages), 2 * 128 + 52, 128)
    rows, findings, _ = read(content, Era08(), end=5)
    assert offsets(rows) == [0, 1, 3, 4]
    assert [finding.offset for finding in findings if isinstance(finding, Damage)] == [2]


@pytest.mark.parametrize("offset", [2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_offsets_that_are_far_off_are_damage(offset: int) -> None:
    wild = Message(offset, b"wild")
    rows, findings, _ = read(log_08([*TEN[:5], wild, *TEN[5:]]), Era08(), end=10)
    assert offsets(rows) == list(range(10))
    assert findings == [Damage(LOCATION, offset, "the next log begins at 10")]
    rows, findings, _ = read(batch_09(TEN) + batch_09([wild]), Era09(), end=10)
    assert offsets(rows) == list(range(10))
    assert findings == [Damage(LOCATION, offset, "the next log begins at 10")]


def test_sums_that_wrap_are_damage() -> None:
    frame = checked(struct.pack("<16sIIIIQ", b"", 2, 2, 0, 0, 0))
    for fields in ((0, 2**64 - 1, 0, 0), (0, 0, 0, 2**64 - 1), (0, 0, 2**64 - 1, 0)):
        rows, findings, _ = read(batch_of([frame], fields), Era09())
        assert rows.num_rows == 0
        assert len(findings) == 1
        assert isinstance(findings[0], Damage)


@both
def test_offsets_that_go_back_are_damage(era: Era, write: Callable[..., bytes]) -> None:
    again = [*TEN[:6], *TEN[3:6], *TEN[6:]]
    rows, findings, _ = read(write(again), era, end=10)
    assert offsets(rows) == list(range(10))
    follows = "it follows offset 5, but offsets must rise"
    assert findings == [Damage(LOCATION, offset, follows) for offset in (3, 4, 5)]


@both
def test_offsets_below_the_name_of_the_log_are_damage(
    era: Era, write: Callable[..., bytes]
) -> None:
    rows, findings, next_offset = read(write(TEN), era, segment=6)
    assert offsets(rows) == [6, 7, 8, 9]
    assert len(findings) == 6
    assert next_offset == 10


def test_a_gap_is_nothing_in_08_and_told_in_09() -> None:
    messages = [*TEN[:3], *TEN[6:]]
    assert read(log_08(messages), Era08(), end=10)[1] == []
    rows, findings, _ = read(log_09(messages), Era09(), end=10)
    assert offsets(rows) == [0, 1, 2, 6, 7, 8, 9]
    assert findings == [Hole(LOCATION, 3, 5)]


def test_a_damaged_message_behind_a_gap_is_called_by_its_own_offset() -> None:
    content = log_08([*TEN[:3], TEN[5], *TEN[8:]]).replace(b"payload 5", b"PAYLOAD 5")
    assert read(content, Era08(), end=10)[1] == [Damage(LOCATION, 5, "its checksum is wrong")]


@both
def test_an_active_log_may_be_torn_anywhere(era: Era, write: Callable[..., bytes]) -> None:
    # With a partition other than 0, no batch begins with zeros.
    write = write if write is log_08 else partial(log_09, partition=1)
    content = write(TEN)
    starts = [len(write(TEN[:count])) for count in range(11)]
    whole = [at for at in starts if not read(content[:at], era)[1]]
    assert len(whole) == (11 if write is log_08 else 5)
    for end in set(range(0, len(content), 7)) - set(whole):
        rows, findings, next_offset = read(content[:end], era)
        last = max(at for at in whole if at < end)
        assert offsets(rows) == list(range(starts.index(last)))
        assert findings == [Tear(LOCATION, starts.index(last), last)]
        assert next_offset == starts.index(last)


@both
def test_a_sealed_log_must_not_be_torn(era: Era, write: Callable[..., bytes]) -> None:
    content = write(TEN)
    for cut in (1, 60):
        rows, findings, next_offset = read(content[:-cut], era, end=10)
        assert offsets(rows) == list(range(9))
        assert findings == [Damage(LOCATION, 9, "the log ends within it", 9)]
        assert next_offset == 10


@both
@pytest.mark.parametrize("zeros", [1, 63, 64, 65, 1_000])
def test_zeros_end_an_active_log_and_damage_a_sealed_one(
    era: Era, write: Callable[..., bytes], zeros: int
) -> None:
    content = write(TEN) + bytes(zeros)
    assert read(content, era) == read(write(TEN), era)
    rows, findings, _ = read(content, era, end=10)
    assert offsets(rows) == list(range(10))
    assert len(findings) == 1


@both
def test_an_active_log_of_zeros_is_empty(era: Era, write: Callable[..., bytes]) -> None:
    assert write([]) == b""
    rows, findings, next_offset = read(bytes(5_000), era, segment=40)
    assert (rows.num_rows, findings, next_offset) == (0, [], 40)


@both
def test_zeros_with_something_behind_them_are_damage(era: Era, write: Callable[..., bytes]) -> None:
    content = write(TEN[:3]) + bytes(500) + write(TEN[3:])
    rows, findings, _ = read(content, era)
    assert offsets(rows) == list(range(10))
    assert len(findings) == 1
    assert isinstance(findings[0], Damage)


@both
def test_garbage_is_damage_and_what_follows_it_comes_in(
    era: Era, write: Callable[..., bytes]
) -> None:
    for garbage in (b"x" * 1_000, bytes(range(256)) * 9):
        content = write(TEN[:3]) + garbage + write(TEN[6:])
        rows, findings, _ = read(content, era, end=10)
        assert offsets(rows) == [0, 1, 2, 6, 7, 8, 9]
        assert [
            (finding.offset, finding.last) for finding in findings if isinstance(finding, Damage)
        ] == [(3, 5)]


@both
@pytest.mark.parametrize("before", [0, 3, 9])
def test_a_damaged_record_between_sound_ones_costs_none_of_them(
    era: Era, write: Callable[..., bytes], before: int
) -> None:
    odd = flipped(write([Message(before)]), -1)
    odd = flipped(odd, 8)
    rows, findings, _ = read(write(TEN[:before]) + odd + write(TEN[before:]), era, end=10)
    assert offsets(rows) == list(range(10))
    assert [finding.offset for finding in findings if isinstance(finding, Damage)] == [before]


@both
def test_a_log_that_changes_meanwhile_is_no_tear(era: Era, write: Callable[..., bytes]) -> None:
    content = write(TEN)
    Path(LOCATION).write_bytes(content[:-1])
    log = SegmentLog(LOCATION, 0, 0, len(content), None)
    with pytest.raises(BusyError, match="became shorter while it was read"):
        list(read_log(log, era))
    Path(LOCATION).unlink()
    with pytest.raises(BusyError, match="deleted after the directory was listed"):
        list(read_log(log, era))


@both
def test_the_wrong_era_finds_nothing_sound(era: Era, write: Callable[..., bytes]) -> None:
    other = next(candidate for candidate, _ in BOTH if candidate.name != era.name)
    rows, findings, _ = read(write(TEN), other, end=10)
    assert rows.num_rows == 0
    assert isinstance(findings[0], Damage)


def test_a_message_that_claims_too_much_is_damage_without_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("retention.formats.iggy.era_08.MOST_MESSAGE_BYTES", 1_000)
    monkeypatch.setattr(log_module, "WINDOW_BYTES", 900)
    content = log_08([Message(0, b"x" * 2_000), *TEN[1:]])
    rows, findings, _ = read(content, Era08(), end=10)
    assert offsets(rows) == list(range(1, 10))
    claims = "it claims 2064 bytes, more than a message can have"
    assert findings == [Damage(LOCATION, 0, claims)]
