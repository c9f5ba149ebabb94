from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from retention.datafile.parquet import write_messages
from retention.errors import DamagedError, RefusedError
from retention.restore.rivals import newest_of_each, refuse_rivals
from retention.stores.archive_manifest import ArchivedFile, ArchiveOrigin, Manifest, StoredManifest
from tests.support.laying import START, Laid, rows_of


def archived(folder: Path, name: str, payloads: dict[int, bytes]) -> ArchivedFile:
    """A copy in an archive with these messages."""
    path = f"partition=0/segment=1/{name}.parquet"
    place = folder / "messages" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    messages = [Laid(seq, payload=payload) for seq, payload in payloads.items()]
    write_messages(str(place), [rows_of(messages)])
    content = place.read_bytes()
    return ArchivedFile(
        path,
        0,
        1,
        len(content),
        hashlib.sha256(content).hexdigest(),
        len(payloads),
        1,
        min(payloads),
        max(payloads),
        START,
        START,
        {},
        [],
    )


def check(folder: Path, copies: Sequence[ArchivedFile]) -> None:
    names = {copy.path: copy.path.rpartition("/")[2].replace("parquet", "json") for copy in copies}
    refuse_rivals(str(folder), copies, names)


def test_copies_of_one_message_agree(tmp_path: Path) -> None:
    first = archived(tmp_path, "first", {1: b"a", 2: b"b", 4: b"d"})
    check(tmp_path, [first, archived(tmp_path, "later", {2: b"b", 3: b"c", 4: b"d", 9: b"x"})])
    check(tmp_path, [first, archived(tmp_path, "between", {3: b"another"})])


def test_another_message_under_one_sequence_is_refused_with_both_manifests(tmp_path: Path) -> None:
    copies = [
        archived(tmp_path, "first", {1: b"a", 2: b"b"}),
        archived(tmp_path, "second", {2: b"b", 3: b"c", 4: b"d"}),
        archived(tmp_path, "third", {3: b"c", 4: b"e"}),
    ]
    with pytest.raises(
        RefusedError, match=r"second.json and third.json name another .* sequence 4"
    ):
        check(tmp_path, copies)


def test_a_damaged_copy_is_no_rival(tmp_path: Path) -> None:
    copies = [archived(tmp_path, name, {1: name.encode()}) for name in ("first", "second")]
    other = archived(tmp_path, "other", {1: b"first"})
    place = tmp_path / "messages" / copies[1].path
    place.write_bytes((tmp_path / "messages" / other.path).read_bytes())
    check(tmp_path, copies)
    place.write_bytes(place.read_bytes().replace(b"first", b"farst"))
    with pytest.raises(DamagedError, match=r"second\.parquet"):
        check(tmp_path, copies)


def test_other_bytes_for_one_path_are_refused_with_both_manifests(tmp_path: Path) -> None:
    origin = ArchiveOrigin("ORDERS", "t")
    copies = [archived(tmp_path, "same", {1: payload}) for payload in (b"a", b"b")]
    manifests = [
        StoredManifest(
            Manifest(origin, is_topic=False, plan_id=name, as_of_ns=at, by_rule={}, files=(copy,)),
            f"{name}.json",
            None,
        )
        for at, (name, copy) in enumerate(zip(("old", "new"), copies, strict=True))
    ]
    with pytest.raises(RefusedError, match=r"old\.json and new\.json name other bytes"):
        newest_of_each(manifests)
    alike = [StoredManifest(manifest.content, "again.json", None) for manifest in manifests[:1]]
    assert newest_of_each([*manifests[:1], *alike])[copies[0].path][1] == "old.json"
