from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from xxhash import xxh3_64_intdigest

from retention.errors import DamagedError, RefusedError, UsageError
from retention.formats.iggy.era import Era, EraName
from retention.formats.iggy.findings import Damage, Finding, Hole, Skipped, Tear
from retention.formats.iggy.topic import (
    ERAS,
    ConsumerOffset,
    TopicDirectory,
    era_of,
    read_topic,
    refuse_other_era,
    refusing_damage,
)
from tests.support.iggy_logs import Message, log_08, log_09, written

TWENTY = [Message(offset, b"payload %d" % offset) for offset in range(20)]
both = pytest.mark.parametrize(("name", "write"), [("0.8", log_08), ("0.9", log_09)])


def topic_of(folder: Path, partitions: dict[str, dict[int, bytes]]) -> TopicDirectory:
    return read_topic(str(written(folder, partitions)))


def read(topic: TopicDirectory, era: Era) -> tuple[list[tuple[int, int, int]], list[Finding]]:
    parts = list(topic.parts(era))
    rows = pa.Table.from_batches([part.rows for part in parts])
    keys = zip(*(rows[name].to_pylist() for name in ("partition", "segment", "seq")), strict=True)
    return list(keys), [finding for part in parts for finding in part.findings]


@both
def test_a_topic_is_read_in_order_of_partition_and_offset(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    logs = {0: write(TWENTY[:6]), 6: write(TWENTY[6:])}
    topic = topic_of(tmp_path, {"10": logs, "9": logs, "0": {0: b""}})
    rows, findings = read(topic, ERAS[name])
    places = [(0 if offset < 6 else 6, offset) for offset in range(20)]
    assert rows == [(partition, *place) for partition in (9, 10) for place in places]
    assert findings == []
    assert era_of(topic) == name
    assert [log.end for log in topic.partitions[1].logs] == [6, None]


@both
def test_the_name_of_an_empty_active_log_is_the_next_offset(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    topic = topic_of(tmp_path, {"0": {0: write(TWENTY), 20: b""}, "1": {400: b""}, "2": {}})
    following = [list(partition.parts(ERAS[name])) for partition in topic.partitions]
    assert [parts[-1].next_offset for parts in following[:2]] == [20, 400]
    assert following[2] == []


@both
def test_a_missing_log_is_a_hole(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    topic = topic_of(tmp_path, {"3": {6: write(TWENTY[6:9]), 12: write(TWENTY[12:]), 50: b""}})
    rows, findings = read(topic, ERAS[name])
    assert [seq for *_, seq in rows] == [6, 7, 8, *range(12, 20)]
    where = topic.partitions[0].directory
    assert findings == [Hole(where, 9, 11), Hole(where, 20, 49)]
    assert findings[0].sentence.endswith("partitions/3: offsets 9 to 11 are missing")


@both
def test_what_is_damaged_at_the_end_of_a_log_is_no_hole(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    topic = topic_of(tmp_path, {"0": {0: write(TWENTY[:9])[:-1], 9: write(TWENTY[9:])}})
    _, findings = read(topic, ERAS[name])
    assert [type(finding) for finding in findings] == [Damage]


def test_directories_that_are_no_partitions_are_named(tmp_path: Path) -> None:
    logs = {0: log_09(TWENTY)}
    names = ["2.fenced.0", "x", "٣", "0"]
    topic = topic_of(tmp_path, dict.fromkeys(names, logs))
    (tmp_path / "partitions" / "7").write_bytes(b"a file")
    assert [partition.number for partition in topic.partitions] == [0]
    above = f"{tmp_path}/partitions"
    assert set(topic.skipped) == {Skipped(f"{above}/{name}") for name in names[:-1]}
    assert all("skipped" in finding.sentence for finding in topic.skipped)


def test_other_files_are_passed_by(tmp_path: Path) -> None:
    folder = written(tmp_path, {"0": {0: log_09(TWENTY)}}) / "partitions" / "0"
    names = ("purge.gen", "superblock.a", f"{0:020}.index", "1.log", f"{5:020}.log.tmp")
    for name in names:
        (folder / name).write_bytes(b"KLBS")
    assert len(read_topic(str(tmp_path)).partitions[0].logs) == 1


@pytest.mark.parametrize(
    ("partitions", "problem"),
    [
        ({}, "no partitions/ with partitions in it"),
        ({"1": {}, "01": {}}, "01 and 1 are the same partition"),
        ({str(2**31): {}}, "a partition's number is at most 2147483647"),
    ],
)
def test_what_is_no_topic_is_refused(
    partitions: dict[str, dict[int, bytes]], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=problem):
        topic_of(tmp_path, partitions)


@pytest.mark.parametrize("number", [2**62 + 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_log_that_begins_beyond_all_offsets_is_damage(number: int, tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="the name of this log is too large for an offset"):
        topic_of(tmp_path, {"0": {number: b""}})


@both
def test_the_other_era_is_refused(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    topic = topic_of(tmp_path, {"0": {0: write(TWENTY)}})
    other: EraName = "0.8" if name == "0.9" else "0.9"
    refuse_other_era(topic, name)
    with pytest.raises(UsageError, match=f"are of Iggy {name}, not {other}.*say --era {name}"):
        refuse_other_era(topic, other)


@both
def test_the_era_is_found_behind_damage(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    content = b"x" * 999 + write(TWENTY)
    assert era_of(topic_of(tmp_path, {"0": {0: content}})) == name


def test_nothing_sound_has_no_era(tmp_path: Path) -> None:
    topic = topic_of(tmp_path, {"0": {0: b"x" * 999, 5: bytes(999), 9: b""}})
    assert era_of(topic) is None
    refuse_other_era(topic, "0.8")


@both
def test_damage_can_be_refused_and_tears_cannot(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    good, torn = write(TWENTY), write(TWENTY)[:-1]
    topic = topic_of(tmp_path, {"0": {0: good[:-1], 20: torn.replace(b"payload 1", b"x")}})
    with pytest.raises(
        DamagedError, match=f"{0:020}.log: offset.* 1[89].*: the log ends within it"
    ) as caught:
        list(refusing_damage(topic.parts(ERAS[name])))
    assert caught.value.exit_code == 6
    other = topic_of(tmp_path / "other", {"0": {0: torn}})
    findings = [
        finding for part in refusing_damage(other.parts(ERAS[name])) for finding in part.findings
    ]
    assert [type(finding) for finding in findings] == [Tear]


def test_an_error_names_twenty_damages_at_most(tmp_path: Path) -> None:
    messages = [Message(offset, b"payload") for offset in range(50)]
    content = log_08(messages).replace(b"payload", b"PAYLOAD")
    topic = topic_of(tmp_path, {"0": {0: content}})
    with pytest.raises(DamagedError, match=r"offset 19: .*; and 30 more; nothing was imported"):
        list(refusing_damage(topic.parts(ERAS["0.8"])))


def offset_file(folder: Path, kind: str, name: str, content: bytes) -> str:
    path = folder / "partitions" / "0" / "offsets" / kind / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def plain(offset: int) -> bytes:
    return struct.pack("<Q", offset)


def with_checksum(offset: int) -> bytes:
    return plain(offset) + struct.pack("<Q", xxh3_64_intdigest(plain(offset)))


def test_stored_offsets_have_8_or_16_bytes(tmp_path: Path) -> None:
    written(tmp_path, {"0": {0: b""}})
    offset_file(tmp_path, "consumers", "10", plain(5))
    offset_file(tmp_path, "consumers", "9", with_checksum(2**62))
    offset_file(tmp_path, "groups", str(2**32 - 1), with_checksum(0))
    for name in ("7.tmp", "007", str(2**32), "٣"):
        offset_file(tmp_path, "groups", name, b"")
    assert read_topic(str(tmp_path)).partitions[0].stored_offsets == (
        ConsumerOffset("consumer", 9, 2**62),
        ConsumerOffset("consumer", 10, 5),
        ConsumerOffset("group", 2**32 - 1, 0),
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has 8 or 16 bytes, this one has 0"),
        (plain(1) + b"x", "this one has 9"),
        (with_checksum(1) + b"x", "this one has 17"),
        (plain(1) + plain(1), "the checksum of the stored offset is wrong"),
        (with_checksum(2**63), "no message can have the stored offset 9223372036854775808"),
    ],
)
def test_other_stored_offsets_are_damage(content: bytes, problem: str, tmp_path: Path) -> None:
    written(tmp_path, {"0": {0: b""}})
    where = offset_file(tmp_path, "groups", "3", content)
    with pytest.raises(DamagedError, match=problem) as caught:
        read_topic(str(tmp_path))
    assert where in str(caught.value)


def noise(count: int, seed: int) -> bytes:
    content = b"".join(plain(xxh3_64_intdigest(plain(n), seed)) for n in range(count // 8 + 1))
    return content[:count]


@both
def test_encrypted_messages_are_refused(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    secret = [Message(n, noise(28 + n, n), noise(40 + n, n + 100)) for n in range(20)]
    topic = topic_of(tmp_path, {"5": {0: write(secret)}})
    with pytest.raises(RefusedError, match="partitions/5: its messages are encrypted"):
        list(topic.parts(ERAS[name]))


@both
def test_odd_user_headers_are_not_taken_for_encryption(
    name: EraName, write: Callable[..., bytes], tmp_path: Path
) -> None:
    odd = {
        "text": [
            Message(n, noise(99, n), b"not what an SDK would send, but stored" * 2)
            for n in range(20)
        ],
        "few": [Message(n, noise(99, n), noise(99, n)) for n in range(7)],
        "short": [Message(n, noise(99, n), noise(39, n)) for n in range(20)],
        "payloads": [Message(n, b"short", noise(99, n)) for n in range(20)],
    }
    for case, messages in odd.items():
        topic = topic_of(tmp_path / case, {"0": {0: write(messages)}})
        assert len(read(topic, ERAS[name])[0]) == len(messages)
