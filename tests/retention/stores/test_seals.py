from __future__ import annotations

from pathlib import Path

import pytest

from retention.stores import seals


@pytest.mark.parametrize("length", [0, 1, 99, 100, 101, 500])
def test_an_entry_is_known_by_the_same_in_memory_and_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(seals, "WHOLE_BYTES", 100)
    monkeypatch.setattr(seals, "_END_BYTES", 40)
    content = bytes(number % 251 for number in range(length))
    place = tmp_path / "entry.json"
    place.write_bytes(content)
    assert seals.seal_at(str(place)) == seals.seal_of(content)
    for at in {0, length // 2 if length <= 100 else 39, length - 1}:
        other = bytearray(content)
        other[at : at + 1] = b"\xff"
        assert seals.seal_of(bytes(other)) != seals.seal_of(content)


def test_what_is_not_there_is_not_known(tmp_path: Path) -> None:
    assert seals.seal_at(str(tmp_path / "entry.json")) is None
