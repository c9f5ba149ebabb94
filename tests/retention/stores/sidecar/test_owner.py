from __future__ import annotations

import os
from pathlib import Path

import pytest

from retention.config.owner import Owner
from retention.core.units import DAY
from retention.stores.sidecar.owner import (
    CONFIRMED_NS,
    FORGOTTEN_NS,
    note_listing,
    other_owner,
)
from tests.support.sandboxes import NOW

HOST = os.uname().nodename
MINE = Owner(None, "/own.yaml", HOST)
NAMED = Owner("team", "/elsewhere.yaml", HOST)
FAR = Owner(None, "/far.yaml", "another machine")


def test_the_last_that_listed_a_stream_owns_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert other_owner(root, MINE, NOW) is None
    note_listing(root, NAMED, NOW)
    assert other_owner(root, MINE, NOW) == NAMED
    assert other_owner(root, None, NOW) == NAMED
    assert other_owner(root, NAMED, NOW) is None
    note_listing(root, MINE, NOW)
    assert other_owner(root, MINE, NOW) is None


@pytest.mark.parametrize("after", [FORGOTTEN_NS + 1, -FORGOTTEN_NS - 1])
def test_an_owner_that_was_not_seen_for_long_is_none_any_more(tmp_path: Path, after: int) -> None:
    note_listing(str(tmp_path), FAR, NOW)
    assert other_owner(str(tmp_path), MINE, NOW + 31 * DAY) == FAR
    assert other_owner(str(tmp_path), MINE, NOW + after) is None


def test_a_file_that_was_moved_on_this_machine_owns_nothing_any_more(tmp_path: Path) -> None:
    root, file = str(tmp_path / "stream"), tmp_path / "retention.yaml"
    file.write_text("streams: []")
    note_listing(root, Owner(None, str(file), HOST), NOW)
    assert other_owner(root, MINE, NOW) is not None
    file.rename(tmp_path / "moved.yaml")
    assert other_owner(root, MINE, NOW) is None
    note_listing(root, Owner("team", str(file), HOST), NOW)
    assert other_owner(root, MINE, NOW) is not None, "a name does not rest on a place"


def test_an_unchanged_record_is_not_written_every_night(tmp_path: Path) -> None:
    record = tmp_path / "_retention" / "owner.json"
    note_listing(str(tmp_path), FAR, NOW)
    before = record.read_bytes()
    note_listing(str(tmp_path), FAR, NOW + CONFIRMED_NS)
    assert record.read_bytes() == before
    note_listing(str(tmp_path), FAR, NOW + CONFIRMED_NS + 1)
    assert record.read_bytes() != before


def test_a_damaged_record_names_nobody(tmp_path: Path) -> None:
    note_listing(str(tmp_path), FAR, NOW)
    record = tmp_path / "_retention" / "owner.json"
    record.write_bytes(record.read_bytes().replace(b"far", b"fat"))
    assert other_owner(str(tmp_path), MINE, NOW) is None
