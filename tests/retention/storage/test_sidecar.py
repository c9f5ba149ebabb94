"""Sidecars: a doubtful value counts as absent, in every encoding."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from retention.errors import StorageError
from retention.storage.crash_points import Step
from retention.storage.sidecar import Codec, JsonCodec, Sidecar
from retention.storage.table_codecs import ArrowCodec, ParquetCodec

SCHEMA = pa.schema([("path", pa.string()), ("messages", pa.int64())])
ROWS = pa.table([["a", "b"], [7, 11]], schema=SCHEMA)
CODECS: dict[str, tuple[Codec[Any], Any]] = {
    "json": (JsonCodec(dict, lambda _, fields: fields), {"due_ns": 170, "next_seq": {"0": 5}}),
    "arrow": (ArrowCodec(lambda rows: rows, lambda _, table: table.cast(SCHEMA)), ROWS),
    "parquet": (ParquetCodec(SCHEMA), ROWS),
}
SEAL = "90/5df6e0e2761359d30a8275058e299fcc0381534545f55cf43e41983f5d4c9456"
STATE = {"mark": {"version": 3, "seal": SEAL, "wants": "", "beside": ""}, "policy": [1, None]}


@pytest.fixture(params=CODECS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Sidecar[Any], Any]:
    codec, value = CODECS[request.param]
    return Sidecar(str(tmp_path / "deep" / "cache"), codec, Step.DUE_KEPT, 2), value


def test_what_was_saved_is_loaded(case: tuple[Sidecar[Any], Any]) -> None:
    sidecar, value = case
    assert sidecar.load(STATE) is None
    assert sidecar.save(value, STATE)
    assert sidecar.load(STATE) == value
    latest = sidecar.latest()
    assert latest is not None
    assert (latest.label.state, latest.value) == (STATE, value)


@pytest.mark.parametrize(
    "other",
    [
        None,
        {**STATE, "policy": []},
        {**STATE, "mark": {**STATE["mark"], "version": 4}},  # type: ignore[dict-item]
        {**STATE, "mark": {**STATE["mark"], "seal": SEAL.replace("5d", "6d")}},  # type: ignore[dict-item]
    ],
    ids=["no state", "another policy", "another version", "another history"],
)
def test_a_value_of_another_state_does_not_count(
    case: tuple[Sidecar[Any], Any], other: object
) -> None:
    sidecar, value = case
    sidecar.save(value, other)
    assert sidecar.load(STATE) is None


@pytest.mark.parametrize("edition", [1, 3], ids=["earlier", "newer"])
def test_a_value_of_another_edition_does_not_count(
    case: tuple[Sidecar[Any], Any], edition: int
) -> None:
    sidecar, value = case
    replace(sidecar, edition=edition).save(value, STATE)
    assert sidecar.latest() is None
    assert sidecar.save(value, STATE)
    assert sidecar.load(STATE) == value


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content + b"}",
        lambda _: b"[]",
        lambda _: b"{}",
        lambda _: b"[" * 100_000,
        lambda _: b"\xff" * 40,
    ],
)
def test_what_is_torn_or_something_else_is_absent(
    case: tuple[Sidecar[Any], Any], damage: Callable[[bytes], bytes]
) -> None:
    sidecar, value = case
    sidecar.save(value, STATE)
    place = Path(sidecar.place)
    place.write_bytes(damage(place.read_bytes()))
    assert sidecar.latest() is None


def test_no_flipped_bit_makes_another_value(case: tuple[Sidecar[Any], Any]) -> None:
    sidecar, value = case
    sidecar.save(value, STATE)
    place = Path(sidecar.place)
    content = place.read_bytes()
    for at in range(len(content)):
        place.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert sidecar.load(STATE) in (None, value)


def test_json_without_its_checksum_is_not_taken(tmp_path: Path) -> None:
    codec, value = CODECS["json"]
    sidecar: Sidecar[Any] = Sidecar(str(tmp_path / "cache"), codec, Step.DUE_KEPT)
    sidecar.save(value)
    document = json.loads(Path(sidecar.place).read_bytes())
    del document["check"]
    Path(sidecar.place).write_text(json.dumps(document))
    assert sidecar.latest() is None


def test_what_cannot_be_written_is_told_and_what_cannot_be_read_is_absent(
    case: tuple[Sidecar[Any], Any],
) -> None:
    sidecar, value = case
    place = Path(sidecar.place)
    place.parent.parent.joinpath("deep").write_bytes(b"no directory")
    assert not sidecar.save(value, STATE)
    with pytest.raises(StorageError):
        sidecar.write(value, STATE)
    assert sidecar.load(STATE) is None
    place.parent.unlink()
    place.mkdir(parents=True)
    assert sidecar.load(STATE) is None


def test_a_value_that_may_be_lost_is_saved_without_an_fsync(
    case: tuple[Sidecar[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    sidecar, value = case
    Path(sidecar.place).parent.mkdir()
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    sidecar.save_unsynced(value, STATE)
    assert sidecar.load(STATE) == value
    assert not synced
    Path(sidecar.place).write_bytes(Path(sidecar.place).read_bytes()[:-9])
    assert sidecar.load(STATE) is None
    Path(sidecar.place).unlink()
    Path(sidecar.place).mkdir()
    sidecar.save_unsynced(value, STATE)
