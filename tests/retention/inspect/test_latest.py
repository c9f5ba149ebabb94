from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from retention.api.stream import Stream
from retention.context import subject_counts
from retention.core.units import HOUR
from retention.errors import UsageError
from retention.inspect import last_of_subjects
from retention.inspect import latest as module
from retention.inspect.latest import LATEST
from tests.support.sandboxes import NOW, opened

DELETE = {"KV-Operation": "DEL"}
PURGE = {"KV-Operation": "PURGE"}
AGED = {"Nats-Marker-Reason": "MaxAge"}


def line(key: str, value: str = "", headers: dict[str, str] | None = None, at: int = 0) -> str:
    said = {"subject": f"$KV.devices.{key}", "data": value, "ts_ns": NOW + at * HOUR}
    return json.dumps(said | {"headers": headers or {}})


@pytest.fixture(params=["delta", "parquet"])
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Stream:
    settings = {"name": "KV_devices", "subjects": ["$KV.devices.>"], "format": request.param}
    stream = opened(tmp_path, settings, segment_span="1h").stream("KV_devices")
    stream.publish([line("a.x", "1"), line("a.y", "2"), line("b", "3")])
    stream.publish([line("a.x", "4", at=1), line("b", headers=DELETE, at=1)])
    stream.publish([line("c", "5", at=2), line("d", headers=PURGE, at=2)])
    stream.publish([line("e", headers=AGED, at=3), line("a.y", "6", at=3)])
    return stream


def values(stream: Stream, subject: str | None = None) -> dict[str, tuple[int, str, bytes]]:
    rows = stream.latest(subject).to_arrow().to_pylist()
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    return {
        row["subject"].removeprefix("$KV.devices."): (row["seq"], row["operation"], row["payload"])
        for row in rows
    }


def test_each_subject_has_its_last_value_and_deletions_say_so(bucket: Stream) -> None:
    assert values(bucket) == {
        "a.x": (4, "put", b"4"),
        "b": (5, "delete", b""),
        "c": (6, "put", b"5"),
        "d": (7, "purge", b""),
        "e": (8, "purge", b""),
        "a.y": (9, "put", b"6"),
    }
    assert len(bucket.latest()) == 6


def test_subjects_are_filtered_as_the_broker_does(bucket: Stream) -> None:
    assert set(values(bucket, "$KV.devices.*")) == {"b", "c", "d", "e"}
    assert set(values(bucket, "$KV.devices.a.>")) == {"a.x", "a.y"}
    assert set(values(bucket, "$KV.devices.c")) == {"c"}
    assert values(bucket, "elsewhere.>") == {}
    with pytest.raises(UsageError, match="is not a subject filter"):
        bucket.latest("a..b")


def test_an_older_value_is_the_last_one_once_the_newer_is_gone(tmp_path: Path) -> None:
    settings = {"name": "KV_devices", "subjects": ["$KV.devices.>"], "allow_msg_ttl": True}
    stream = opened(tmp_path, settings, now_ns=NOW + 9 * HOUR).stream("KV_devices")
    stream.publish([line("a", "1"), line("a", "2", {"Nats-TTL": "1h"})])
    assert values(stream) == {"a": (2, "put", b"2")}
    stream.plan().apply()
    assert values(stream) == {"a": (1, "put", b"1")}


def test_files_without_a_last_value_are_not_opened(bucket: Stream) -> None:
    inventory = bucket.opened.store.inventory(bucket.opened.store.snapshot())
    oldest = bucket.opened.store.data_files(inventory.files)[0]
    Path(oldest.location).write_bytes(b"\0" * Path(oldest.location).stat().st_size)
    assert len(values(bucket)) == 6


def test_it_is_read_a_span_at_a_time(bucket: Stream) -> None:
    tables = list(bucket.latest().batches())
    assert [table.num_rows for table in tables] == [2, 2, 2]
    assert all(table.schema.equals(LATEST) for table in tables)


@pytest.mark.parametrize("at_a_time", [1, 3, 64])
@pytest.mark.parametrize("held", [0, 5, 1 << 20])
def test_it_does_not_matter_how_the_digests_are_folded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int, held: int
) -> None:
    monkeypatch.setattr(subject_counts, "FILES_AT_ONCE", at_a_time)
    monkeypatch.setattr(last_of_subjects, "_LEAST_FOLDED", 1)
    monkeypatch.setattr(last_of_subjects, "HELD_SUBJECTS", held)
    settings = {"name": "KV_devices", "subjects": ["$KV.devices.>"]}
    stream = opened(tmp_path, settings, segment_span="1h").stream("KV_devices")
    choose = random.Random(7)
    keys = [choose.choice("abcdefgh") for _ in range(60)]
    stream.publish([line(key, str(seq), at=seq // 4) for seq, key in enumerate(keys, 1)])
    wanted = {key: seq for seq, key in enumerate(keys, 1)}
    assert {key: seq for key, (seq, _, _) in values(stream).items()} == wanted


def test_pandas_has_a_subject_a_row(bucket: Stream) -> None:
    frame = bucket.latest().to_pandas()
    assert list(frame.columns) == LATEST.names
    assert frame.set_index("subject").loc["$KV.devices.b", "operation"] == "delete"


def test_the_newest_are_shown_as_text_and_in_a_notebook(
    bucket: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    headline, *rows = repr(bucket.latest()).splitlines()
    assert headline == "KV_devices: 6 subjects"
    assert [row.split()[0] for row in rows] == ["9", "8", "7", "6", "5", "4"]
    assert rows[1].split()[2:] == ["$KV.devices.e", "purge"]
    assert rows[0].split()[2:] == ["$KV.devices.a.y", "put", "6"]
    assert "$KV.devices.b" in bucket.latest()._repr_html_()
    assert "delete" in bucket.latest()._repr_html_()
    monkeypatch.setattr(module, "_SHOWN", 2)
    headline, *rows = repr(bucket.latest()).splitlines()
    assert (headline, len(rows)) == ("KV_devices: 6 subjects, the newest 2", 2)


def test_a_stream_that_holds_nothing_has_no_values(tmp_path: Path) -> None:
    latest = opened(tmp_path, {"name": "KV_devices"}).stream("KV_devices").latest()
    assert repr(latest) == "KV_devices: 0 subjects"
    assert latest.to_pandas().empty
